//! Frames from the owner to the runner.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Data, Key};

/// A frame from the owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToRunner {
    /// Binds the runner to the owner's key; repeating it asks "are you alive". It is named `claim` on the wire; here it is not, since
    /// a claim is the right to run an execution everywhere else.
    #[serde(rename = "claim")]
    Bind(Bind),
    /// Builds the sandbox and starts the interpreter ahead.
    Start(Start),
    /// Stages files; any number of times between `start` and `run`.
    Files(Files),
    /// Runs the program, once.
    Run(Run),
    /// Kills the run; the result then says `cancelled`.
    Cancel,
    /// The owner has the result; the runner exits at once.
    Ack,
}

/// The frame `claim`: the first key binds; the runner answers each with the frame `claimed`, authenticated with the key that is bound.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bind {
    /// Known to this owner alone, and used for this runner alone.
    pub key: Key,
    /// The oldest protocol that the owner speaks.
    pub protocol_min: u32,
    /// The newest protocol that the owner speaks.
    pub protocol: u32,
}

/// `start`: everything that is known before the request: the place, the locks, the interpreter, the upper limits.
///
/// The runner makes `<directory>/work` (the run's writable place) and `<directory>/skills` (read-only for the run), and
/// the link `work/skills -> ../skills`. It grants both to the run by Landlock by itself; `read`, `execute` and `write`
/// are what the interpreter needs besides. Paths that do not exist are passed over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// The run directory: absolute; empty, owned by the runner's uid and enterable by `identity` (mode 0711 is enough), or
    /// missing in an existing one, then the runner makes it. The owner deletes it.
    pub directory: String,
    /// The interpreter to start ahead; absent: commands only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interpreter: Option<Interpreter>,
    /// Whether a locked child also waits for a command, beside the interpreter; without an interpreter one always does.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub commands: bool,
    /// Paths the run may read.
    #[serde(default)]
    pub read: Vec<String>,
    /// Paths the run may read and execute.
    #[serde(default)]
    pub execute: Vec<String>,
    /// Paths the run may read and write but not execute, besides the work directory.
    #[serde(default)]
    pub write: Vec<String>,
    /// Whether the run is refused where Landlock is missing.
    pub landlock: Landlock,
    /// The uid and gid to drop to; only a root runner can. No other process should have this uid: where the kernel has no
    /// Landlock scope, this alone keeps signals inside the run. Say so with [`Identity::exclusive`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// The whole environment of the run; nothing is inherited. `HOME`, `TMPDIR` and `KNACK_WORK_DIR` are set by the
    /// runner and win over this map: the last to the work directory, the others to `work/.home` and `work/.tmp`, which are
    /// empty when the run begins and are not collected.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Names of variables that are copied from the runner's own environment, where it has them: values that the cluster
    /// gives to the container and that the owner must not see.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inherit: Vec<String>,
    /// Upper limits; `run` may lower them.
    #[serde(default)]
    pub limits: Limits,
    /// The limits that the runner itself watches, for hosts without a cgroup around the run.
    #[serde(default)]
    pub watch: Watch,
    /// How long a run continues after the runner's stdin ended, in milliseconds; 0 kills at once.
    #[serde(default)]
    pub eof_grace_ms: u64,
    /// Set where stdout is also a log that others keep and read (a pod).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub journal: Option<Journal>,
}

/// Rules for a stdout that is kept as a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Journal {
    /// Whether frames with content of the run are sealed, so that only the owner can read them.
    pub seal: bool,
    /// How large the log may become, in bytes as a container runtime writes it: every started 16 KiB of a line has a
    /// prefix. A run that writes more is ended as `output_limit`; files that do not fit are reported by name.
    pub max_bytes: u64,
}

/// The interpreter to start ahead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interpreter {
    /// Which bootstrap to use.
    pub language: Language,
    /// The absolute path of the binary; it must lie under one of `execute`.
    pub path: String,
}

/// A language the runner has a bootstrap for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Language {
    /// CPython 3.8 or later; started as `python -I -X utf8 -c <bootstrap>`. `PYTHONPATH` of `run.environment` is
    /// honoured by the bootstrap, and the working directory is first on `sys.path`.
    Python,
    /// Node 18 or later; CommonJS, or an ES module where the source is one.
    Node,
}

/// Whether a kernel without Landlock is an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Landlock {
    /// The run is not started unless the path rules hold (laptop).
    Required,
    /// The run starts without it, and the result says so (pod).
    BestEffort,
}

/// A uid and gid without privileges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// User id, not 0.
    pub uid: u32,
    /// Group id, not 0.
    pub gid: u32,
    /// No process outside this run has the uid, now or while the runner lives. The runner then ends the run by killing
    /// every process of the uid, in one syscall that no fork can outrun. If this is wrong, it kills other processes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exclusive: bool,
}

/// Limits of a run. An absent limit means: in `start` the stated default, in `run` the limit of `start`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Wall time from `run` to the kill, in milliseconds. Default 30,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// CPU time of each process, in whole seconds (RLIMIT_CPU). Default: 4 times the timeout, rounded up, plus 1, since
    /// a program with threads uses more CPU time than wall time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_seconds: Option<u64>,
    /// Size of one file, in bytes (RLIMIT_FSIZE). Default 64 MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_bytes: Option<u64>,
    /// Open descriptors (RLIMIT_NOFILE). Default 256.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u64>,
    /// Address space, in bytes (RLIMIT_AS). Default none; wrong for node. That of `start` is the interpreter's alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address_space_bytes: Option<u64>,
    /// Processes of the uid (RLIMIT_NPROC). Default none; it counts every process of the uid on the host, so use it
    /// only with a uid that no other process has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
    /// Bytes of each of stdout and stderr; the run is killed beyond. Default 1,000,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_bytes: Option<u64>,
    /// Bytes of all collected files together. Default 4 MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_bytes: Option<u64>,
    /// Number of collected files. Default 200.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_files: Option<u64>,
}

/// Limits that the runner itself watches, by sampling; a run over one of these is killed. Files are counted at the end of the
/// run too. Absent means unwatched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Watch {
    /// Resident memory of all processes of the run together, in bytes; over it: `out_of_memory`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Processes and threads of the run together; over it: `process_limit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
    /// Files and directories in the work directory. With `work_bytes`, and where the runner may mount, this is the size of
    /// a file system: the run then gets ENOSPC. Else over it: `file_limit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work_files: Option<u64>,
    /// Bytes in the work directory; see `work_files`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work_bytes: Option<u64>,
}

/// `files`: content for the work or the skill directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Files {
    /// Where they go.
    pub area: Area,
    /// The files or pieces, in order.
    pub files: Vec<StagedFile>,
}

/// A place files are staged in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Area {
    /// The work directory: the run may change them; unchanged ones are not collected.
    Work,
    /// The skill directory: paths are `<skill>/<file>`, read-only for the run.
    ///
    /// An executor on the same host may also put files into `<directory>/skills/` itself before `run`.
    Skills,
}

/// A staged file, or one piece of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StagedFile {
    /// Relative path: no empty, `.` or `..` part, no NUL, at most 1,024 bytes and 32 parts.
    pub path: String,
    /// The bytes; at most [`super::PIECE_BYTES`] per piece is a good size.
    pub data: Data,
    /// This piece goes to the end of the file that an earlier piece made.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub append: bool,
    /// The file gets execute permission (skill scripts).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub executable: bool,
}

/// `run`: the program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The execution's id, echoed in `started` and `result`.
    pub id: String,
    /// Whatever the owner wants to find beside the id in `started`, at most 4 KiB; meaningless to the runner.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub context: String,
    /// The program.
    pub program: Program,
    /// Where it runs.
    #[serde(default)]
    pub cwd: Cwd,
    /// Added to the environment of `start`.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Tighter limits; values above those of `start` are lowered to them.
    #[serde(default)]
    pub limits: Limits,
    /// The oldest Landlock ABI with which the program may run; 0: it may run without Landlock. Where less holds the end
    /// is `locks_missing`.
    #[serde(default)]
    pub require_landlock: u32,
}

/// The program of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Program {
    /// Source text for the interpreter of `start`.
    Code {
        /// Must be the language that was started ahead.
        language: Language,
        /// The source.
        source: String,
        /// `sys.argv[1:]`, `process.argv.slice(2)`.
        #[serde(default)]
        arguments: Vec<String>,
    },
    /// A command without a shell. `argv[0]` with a `/` is relative to the working directory, else it is looked up in
    /// `PATH` of the environment. An interpreter that was started ahead is ended.
    Command {
        /// At least one element.
        argv: Vec<String>,
    },
}

/// The working directory of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cwd {
    /// The work directory.
    #[default]
    Work,
    /// The directory of this skill, `skills/<name>` or `skills/<namespace>/<name>`; read-only. The work directory is `KNACK_WORK_DIR`.
    Skill(String),
}
