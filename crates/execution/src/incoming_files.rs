//! Result files as they come from a runner, in pieces. A sandbox image may contain another runner, so what it says of a file is
//! compared with what it sends: a file that is not what it was said to be is no result.

use std::collections::HashSet;

use bytes::Bytes;
use knack_runner::protocol::FilePiece;

use super::check::is_relative;
use super::{OutputFile, mime_type};

/// Characters of a hash.
const SHA256_HEX: usize = 64;

/// The files so far. The hash is compared by the reader of the result, who has to do so for every file of a hub.
#[derive(Debug, Default)]
pub(super) struct IncomingFiles {
    whole: Vec<OutputFile>,
    paths: HashSet<String>,
    open: Option<OpenFile>,
}

/// A file of which pieces are still to come.
#[derive(Debug)]
struct OpenFile {
    path: String,
    size: u64,
    sha256: String,
    bytes: Vec<u8>,
}

impl IncomingFiles {
    /// Whether the next piece begins a file.
    pub(super) const fn is_between(&self) -> bool {
        self.open.is_none()
    }

    /// Takes a piece.
    ///
    /// Errors: what the runner must not have sent, as text.
    pub(super) fn take(&mut self, piece: FilePiece) -> Result<(), &'static str> {
        let mut file = match self.open.take() {
            Some(open) => open,
            None => self.begin(&piece)?,
        };
        if file.path != piece.path || file.size != piece.size || file.sha256 != piece.sha256 {
            return Err("pieces of two files mixed");
        }
        let before = file.bytes.len() as u64;
        if before != piece.offset {
            return Err("pieces of a file out of order");
        }
        file.bytes.extend(piece.data.0);
        let size = file.bytes.len() as u64;
        if size > file.size || (piece.last && size < file.size) {
            return Err("a file whose size is not the announced one");
        }
        if !piece.last && size == before {
            // Refused: nothing else bounds the number of empty pieces.
            return Err("an empty piece of a file");
        }
        if piece.last {
            self.whole.push(OutputFile {
                mime_type: mime_type(&file.path),
                path: file.path,
                bytes: Bytes::from(file.bytes),
                sha256: file.sha256,
            });
        } else {
            self.open = Some(file);
        }
        Ok(())
    }

    fn begin(&mut self, first: &FilePiece) -> Result<OpenFile, &'static str> {
        if !is_relative(&first.path) {
            return Err("a file path that leaves the working directory");
        }
        if first.sha256.len() != SHA256_HEX || !first.sha256.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err("an invalid hash of a file");
        }
        if !self.paths.insert(first.path.clone()) {
            return Err("a file twice");
        }
        Ok(OpenFile {
            path: first.path.clone(),
            size: first.size,
            sha256: first.sha256.clone(),
            bytes: Vec::new(),
        })
    }

    /// The files that were received completely.
    pub(super) fn into_whole(self) -> Vec<OutputFile> {
        self.whole
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use knack_memory::MemoryBudget;
    use knack_runner::fixture::mk_result;
    use knack_runner::protocol::{Data, Exit as WireExit, FilePiece, FromRunner, RunResult};

    use crate::conversation::{CollectedFrames, timings};
    use crate::{ExecutionId, ExecutionResult, Exit, Limits, LockReport, StartKind};

    /// A piece whose file has this size, and whose position is its offset.
    fn piece(path: &str, size: u64, offset: u64, bytes: &[u8], last: bool) -> FilePiece {
        FilePiece {
            path: path.to_owned(),
            mode: 0o644,
            size,
            sha256: "0".repeat(64),
            offset,
            data: Data(bytes.to_vec()),
            last,
        }
    }

    fn end() -> FromRunner {
        FromRunner::Result(RunResult {
            files: 10_000,
            ..mk_result("", WireExit::Code { code: 0 })
        })
    }

    fn result_of(collected: CollectedFrames) -> ExecutionResult {
        let id = ExecutionId::new(Duration::ZERO, "r", 0, "c");
        let timings = timings(Duration::ZERO, StartKind::Cold);
        collected.into_result(id, Exit::Code(0), [false; 2], timings, LockReport::default())
    }

    #[test]
    fn a_runner_that_lies_about_a_file_ends_its_run_by_what_it_sent() {
        let a = || piece("a", 2, 0, b"x", false);
        let hash = |sha256: String| FilePiece {
            sha256,
            ..piece("b", 1, 0, b"x", true)
        };
        let rows = [
            ("leaves the working directory", vec![piece("../x", 1, 0, b"x", true)]),
            ("leaves the working directory", vec![piece("/x", 1, 0, b"x", true)]),
            ("not the announced one", vec![piece("a", 1 << 60, 0, b"x", true)]),
            ("not the announced one", vec![piece("a", 1, 0, b"xx", true)]),
            ("not the announced one", vec![piece("a", 1, 0, b"xx", false)]),
            ("out of order", vec![a(), piece("a", 2, 0, b"y", true)]),
            ("out of order", vec![piece("a", 2, 1, b"y", true)]),
            ("two files mixed", vec![a(), piece("b", 2, 1, b"y", true)]),
            ("two files mixed", vec![a(), piece("a", 3, 1, b"yz", true)]),
            (
                "a file twice",
                vec![piece("a", 1, 0, b"x", true), piece("a", 1, 0, b"y", true)],
            ),
            ("an empty piece", vec![a(), piece("a", 2, 1, b"", false)]),
            ("hash", vec![hash(String::new())]),
            ("hash", vec![hash("0".repeat(1 << 20))]),
            ("hash", vec![hash("x".repeat(64))]),
            ("incomplete", vec![a()]),
            (
                "more files",
                (0..10_000)
                    .map(|number| piece(&format!("f{number}"), 1, 0, b"x", true))
                    .collect(),
            ),
            (
                "more files",
                (0..40)
                    .map(|part| piece("a", 80 << 20, part << 20, &vec![0; 1 << 20], false))
                    .collect(),
            ),
        ];
        let memory = MemoryBudget::new(64 << 20);
        for (expected, pieces) in rows {
            let mut collected = CollectedFrames::within(&Limits::default(), Some(&memory));
            let mut frames = pieces.into_iter().map(FromRunner::File).chain([end()]);
            let error = frames.find_map(|frame| collected.take(frame).err());
            let error = error
                .unwrap_or_else(|| panic!("{expected}: nothing was refused"))
                .to_string();
            assert!(
                error.contains(expected) && error.contains("the run was ended"),
                "{expected}: {error}"
            );
            assert!(collected.is_over(), "{expected}");
            assert!(memory.held_bytes() <= 5 << 20, "{expected}: {}", memory.held_bytes());
            drop(collected);
            assert_eq!(memory.held_bytes(), 0, "{expected}");
        }
    }

    /// A backslash is a character of a name like any other on Linux.
    #[test]
    fn files_of_every_size_and_name_arrive() {
        let mut collected = CollectedFrames::within(&Limits::default(), None);
        for frame in [
            piece("empty", 0, 0, b"", true),
            piece("d/two", 3, 0, b"ab", false),
            piece("d/two", 3, 2, b"c", true),
            piece("a\\b..", 1, 0, b"x", true),
        ] {
            collected.take(FromRunner::File(frame)).unwrap();
        }
        collected.take(end()).unwrap();
        let files: Vec<(String, Vec<u8>)> = result_of(collected)
            .files
            .into_iter()
            .map(|file| (file.path, file.bytes.to_vec()))
            .collect();
        let expected = [("empty", &b""[..]), ("d/two", b"abc"), ("a\\b..", b"x")];
        assert_eq!(files, expected.map(|(path, bytes)| (path.to_owned(), bytes.to_vec())));
    }
}
