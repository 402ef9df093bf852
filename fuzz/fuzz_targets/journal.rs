//! A pod's log as the journal of a run: lines of anybody tell nothing; the same frames made with the key, sealed or not,
//! tell the same; and a line that is missing is noticed. What is collected of a run stays within its limits, whatever its runner says.
#![no_main]

use knack::jobs::Journal;
use knack_execution::conversation::{CollectedFrames, timings};
use knack_execution::{ExecutionId, Exit, Limits, LockReport, StartKind};
use knack_memory::MemoryBudget;
use knack_runner::protocol::{Decoder, FromRunner, Key, RunnerLink};
use libfuzzer_sys::fuzz_target;

const KEY: Key = Key::new([7; 32]);
/// Limits that seeds reach, and room for less than them.
const OUTPUT: u64 = 64;
const FILES_BYTES: u64 = 128;
const FILES: u32 = 3;
const ROOM: usize = 4096;

fn read(log: &[u8]) -> Journal {
    let (mut journal, mut decoder) = (Journal::new(&KEY, CollectedFrames::default()), Decoder::new());
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
    // A sealed frame inside another one is none of Knack's.
    frames.flatten().filter(|frame| !matches!(frame, FromRunner::Sealed(_))).collect()
}

fn made(frames: &[FromRunner], seal: bool) -> Vec<Vec<u8>> {
    let mut link = RunnerLink::new(&KEY);
    if seal {
        link.seal();
    }
    frames.iter().map(|frame| link.encode(frame)).collect()
}

/// What a run of these frames has as its result, within its limits and the owner's memory; as a new owner reads it, too.
fn collect(frames: &[FromRunner]) {
    let limits = Limits {
        max_output_bytes: OUTPUT,
        max_files_bytes: FILES_BYTES,
        max_files: FILES,
        ..Limits::default()
    };
    let memory = MemoryBudget::new(ROOM);
    let mut collected = CollectedFrames::within(&limits, Some(&memory));
    let mut journal = Journal::new(&KEY, CollectedFrames::within(&limits, Some(&memory)));
    let lines = made(frames, true);
    let ended = frames.iter().zip(&lines).any(|(frame, line)| {
        let refused = collected.take(frame.clone());
        assert_eq!(refused.is_err(), collected.is_over());
        journal.take(line);
        assert!(memory.held_bytes() <= ROOM);
        refused.is_err()
    });
    assert!(!ended || collected.is_over());
    let id = ExecutionId::new(std::time::Duration::ZERO, "r", 0, "c");
    let timings = timings(std::time::Duration::ZERO, StartKind::Cold);
    let result = collected.into_result(id, Exit::Code(0), [false; 2], timings, LockReport::default());
    let bytes: usize = result.files.iter().map(|file| file.bytes.len()).sum();
    assert!(bytes as u64 <= FILES_BYTES && result.files.len() <= FILES as usize);
    assert!(result.stdout.bytes.len() as u64 <= OUTPUT && result.stderr.bytes.len() as u64 <= OUTPUT);
    let mut paths: Vec<&str> = result.files.iter().map(|file| &*file.path).collect();
    assert!(paths.iter().all(|path| !path.starts_with('/') && path.split('/').all(|step| step != "..")));
    paths.sort_unstable();
    assert!(paths.windows(2).all(|pair| pair[0] != pair[1]));
    drop((result, journal));
    assert_eq!(memory.held_bytes(), 0);
}

fuzz_target!(|data: &[u8]| {
    let forged = read(data);
    assert!(!forged.is_bound && forged.started.is_none() && forged.result.is_none());
    let frames = frames(data);
    collect(&frames);
    let plain = read(&made(&frames, false).concat());
    let sealed = read(&made(&frames, true).concat());
    assert_eq!(plain.started, sealed.started);
    assert_eq!(plain.result, sealed.result);
    assert_eq!(plain.is_damaged, sealed.is_damaged);
    let lines = made(&frames, true);
    if lines.len() > 1 {
        assert!(read(&lines[1..].concat()).is_damaged);
    }
});
