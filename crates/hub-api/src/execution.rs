//! Executions: the request, and the frames of its answer.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Data, HubRefusal, RuntimeName};

/// `POST /v1/executions`. Skill files are named, never sent: the hub takes them from the artifacts that this caller
/// sees at this runtime. Environment values are not here either: they come from the runtime's grants.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExecutionPost {
    /// [`super::PROTOCOL`] of the sender.
    pub protocol: u32,
    /// Where it runs.
    pub runtime: RuntimeName,
    /// UUIDv7 whose time is the start of the sender's request.
    pub id: String,
    /// The skill that the run belongs to, an index of `mounts`: the one whose tool runs, or whose image, resources and label
    /// model-written code takes. Absent for code that belongs to none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skill: Option<usize>,
    /// The program to run.
    pub program: ProgramLine,
    /// Skill folders, each at `skills/<mount>/`.
    #[serde(default)]
    pub mounts: Vec<MountLine>,
    /// Files of the working directory.
    #[serde(default)]
    pub inputs: Vec<InputLineFile>,
    /// Where it starts.
    #[serde(default)]
    pub working_directory: WorkingDirectoryLine,
    /// Limits; the runtime's ceilings bind on top.
    #[serde(default)]
    pub limits: LimitsLine,
    /// Whether `output` frames are wanted while it runs; the `result` frame has everything either way.
    #[serde(default)]
    pub live: bool,
    /// For whom the sender asks, in letters and digits whose meaning only the sender knows: capacity and memory are
    /// shared evenly between these names. Accepted only from senders that may act for others (verbs `use-for`,
    /// `use-all`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
}

/// The program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ProgramLine {
    /// Source text.
    Code {
        /// `python` or `node`.
        language: String,
        /// The whole program.
        source: String,
    },
    /// Argv, without a shell.
    Command {
        /// At least one element.
        argv: Vec<String>,
    },
    /// A declared tool of the post's `skill`, which is the only mount. The hub finds it in the revision that is mounted,
    /// checks the arguments, makes the command line, and starts it in the skill's folder. Only this kind of program is given
    /// environment values. Since protocol 2.
    Tool {
        /// Its name, as declared.
        name: String,
        /// The model's arguments.
        #[serde(default)]
        arguments: Map<String, Value>,
    },
}

/// A skill's folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountLine {
    /// Folder name under `skills/`.
    pub mount: String,
    /// Namespace of the skill.
    pub namespace: String,
    /// Name of the skill.
    pub name: String,
    /// Digest of its tree.
    pub digest: String,
}

/// A file staged into the working directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputLineFile {
    /// Relative path.
    pub path: String,
    /// Content.
    pub data: Data,
}

/// Where a program starts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkingDirectoryLine {
    /// The writable working directory.
    #[default]
    Work,
    /// `skills/<name>/`.
    Skill(String),
}

/// Limits; absent: the runtime's defaults.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LimitsLine {
    /// Wall-clock time, milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Bytes of stdout and stderr each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_bytes: Option<u64>,
    /// Bytes of result files together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_files_bytes: Option<u64>,
    /// Count of result files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_files: Option<u32>,
    /// Address space, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Processes and threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_processes: Option<u32>,
}

/// One line of the answer to `POST /v1/executions`.
///
/// Order: `accepted`, then `phase`, `output` and `ping` as they come, then either `file` frames and one `result`, or one
/// `error`. A stream that ends without `result` or `error` broke off: ask again with the same id.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ExecutionFrame {
    /// Opens the stream: the id is known here.
    Accepted(AcceptedFrame),
    /// The state of the run, for a person who waits.
    Phase {
        /// `queued`, `starting` or `running`.
        phase: String,
    },
    /// Bytes as they come; only with `live`.
    Output(OutputFrame),
    /// This reader was too slow for some `output` frames; the result has all of it.
    Skipped {
        /// How many frames.
        frames: u64,
    },
    /// A piece of a result file; pieces of one file follow each other.
    File(FileFrame),
    /// The end of a program that ran.
    Result(Box<ResultFrame>),
    /// The end of an execution without a result.
    Error(HubRefusal),
    /// The stream lives.
    Ping,
    /// A frame of a newer hub.
    #[serde(other)]
    Unknown,
}

/// `accepted`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcceptedFrame {
    /// [`super::PROTOCOL`].
    pub protocol: u32,
    /// The id.
    pub id: String,
}

/// Output streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamName {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// `output`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputFrame {
    /// Which stream.
    pub stream: StreamName,
    /// The bytes; a character may be cut between two frames.
    pub data: Data,
}

/// `file`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileFrame {
    /// Relative to the working directory.
    pub path: String,
    /// Hex SHA-256 of the whole file.
    pub sha256: String,
    /// Size of the whole file.
    pub size: u64,
    /// The next bytes of it.
    pub data: Data,
    /// No piece of this file follows.
    pub last: bool,
}

/// `result`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultFrame {
    /// How it ended.
    pub end: EndWord,
    /// Exit code, or signal with [`EndWord::Signal`]; 0 otherwise.
    #[serde(default)]
    pub code: i32,
    /// Standard output.
    #[serde(default)]
    pub stdout: Data,
    /// Whether more was written than is here.
    #[serde(default)]
    pub stdout_truncated: bool,
    /// Standard error.
    #[serde(default)]
    pub stderr: Data,
    /// Whether more was written than is here.
    #[serde(default)]
    pub stderr_truncated: bool,
    /// Files that are not returned.
    #[serde(default)]
    pub file_errors: Vec<FileErrorLine>,
    /// Figures.
    pub timings: TimingsLine,
    /// Locks that held.
    #[serde(default)]
    pub locks: LocksLine,
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndWord {
    /// It exited.
    Exit,
    /// Wall-clock limit.
    Timeout,
    /// Memory limit.
    OutOfMemory,
    /// Output limit.
    OutputLimit,
    /// Disk limit.
    DiskLimit,
    /// Process limit.
    ProcessLimit,
    /// A signal ended it. Also how a reader decodes a value of a newer hub.
    #[serde(other)]
    Signal,
}

/// A file that is not returned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileErrorLine {
    /// Relative path.
    pub path: String,
    /// The reason that the file is missing.
    pub reason: String,
}

/// Figures of one execution, microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TimingsLine {
    /// From asking to a permit.
    pub queue_us: u64,
    /// From the permit to the result.
    pub total_us: u64,
    /// The program alone.
    pub run_us: u64,
    /// Whether the sandbox was started ahead.
    pub warm: bool,
}

/// Locks of the run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LocksLine {
    /// seccomp filters.
    pub seccomp: bool,
    /// Landlock's state word.
    pub landlock: String,
    /// Landlock ABI.
    pub landlock_abi: u32,
}

/// `GET /v1/executions/{id}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutionState {
    /// The id.
    pub id: String,
    /// `namespace/name` of the skill, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skill: Option<String>,
    /// `pending`, `running`, `success`, `error` or `timeout`.
    pub status: String,
    /// Present once it ended with one; files are left out, their POST has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Box<ResultFrame>>,
    /// Why it ended without a result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_a_newer_hub_are_ignored_and_problems_are_flat() {
        let frame: ExecutionFrame = serde_json::from_str(r#"{"type":"heat","celsius":3}"#).unwrap();
        assert_eq!(frame, ExecutionFrame::Unknown);
        let refusal = HubRefusal::new(crate::RefusalCode::Gone, "old");
        assert_eq!(
            serde_json::to_string(&ExecutionFrame::Error(refusal)).unwrap(),
            r#"{"type":"error","code":"gone","message":"old"}"#
        );
    }

    #[test]
    fn a_post_needs_only_what_has_no_default() {
        let post: ExecutionPost = serde_json::from_str(
            r#"{"protocol":1,"runtime":"a/b","id":"x","program":{"kind":"command","argv":["true"]},"newer":1}"#,
        )
        .unwrap();
        assert_eq!(post.working_directory, WorkingDirectoryLine::Work);
        assert_eq!(post.limits, LimitsLine::default());
    }
}
