//! Frames from the runner to the owner.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use super::Data;

/// How long the runner kills before it gives up, in milliseconds. A hydra of 300 that forks at full speed is gone after
/// 20 ms (measured); what takes longer is a process the kernel itself holds, or a machine without any CPU time to give.
pub const KILL_BOUND_MS: u64 = 10_000;

/// A frame from the runner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FromRunner {
    /// The runner lives (at boot, and to a `claim` of another protocol), or the sandbox is ready (answer to `start`).
    Ready(Ready),
    /// Answers the frame `claim`.
    #[serde(rename = "claimed")]
    Bound(Bound),
    /// The run begins; only from here on the execution counts as run.
    Started(Started),
    /// Bytes of stdout or stderr.
    Output(Output),
    /// A file, or one piece of it.
    File(FilePiece),
    /// A file that was not collected.
    FileError(FileError),
    /// The end of the execution; the last frame.
    Result(RunResult),
    /// A line of the owner that was not acted on; nothing else changed.
    Rejected(Rejected),
    /// The container was started again: what its pod ran is in another log. The only frame, without mac.
    Restarted {},
    /// One of `output`, `file`, `file_error`, `result` and `rejected` as only the owner can read it; see
    /// [`super::Reader`].
    Sealed(Sealed),
}

/// `sealed`: a frame of a run whose `start` asked for a sealed journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sealed {
    /// The frame's number among all of the conversation.
    pub sequence: u64,
    /// The sealed bytes.
    pub data: Data,
}

/// `ready`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// The oldest protocol that the runner speaks; absent: only [`Ready::protocol`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol_min: Option<u32>,
    /// The newest protocol that the runner speaks.
    pub protocol: u32,
    /// The runner's version.
    pub version: String,
    /// The locks of the child that waits for the program; absent at boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locks: Option<Locks>,
}

impl Ready {
    /// The protocols that the runner speaks.
    pub fn protocols(&self) -> RangeInclusive<u32> {
        self.protocol_min.unwrap_or(self.protocol)..=self.protocol
    }
}

/// The locks of a run as they were reached. There is no report of a run without seccomp, for there is no such run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Locks {
    /// Always true: both filters loaded.
    pub seccomp: bool,
    /// The state of Landlock.
    pub landlock: LandlockState,
    /// The ABI of the kernel, at most the newest that the runner supports; 0: none.
    pub landlock_abi: u32,
    /// How the bytes and files of the working directory are bounded.
    pub work: WorkBound,
}

/// How the bytes and files that a run keeps in its working directory are bounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkBound {
    /// A separate file system, which is full at the limits of `watch`; everything else is mounted read-only.
    Mounted,
    /// The runner counts them now and then: no mount could be made.
    Watched,
    /// Not the runner: `watch` names no such limits (in a pod the volume has a size).
    Outside,
}

/// How much of the Landlock rules the kernel enforces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LandlockState {
    /// All that the runner asked for.
    FullyEnforced,
    /// An older ABI: some rights or scopes are missing.
    PartiallyEnforced,
    /// No Landlock at all.
    NotEnforced,
}

/// The frame `claimed`: the runner is bound to the key that it proves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bound {
    /// The protocol of the conversation: the newest that both sides speak.
    pub protocol: u32,
    /// The runner's version.
    pub version: String,
}

/// `started`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// The id of `run`.
    pub id: String,
    /// The owner's requests as one number: SHA-256 (hex) over the macs of the owner's frames up to and including `run`.
    pub digest: String,
    /// The locks of the process that gets the program.
    pub locks: Locks,
    /// The context of `run`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub context: String,
}

/// A stream of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// `output`: sent when 4 KiB are together or 50 ms have passed since the first byte.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// Which stream.
    pub stream: OutputStream,
    /// The bytes; a character may be cut between two frames.
    pub data: Data,
}

/// `file`: pieces of one file follow each other; the last one has `last`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePiece {
    /// Path relative to the work directory.
    pub path: String,
    /// Permission bits.
    pub mode: u32,
    /// Size of the whole file in bytes.
    pub size: u64,
    /// SHA-256 (hex) of the whole file.
    pub sha256: String,
    /// Where this piece begins.
    pub offset: u64,
    /// The bytes of this piece.
    pub data: Data,
    /// No piece of this file follows.
    pub last: bool,
}

/// `file_error`: something in the work directory that was not collected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileError {
    /// Path relative to the work directory (invalid UTF-8 replaced, long ones shortened in the middle); empty for a
    /// summary of many.
    pub path: String,
    /// Why the file was not collected.
    pub kind: FileErrorKind,
    /// A sentence for it.
    pub message: String,
}

/// Why a file was not collected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileErrorKind {
    /// A symbolic link; links are never followed.
    Symlink,
    /// A file with more than one name.
    Hardlink,
    /// A pipe, socket or device.
    Special,
    /// Over `result_bytes`, alone or with those before it.
    TooLarge,
    /// More than `result_files`.
    TooMany,
    /// Deeper than the walk goes.
    TooDeep,
    /// The name is not UTF-8, or the path is too long.
    Name,
    /// It could not be read.
    Unreadable,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Exit {
    /// The main process exited with this code.
    Code {
        /// 0 to 255.
        code: i32,
    },
    /// The main process died of a signal that the runner did not send.
    Signal {
        /// The signal's number.
        signal: i32,
    },
    /// Killed at the deadline.
    Timeout,
    /// Used up its CPU time.
    CpuLimit,
    /// Killed by the kernel for memory, or over the watched memory.
    OutOfMemory,
    /// Killed for writing more output than allowed.
    OutputLimit,
    /// Killed for having more processes than the watched number.
    ProcessLimit,
    /// Killed for filling the work directory over the watched numbers.
    FileLimit,
    /// It is over but not gone: after [`KILL_BOUND_MS`] of killing, this many of its processes still lived. Nothing was
    /// collected, for they may still write; the owner must not use the uid or the directory again.
    Survivors {
        /// How many were seen last.
        count: u64,
    },
    /// Killed by `cancel` or the end of the runner's stdin.
    Cancelled,
    /// The program never ran: the kernel does not give the locks that `start` or `run` demands.
    LocksMissing {
        /// The requirement and the actual state, in one line.
        reason: String,
    },
    /// The program never ran. Fail closed: a lock that could not be applied is reported here too.
    NotStarted {
        /// The error, in one line.
        reason: String,
        /// Whether the program is the reason, so that no other sandbox can start it: it does not exist, cannot be
        /// executed, or its working directory does not exist. Absent: an older runner does not say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        of_program: Option<bool>,
    },
}

/// The bytes that were read from one stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamReport {
    /// Bytes sent in `output` frames.
    pub bytes: u64,
    /// The run wrote more than `output_bytes`.
    pub truncated: bool,
}

/// `result`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunResult {
    /// The id of `run`; empty if the sandbox failed before it came.
    pub id: String,
    /// The digest of `started`; empty if the sandbox failed before `run` came.
    pub digest: String,
    /// How it ended.
    pub exit: Exit,
    /// Standard output.
    pub stdout: StreamReport,
    /// Standard error.
    pub stderr: StreamReport,
    /// From `run` to the end of the main process, in microseconds.
    pub wall_us: u64,
    /// User and system time of all processes of the run, in microseconds; an interpreter's start-up is included.
    pub cpu_us: u64,
    /// Largest resident set of one process, in bytes.
    pub max_rss_bytes: u64,
    /// Processes that were still alive after the main process and were killed.
    pub killed: u64,
    /// Files sent.
    pub files: u64,
    /// Files not collected.
    pub file_errors: u64,
    /// The locks; absent if none was reached because nothing ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locks: Option<Locks>,
}

/// `rejected`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rejected {
    /// Which frame and why, in one line.
    pub message: String,
}
