//! A result as frames, and frames as a result.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use knack_hub_api::{
    Data, EndWord, ExecutionFrame, ExecutionState, FileErrorLine, FileFrame, LocksLine, ResultFrame, TimingsLine,
};

use crate::check::is_relative;
use crate::{
    ExecutionError, ExecutionId, ExecutionRecord, ExecutionResult, Exit, FileError, LockReport, OutputFile, StartKind,
    Stream, Timings, mime_type,
};

/// Bytes of one `file` frame: a slow reader holds one of them at a time, not a file.
const PIECE_BYTES: usize = 256 << 10;
/// Most bytes of files that are taken from a hub for one result: above what any limit allows, below what hurts.
const COLLECT_MAX_BYTES: u64 = 64 << 20;

/// The frames of a result, made one at a time: files in pieces, then the result.
pub fn result_frames(result: Arc<ExecutionResult>) -> impl Iterator<Item = ExecutionFrame> + Send {
    let last = ExecutionFrame::Result(Box::new(result_frame(&result)));
    let count = result.files.len();
    (0..count)
        .flat_map(move |index| file_frames(result.files[index].clone()))
        .chain(std::iter::once(last))
}

fn file_frames(file: OutputFile) -> impl Iterator<Item = ExecutionFrame> + Send {
    let pieces = file.bytes.len().div_ceil(PIECE_BYTES).max(1);
    (0..pieces).map(move |piece| {
        let (from, to) = (piece * PIECE_BYTES, ((piece + 1) * PIECE_BYTES).min(file.bytes.len()));
        ExecutionFrame::File(FileFrame {
            path: file.path.clone(),
            sha256: file.sha256.clone(),
            size: file.bytes.len() as u64,
            data: Data(file.bytes.slice(from..to)),
            last: piece + 1 == pieces,
        })
    })
}

/// How a program ended, in the words of a line. The runner's words are read in `conversation.rs`, and the gateway turns an [`Exit`]
/// into the words of `knack-skill` for models (`tools/convert.rs`): neither of those two crates knows this one.
const fn word(exit: Exit) -> (EndWord, i32) {
    match exit {
        Exit::Code(code) => (EndWord::Exit, code),
        Exit::Signal(signal) => (EndWord::Signal, signal),
        Exit::Timeout => (EndWord::Timeout, 0),
        Exit::OutOfMemory => (EndWord::OutOfMemory, 0),
        Exit::OutputLimit => (EndWord::OutputLimit, 0),
        Exit::DiskLimit => (EndWord::DiskLimit, 0),
        Exit::ProcessLimit => (EndWord::ProcessLimit, 0),
    }
}

/// The reverse of [`word`].
const fn exit(end: EndWord, code: i32) -> Exit {
    match end {
        EndWord::Exit => Exit::Code(code),
        EndWord::Signal => Exit::Signal(code),
        EndWord::Timeout => Exit::Timeout,
        EndWord::OutOfMemory => Exit::OutOfMemory,
        EndWord::OutputLimit => Exit::OutputLimit,
        EndWord::DiskLimit => Exit::DiskLimit,
        EndWord::ProcessLimit => Exit::ProcessLimit,
    }
}

fn result_frame(result: &ExecutionResult) -> ResultFrame {
    let (end, code) = word(result.exit);
    ResultFrame {
        end,
        code,
        stdout: Data(result.stdout.bytes.clone()),
        stdout_truncated: result.stdout.truncated,
        stderr: Data(result.stderr.bytes.clone()),
        stderr_truncated: result.stderr.truncated,
        file_errors: result
            .file_errors
            .iter()
            .map(|error| FileErrorLine {
                path: error.path.clone(),
                reason: error.reason.clone(),
            })
            .collect(),
        timings: TimingsLine {
            queue_us: micros(result.timings.queue_wait),
            total_us: micros(result.timings.total),
            run_us: micros(result.timings.run),
            warm: result.timings.start == StartKind::Warm,
        },
        locks: LocksLine {
            seccomp: result.locks.seccomp,
            landlock: result.locks.landlock.clone(),
            landlock_abi: result.locks.landlock_abi,
        },
    }
}

/// A record as `GET /v1/executions/{id}` returns it; repeating the POST returns the files.
pub fn state_of_record(record: &ExecutionRecord) -> ExecutionState {
    ExecutionState {
        id: record.id.to_string(),
        skill: record.skill.clone(),
        status: record.status.as_str().to_owned(),
        result: record.result.as_deref().map(|result| Box::new(result_frame(result))),
        error: record.error.clone(),
    }
}

/// Puts frames together. What a hub sends is checked: sizes, paths and hashes.
#[derive(Debug, Default)]
pub struct Collector {
    files: Vec<OutputFile>,
    open: Option<(FileFrame, BytesMut)>,
    bytes: u64,
}

/// The outcome of a frame.
#[derive(Debug)]
pub enum CollectStep {
    /// More is to come.
    More,
    /// The end.
    Result(Arc<ExecutionResult>),
}

impl Collector {
    /// Takes a frame; those that carry nothing of a result are passed over.
    ///
    /// Errors: [`ExecutionError::Internal`] for frames that contradict themselves.
    pub fn take(&mut self, id: ExecutionId, frame: ExecutionFrame) -> Result<CollectStep, ExecutionError> {
        match frame {
            ExecutionFrame::File(piece) => {
                self.piece(piece)?;
                Ok(CollectStep::More)
            }
            ExecutionFrame::Result(frame) => {
                if self.open.is_some() {
                    return Err(bad("a file that is incomplete"));
                }
                let files = std::mem::take(&mut self.files);
                Ok(CollectStep::Result(Arc::new(result_of(id, *frame, files))))
            }
            _ => Ok(CollectStep::More),
        }
    }

    fn piece(&mut self, mut piece: FileFrame) -> Result<(), ExecutionError> {
        if !is_relative(&piece.path) {
            return Err(bad("a file path that leaves the working directory"));
        }
        let data = std::mem::take(&mut piece.data).0;
        self.bytes += data.len() as u64;
        if self.bytes > COLLECT_MAX_BYTES {
            return Err(bad("more than 64 MiB of files"));
        }
        let (last, path) = (piece.last, piece.path.clone());
        let (head, bytes) = self.open.get_or_insert_with(|| (piece, BytesMut::new()));
        if head.path != path {
            return Err(bad("pieces of two files mixed"));
        }
        bytes.extend_from_slice(&data);
        if !last {
            return Ok(());
        }
        let Some((head, bytes)) = self.open.take() else {
            return Ok(());
        };
        let bytes: Bytes = bytes.freeze();
        let sha256: String = knack_skill::digest::sha256(&bytes);
        if bytes.len() as u64 != head.size || sha256 != head.sha256 {
            return Err(bad("a file that does not match its hash"));
        }
        self.files.push(OutputFile {
            mime_type: mime_type(&head.path),
            path: head.path,
            bytes,
            sha256,
        });
        Ok(())
    }
}

fn bad(what: &str) -> ExecutionError {
    ExecutionError::Internal(format!("the hub's answer holds {what}"))
}

fn result_of(id: ExecutionId, frame: ResultFrame, files: Vec<OutputFile>) -> ExecutionResult {
    let stream = |data: Data, truncated| Stream {
        bytes: data.0,
        truncated,
    };
    ExecutionResult {
        id,
        exit: exit(frame.end, frame.code),
        stdout: stream(frame.stdout, frame.stdout_truncated),
        stderr: stream(frame.stderr, frame.stderr_truncated),
        files,
        file_errors: frame
            .file_errors
            .into_iter()
            .map(|error| FileError {
                path: error.path,
                reason: error.reason,
            })
            .collect(),
        timings: Timings {
            queue_wait: Duration::from_micros(frame.timings.queue_us),
            total: Duration::from_micros(frame.timings.total_us),
            run: Duration::from_micros(frame.timings.run_us),
            start: if frame.timings.warm {
                StartKind::Warm
            } else {
                StartKind::Cold
            },
        },
        locks: LockReport {
            seccomp: frame.locks.seccomp,
            landlock: frame.locks.landlock,
            landlock_abi: frame.locks.landlock_abi,
        },
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::mk_result;

    fn result(files: &[(&str, usize)]) -> ExecutionResult {
        let file = |(path, size): &(&str, usize)| {
            let bytes: Bytes = vec![0xff; *size].into();
            OutputFile {
                path: (*path).to_owned(),
                sha256: knack_skill::digest::sha256(&bytes),
                mime_type: mime_type(path),
                bytes,
            }
        };
        ExecutionResult {
            stdout: Stream {
                bytes: Bytes::from_static(b"out"),
                truncated: true,
            },
            files: files.iter().map(file).collect(),
            file_errors: vec![FileError {
                path: "big".to_owned(),
                reason: "too big".to_owned(),
            }],
            timings: Timings {
                queue_wait: Duration::from_micros(1),
                total: Duration::from_micros(2),
                run: Duration::from_micros(3),
                start: StartKind::Warm,
            },
            ..mk_result(ExecutionId::new(Duration::from_secs(1), "r", 0, "c"), Exit::Code(3), "")
        }
    }

    fn collect(
        frames: impl Iterator<Item = ExecutionFrame>,
        id: ExecutionId,
    ) -> Result<ExecutionResult, ExecutionError> {
        let mut collector = Collector::default();
        for frame in frames {
            if let CollectStep::Result(result) = collector.take(id, frame)? {
                return Ok((*result).clone());
            }
        }
        Err(ExecutionError::NotFound)
    }

    #[test]
    fn a_result_comes_back_as_it_was_files_of_every_size_included() {
        let sent = result(&[
            ("a.gif", 0),
            ("d/b", 1),
            ("back\\slash", 2),
            ("c", PIECE_BYTES),
            ("e", PIECE_BYTES * 2 + 7),
        ]);
        let back = collect(result_frames(Arc::new(sent.clone())), sent.id).unwrap();
        assert_eq!(format!("{back:?}"), format!("{sent:?}"));
    }

    #[test]
    fn frames_that_contradict_themselves_are_refused() {
        let id = result(&[]).id;
        let file = |path: &str, size: u64, last: bool| {
            ExecutionFrame::File(FileFrame {
                path: path.to_owned(),
                sha256: "0".repeat(64),
                size,
                data: Data(Bytes::from_static(b"x")),
                last,
            })
        };
        let end = || ExecutionFrame::Result(Box::new(result_frame(&result(&[]))));
        for frames in [
            vec![file("../x", 1, true)],
            vec![file("/x", 1, true)],
            vec![file("a//b", 1, true)],
            vec![file("a", 1, true)],
            vec![file("a", 2, false), file("b", 2, true)],
            vec![file("a", 2, false), end()],
        ] {
            assert!(matches!(
                collect(frames.into_iter(), id),
                Err(ExecutionError::Internal(_))
            ));
        }
    }
}
