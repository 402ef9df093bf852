use proptest::prelude::*;

use super::*;
use crate::protocol::{
    Bound, Data, Exit, FileError, FileErrorKind, FilePiece, Incoming, Key, LandlockState, Locks, Output, OutputStream,
    Reader, Ready, Rejected, RunResult, Started, StreamReport, WorkBound, json_bytes, shorten,
};
use crate::serve::bounds::{MAX_CONTEXT_BYTES, MAX_ID_BYTES, MAX_PATH_BYTES, MAX_REASON_BYTES, MAX_TOLD_PATH_BYTES};

const KEY: Key = Key::new([1; 32]);

fn queue(seal: bool, max_bytes: u64) -> OutQueue {
    let mut queue = OutQueue {
        link: Some(RunnerLink::new(&KEY)),
        ..OutQueue::default()
    };
    queue.keep(Journal { seal, max_bytes }).unwrap();
    queue
}

fn output(bytes: usize) -> FromRunner {
    FromRunner::Output(Output {
        stream: OutputStream::Stdout,
        data: Data(vec![b'x'; bytes]),
    })
}

/// What the container runtime makes of it.
fn written(queue: &OutQueue) -> u64 {
    let lines = queue.bytes.split_inclusive(|byte| *byte == b'\n');
    lines
        .map(|line| line.len() as u64 + line.chunks(LOG_LINE_BYTES).count() as u64 * LOG_PREFIX_BYTES as u64)
        .sum()
}

const LOCKS: Locks = Locks {
    seccomp: true,
    landlock: LandlockState::PartiallyEnforced,
    landlock_abi: u32::MAX,
    work: WorkBound::Mounted,
};

fn long(length: usize) -> String {
    "\u{1}".repeat(length)
}

/// Every frame with the longest texts and numbers that the runner lets through.
fn largest() -> Vec<FromRunner> {
    let report = StreamReport {
        bytes: u64::MAX,
        truncated: false,
    };
    vec![
        FromRunner::Ready(Ready {
            protocol_min: Some(u32::MAX),
            protocol: u32::MAX,
            version: "10.100.1000".to_owned(),
            locks: Some(LOCKS),
        }),
        FromRunner::Bound(Bound {
            protocol: u32::MAX,
            version: "10.100.1000".to_owned(),
        }),
        FromRunner::Started(Started {
            id: shorten(&long(999), MAX_ID_BYTES),
            digest: "0".repeat(64),
            locks: LOCKS,
            context: shorten(&long(99_999), MAX_CONTEXT_BYTES),
        }),
        FromRunner::Result(RunResult {
            id: shorten(&long(999), MAX_ID_BYTES),
            digest: "0".repeat(64),
            exit: Exit::LocksMissing {
                reason: shorten(&long(9999), MAX_REASON_BYTES),
            },
            stdout: report,
            stderr: report,
            wall_us: u64::MAX,
            cpu_us: u64::MAX,
            max_rss_bytes: u64::MAX,
            killed: u64::MAX,
            files: u64::MAX,
            file_errors: u64::MAX,
            locks: Some(LOCKS),
        }),
    ]
}

fn file_error(path: &str, message: &str) -> FromRunner {
    FromRunner::FileError(FileError {
        path: shorten(path, MAX_TOLD_PATH_BYTES),
        kind: FileErrorKind::Unreadable,
        message: shorten(message, MAX_REASON_BYTES),
    })
}

fn rejected() -> FromRunner {
    FromRunner::Rejected(Rejected {
        message: shorten(&long(9999), MAX_REASON_BYTES),
    })
}

#[test]
fn what_is_kept_free_is_enough_for_the_largest_frames() {
    for seal in [false, true] {
        let mut full = queue(seal, 1 << 20);
        for frame in largest().iter().take(3) {
            assert!(full.send(frame), "{frame:?}");
        }
        while full.output_room() > 0 {
            let room = usize::try_from(full.output_room()).unwrap();
            assert!(full.send(&output(room.min(70_000))), "{room}");
        }
        for _ in 0..101 {
            assert!(full.send(&file_error(&long(9999), &long(9999))));
        }
        for _ in 0..16 {
            assert!(full.send(&rejected()));
        }
        assert!(full.send(&largest()[3]));
        assert!(written(&full) <= 1 << 20, "{}", written(&full));
        assert_eq!(written(&full), full.log_bytes);
    }
}

#[test]
fn nearly_all_of_a_log_may_be_output() {
    for (seal, piece) in [(false, 4096), (true, 4096), (true, 69_632)] {
        let mut queue = queue(seal, 1 << 20);
        while queue.output_room() >= piece as u64 {
            assert!(queue.send(&output(piece)));
        }
        let unused = (1 << 20) - RESULT_BYTES - ERRORS_BYTES - queue.log_bytes;
        assert!(unused < 2 * piece as u64, "{unused}");
    }
}

#[test]
fn without_a_journal_there_is_no_cap() {
    let mut queue = OutQueue::default();
    assert!(queue.send(&output(1 << 20)));
    assert_eq!(queue.output_room(), u64::MAX);
    assert!(queue.fits_file(u64::MAX / 8, 1 << 40));
}

#[test]
fn a_log_that_is_too_small_for_a_run_is_refused() {
    let journal = |max_bytes| Journal { seal: true, max_bytes };
    assert!(OutQueue::default().keep(journal(MIN_LOG_BYTES)).is_ok());
    assert!(OutQueue::default().keep(journal(MIN_LOG_BYTES - 1)).is_err());
}

/// One thing that a run can make the runner say.
#[derive(Debug, Clone)]
enum QueuedFrame {
    Output(usize),
    File(String, u64),
    Error(String, String),
    Rejected,
}

fn said() -> impl Strategy<Value = QueuedFrame> {
    // From plain names to those that JSON writes six times as long.
    let name = prop_oneof!["[a-z/]{1,40}", "\\PC{0,400}", "[\u{0}-\u{1f}\"\\\\]{0,1200}"];
    prop_oneof![
        (0_usize..70_000).prop_map(QueuedFrame::Output),
        (
            name.clone(),
            prop_oneof![Just(0), 1_u64..3000, 1_u64..3000, 250_000_u64..600_000]
        )
            .prop_map(|(path, size)| QueuedFrame::File(path, size)),
        (name.clone(), name).prop_map(|(path, message)| QueuedFrame::Error(path, message)),
        Just(QueuedFrame::Rejected),
    ]
}

/// The pieces of a file, as `send_file` makes them.
fn pieces(path: &str, size: u64) -> Vec<FromRunner> {
    let bytes = vec![b'y'; usize::try_from(size).unwrap()];
    let mut chunks: Vec<&[u8]> = bytes.chunks(PIECE_BYTES).collect();
    if chunks.is_empty() {
        chunks.push(&[]);
    }
    let count = chunks.len();
    let piece = |(index, chunk): (usize, &&[u8])| {
        FromRunner::File(FilePiece {
            path: path.to_owned(),
            mode: 0o777,
            size,
            sha256: "0".repeat(64),
            offset: (index * PIECE_BYTES) as u64,
            data: Data(chunk.to_vec()),
            last: index + 1 == count,
        })
    };
    chunks.iter().enumerate().map(piece).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// The whole budget: for any frames in any order, the log never exceeds its cap, no frame that had room is lost,
    /// and the owner reads every one without a gap.
    #[test]
    fn a_log_never_exceeds_its_cap(
        seal in any::<bool>(),
        max_bytes in MIN_LOG_BYTES..(1 << 20),
        steps in prop::collection::vec(said(), 1..60),
    ) {
        let mut queue = queue(seal, max_bytes);
        let mut errors = 0;
        for frame in largest().iter().take(3) {
            prop_assert!(queue.send(frame));
        }
        for step in steps {
            match step {
                QueuedFrame::Output(bytes) => {
                    let bytes = bytes.min(usize::try_from(queue.output_room()).unwrap());
                    prop_assert!(bytes == 0 || queue.send(&output(bytes)));
                }
                QueuedFrame::File(path, size) => {
                    if path.len() <= MAX_PATH_BYTES && queue.fits_file(json_bytes(&path), size) {
                        for piece in pieces(&path, size) {
                            prop_assert!(queue.send(&piece));
                        }
                    }
                }
                QueuedFrame::Error(path, message) => {
                    errors += 1;
                    prop_assert!(errors > 101 || queue.send(&file_error(&path, &message)));
                }
                // Unbounded here: then some do not fit, and nothing else suffers.
                QueuedFrame::Rejected => { queue.send(&rejected()); }
            }
        }
        prop_assert!(queue.send(&largest()[3]));
        prop_assert!(written(&queue) <= max_bytes, "{} of {max_bytes}", written(&queue));
        let mut reader = Reader::of_log(&KEY);
        for line in queue.bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let heard = reader.read(line);
            prop_assert!(matches!(heard, Incoming::Frame(_)), "{heard:?}");
        }
    }
}
