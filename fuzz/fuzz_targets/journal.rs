//! A pod's log as the journal of a run: lines of anybody tell nothing; the same frames made with the key, sealed or not,
//! tell the same; and a line that is missing is noticed.
#![no_main]

use knack::jobs::Journal;
use knack_execution::conversation::Collected;
use knack_runner::protocol::{Decoder, FromRunner, Key, RunnerLink};
use libfuzzer_sys::fuzz_target;

const KEY: Key = Key::new([7; 32]);

fn read(log: &[u8]) -> Journal {
    let (mut journal, mut decoder) = (Journal::new(&KEY, Collected::default()), Decoder::new());
    for piece in log.chunks(64 << 10) {
        decoder.push(piece);
        while let Some(line) = decoder.next_line() {
            if let Ok(line) = line {
                journal.take(line);
            }
        }
    }
    journal
}

fn frames(data: &[u8]) -> Vec<FromRunner> {
    let mut decoder = Decoder::new();
    decoder.push(data);
    let frames = std::iter::from_fn(|| decoder.next_frame::<FromRunner>());
    // A sealed frame inside another one is none of ours.
    frames.flatten().filter(|frame| !matches!(frame, FromRunner::Sealed(_))).collect()
}

fn made(frames: &[FromRunner], seal: bool) -> Vec<Vec<u8>> {
    let mut link = RunnerLink::new(&KEY);
    if seal {
        link.seal();
    }
    frames.iter().map(|frame| link.encode(frame)).collect()
}

fuzz_target!(|data: &[u8]| {
    let forged = read(data);
    assert!(!forged.is_claimed && forged.started.is_none() && forged.result.is_none());
    let frames = frames(data);
    let plain = read(&made(&frames, false).concat());
    let sealed = read(&made(&frames, true).concat());
    assert_eq!(plain.started, sealed.started);
    assert_eq!(plain.result, sealed.result);
    assert!(!plain.is_damaged && !sealed.is_damaged);
    let lines = made(&frames, true);
    if lines.len() > 1 {
        assert!(read(&lines[1..].concat()).is_damaged);
    }
});
