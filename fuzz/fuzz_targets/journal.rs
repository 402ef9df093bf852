//! A pod's log as the journal of a run: frames in the open and sealed ones, of the right key and of a wrong one. Only the
//! claimed nonce's frames tell anything; what is sealed opens as what it was.
#![no_main]

use knack::execution::job::Journal;
use knack_runner::protocol::{Decoder, FromRunner, Sealer, encode, open};
use libfuzzer_sys::fuzz_target;

const KEY: [u8; 32] = [7; 32];

fn read(log: &[u8]) -> Journal {
    let (mut journal, mut decoder) = (Journal::default(), Decoder::new());
    for piece in log.chunks(64 << 10) {
        decoder.push(piece);
        while let Some(frame) = decoder.next_frame::<FromRunner>() {
            if let Ok(frame) = frame {
                journal.take(frame, &KEY);
            }
        }
    }
    journal
}

fuzz_target!(|data: &[u8]| {
    let open_journal = read(data);
    if let Some(result) = &open_journal.result {
        assert_eq!(Some(&result.nonce), open_journal.nonce.as_ref());
    }
    // The same log with everything sealed that can be.
    let (mut decoder, mut log) = (Decoder::new(), Vec::new());
    let mut sealer = Sealer::new(&KEY).expect("a key of 32 bytes");
    decoder.push(data);
    while let Some(frame) = decoder.next_frame::<FromRunner>() {
        let Ok(frame) = frame else { continue };
        match sealer.seal(&frame, "n") {
            Some(FromRunner::Sealed(sealed)) => {
                assert_eq!(open(&KEY, &sealed), Some(frame));
                assert_eq!(open(&[8; 32], &sealed), None);
                log.extend_from_slice(&encode(&FromRunner::Sealed(sealed)));
            }
            _ => log.extend_from_slice(&encode(&frame)),
        }
    }
    let sealed_journal = read(&log);
    assert_eq!(sealed_journal.nonce, open_journal.nonce);
});
