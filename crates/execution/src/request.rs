//! A request to an executor, as a value.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use knack_skill::call::{Language, ToolRun};
use knack_skill::model::{Skill, SkillRef};
use knack_telemetry::TraceContext;

use super::ExecutionId;

/// One execution: everything the code gets, and nothing else reaches it.
#[derive(Debug, Clone)]
pub struct ExecutionRequest {
    /// Identity; a second request with the same id and caller gets the first one's result.
    pub id: ExecutionId,
    /// The owner of this execution: an opaque key (a hash of the credential, or the caller's uid). Another caller never
    /// sees the id.
    pub caller: String,
    /// The skill, for logs and records only; `None` for code that belongs to none.
    pub skill: Option<SkillRef>,
    /// The program.
    pub program: Program,
    /// The declared tool whose command `program` is; `None`: model-written code or a user's command line. Only a
    /// declared tool is given environment values.
    pub tool: Option<Arc<ToolRun>>,
    /// Skill folders, each mounted read-only at `skills/<name>/` of the working directory.
    pub mounts: Vec<SkillMount>,
    /// Files staged into the working directory before the start: the user's (`inputs/<name>`) and those of earlier
    /// runs; for a declared tool all of them below `inputs/`. No name begins with a dot. At most [`Limits::MAX_INPUT_FILES`] files and [`Limits::MAX_INPUT_BYTES`] bytes together.
    pub inputs: Vec<InputFile>,
    /// Where the program starts.
    pub working_directory: WorkingDirectory,
    /// Granted environment of a declared tool, added to the built one (`PATH`, `HOME`, `LANG`, `TMPDIR`); nothing is
    /// inherited.
    pub env: BTreeMap<String, String>,
    /// Limits of this run.
    pub limits: Limits,
    /// Its position in a trace; sent to a hub, never to the code.
    pub trace: Option<TraceContext>,
}

impl ExecutionRequest {
    /// A run of a declared tool: its command line, in its skill's folder, which is the only one that is mounted.
    #[must_use]
    pub fn of_tool(id: ExecutionId, caller: impl Into<String>, tool: ToolRun, mount: SkillMount) -> Self {
        let program = Program::Command {
            argv: tool.argv.clone(),
        };
        Self {
            skill: Some(tool.skill.clone()),
            working_directory: WorkingDirectory::Skill(mount.name.clone()),
            mounts: vec![mount],
            tool: Some(Arc::new(tool)),
            ..Self::new(id, caller, program)
        }
    }

    /// A program of no skill, with nothing mounted or staged, in the working directory, under the default limits.
    #[must_use]
    pub fn new(id: ExecutionId, caller: impl Into<String>, program: Program) -> Self {
        Self {
            id,
            caller: caller.into(),
            skill: None,
            program,
            tool: None,
            mounts: Vec::new(),
            inputs: Vec::new(),
            working_directory: WorkingDirectory::Work,
            env: BTreeMap::new(),
            limits: Limits::default(),
            trace: None,
        }
    }
}

/// The program of an execution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    /// Source text given to an interpreter.
    Code {
        /// Interpreter.
        language: Language,
        /// The whole program.
        source: String,
    },
    /// Program and arguments, run without a shell. `argv[0]` is `python3`, `python` or `node` (the resolved
    /// interpreter), another name on the built `PATH`, or a path relative to the working directory.
    Command {
        /// At least one element.
        argv: Vec<String>,
    },
}

/// A skill's folder as the code sees it.
#[derive(Debug, Clone)]
pub struct SkillMount {
    /// Folder name under `skills/`: one path segment. Two mounts of one request must differ in it.
    pub name: String,
    /// The files; staged once per digest.
    pub skill: Arc<Skill>,
}

/// A file staged into the working directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputFile {
    /// Relative to the working directory, `/` separated; no segment begins with a dot.
    pub path: String,
    /// Content.
    pub bytes: Bytes,
}

/// Where a program starts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum WorkingDirectory {
    /// The writable working directory of the run; result files are collected from it.
    #[default]
    Work,
    /// `skills/<name>/` of a mount, read-only. Result files are still collected from the working directory.
    Skill(String),
}

/// Limits of one run. The defaults are those of `SkillRuntime.spec.sandbox`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Wall-clock time of the program.
    pub timeout: Duration,
    /// Cap of stdout and stderr, bytes each; beyond it the stream is cut, flagged, and the run ended.
    pub max_output_bytes: u64,
    /// Cap of all result files together, bytes; a file over it is reported by name and not returned.
    pub max_files_bytes: u64,
    /// Cap of the count of result files.
    pub max_files: u32,
    /// Address space, bytes; `None` = the executor's default. Not applied to node, whose heap reserves far more.
    pub memory_bytes: Option<u64>,
    /// Processes and threads at once; `None` = the executor's default.
    pub max_processes: Option<u32>,
}

impl Limits {
    /// Input bytes of one run (docs/design/conversation.md#files): 64 MiB.
    pub const MAX_INPUT_BYTES: u64 = 64 << 20;
    /// Input files of one run (docs/design/conversation.md#files).
    pub const MAX_INPUT_FILES: usize = 200;
    /// Default cap of result files together (docs/design/conversation.md#files): 4 MiB.
    pub const DEFAULT_FILES_BYTES: u64 = 4 << 20;
    /// Default count of result files: as many as may be staged into the next run.
    pub const DEFAULT_FILES: u32 = 200;
    /// Default wall-clock limit (`spec.sandbox.timeoutSeconds`).
    const DEFAULT_TIMEOUT: Duration = Duration::from_secs(knack_vocabulary::defaults::TIMEOUT_SECONDS);
    /// Default cap of stdout and stderr each (`spec.sandbox.maxOutputBytes`).
    pub const DEFAULT_OUTPUT_BYTES: u64 = knack_vocabulary::defaults::MAX_OUTPUT_BYTES;
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            timeout: Self::DEFAULT_TIMEOUT,
            max_output_bytes: Self::DEFAULT_OUTPUT_BYTES,
            max_files_bytes: Self::DEFAULT_FILES_BYTES,
            max_files: Self::DEFAULT_FILES,
            memory_bytes: None,
            max_processes: None,
        }
    }
}
