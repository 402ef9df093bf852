//! The result of an execution.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::ExecutionId;

/// The outcome of a program that was started. A program that failed is a result, not an error.
#[derive(Debug, Clone)]
pub struct ExecutionResult {
    /// The execution.
    pub id: ExecutionId,
    /// How the program ended.
    pub exit: Exit,
    /// Standard output.
    pub stdout: Stream,
    /// Standard error.
    pub stderr: Stream,
    /// Regular files that it made or changed in the working directory, by path.
    pub files: Vec<OutputFile>,
    /// Files that were not returned, each with its reason.
    pub file_errors: Vec<FileError>,
    /// Figures for metrics and logs.
    pub timings: Timings,
    /// Locks that held.
    pub locks: LockReport,
}

impl ExecutionResult {
    /// The record status of this outcome: success is exit code 0, timeout is [`Exit::Timeout`], the rest is error.
    #[must_use]
    pub fn status(&self) -> ExecutionStatus {
        match self.exit {
            Exit::Code(0) => ExecutionStatus::Success,
            Exit::Timeout => ExecutionStatus::Timeout,
            _ => ExecutionStatus::Error,
        }
    }

    /// Bytes that keeping this result costs, for the store's bound.
    #[must_use]
    pub(crate) fn retained_bytes(&self) -> u64 {
        let files: usize = self
            .files
            .iter()
            .map(|file| file.bytes.len() + file.path.len() + FIXED_BYTES)
            .sum();
        let errors: usize = self
            .file_errors
            .iter()
            .map(|error| error.path.len() + error.reason.len())
            .sum();
        (self.stdout.bytes.len() + self.stderr.bytes.len() + files + errors + FIXED_BYTES) as u64
    }
}

/// The size of the struct itself and its map entries, rounded up, in bytes.
const FIXED_BYTES: usize = 256;

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It exited with this code.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
    /// The wall-clock or CPU limit ended it.
    Timeout,
    /// It used more memory than allowed.
    OutOfMemory,
    /// It wrote more than the output cap and was ended.
    OutputLimit,
    /// It wrote more file bytes, or more files, than the sandbox allows and was ended.
    DiskLimit,
    /// It ran more processes than allowed and was ended.
    ProcessLimit,
}

impl Exit {
    /// The code as a shell reports it: 128 + signal, 124 for a timeout, 137 for a kill by a limit.
    #[must_use]
    pub const fn code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
            Self::Timeout => 124,
            Self::OutOfMemory | Self::OutputLimit | Self::DiskLimit | Self::ProcessLimit => 137,
        }
    }
}

/// One captured output stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stream {
    /// The first bytes, up to the cap.
    pub bytes: Bytes,
    /// Whether more was written than was kept.
    pub truncated: bool,
}

impl Stream {
    /// The text, invalid UTF-8 replaced.
    #[must_use]
    pub fn text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes)
    }
}

/// A result file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputFile {
    /// Relative to the working directory, `/` separated.
    pub path: String,
    /// Content.
    pub bytes: Bytes,
    /// Hex SHA-256 of the content.
    pub sha256: String,
    /// MIME type by extension, else `application/octet-stream`.
    pub mime_type: &'static str,
}

/// A result file that was not returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileError {
    /// Relative to the working directory; empty for a summary of many.
    pub path: String,
    /// The reason, in one line that a model can act on.
    pub reason: String,
}

impl fmt::Display for FileError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(formatter, "{}: ", self.path)?;
        }
        formatter.write_str(&self.reason)
    }
}

/// Figures of one execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timings {
    /// Time between asking and a permit.
    pub queue_wait: Duration,
    /// Time from the permit to the result, staging and start included.
    pub total: Duration,
    /// Wall-clock time of the program alone, as the runner measured it.
    pub run: Duration,
    /// How the sandbox was started.
    pub start: StartKind,
}

/// How the sandbox of a run came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StartKind {
    /// Started ahead, interpreter loaded.
    Warm,
    /// Started for this run.
    Cold,
}

impl StartKind {
    /// Metric label: `warm` or `cold`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Warm => "warm",
            Self::Cold => "cold",
        }
    }
}

/// The locks that were on while the program ran, as the runner reports them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LockReport {
    /// Whether the seccomp filters were loaded; the program is not started otherwise.
    pub seccomp: bool,
    /// `FullyEnforced`, `PartiallyEnforced` or `NotEnforced`.
    pub landlock: String,
    /// The Landlock ABI of the kernel, 0 for none.
    pub landlock_abi: u32,
}

/// Status of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ExecutionStatus {
    /// Waiting for a permit.
    Pending,
    /// Started.
    Running,
    /// Ended with exit code 0.
    Success,
    /// Ended otherwise, or never started because of an error.
    Error,
    /// Ended by its time limit.
    Timeout,
}

impl ExecutionStatus {
    /// The word of the executions API: `pending`, `running`, `success`, `error` or `timeout`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Success => "success",
            Self::Error => "error",
            Self::Timeout => "timeout",
        }
    }
}

/// An execution as it can be asked for again.
#[derive(Debug, Clone)]
pub struct ExecutionRecord {
    /// The execution.
    pub id: ExecutionId,
    /// `namespace/name` of the skill, if any.
    pub skill: Option<String>,
    /// The state of the execution.
    pub status: ExecutionStatus,
    /// Present once it ended with one.
    pub result: Option<Arc<ExecutionResult>>,
    /// Why it ended without a result.
    pub error: Option<String>,
}
