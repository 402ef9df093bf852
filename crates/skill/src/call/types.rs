//! The result of planning a tool call of Knack: a text, or a run and how to render its outcome.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::catalog::Catalog;
use crate::config::ConfigParam;
use crate::model::{SandboxRequest, Skill, SkillRef};
use crate::plan::Plan;
use crate::risk::Risk;

/// Checks arguments against a JSON Schema; the error is one line for the model.
pub type Validate<'a> = &'a dyn Fn(&Value, &Value) -> Result<(), String>;

/// What a call is resolved against. Both the plan and the catalog are the snapshot that the request began with.
#[expect(missing_debug_implementations, reason = "holds a closure")]
#[derive(Clone, Copy)]
pub struct CallContext<'a> {
    /// The request's plan; its tool table is the only way back from a wire name.
    pub plan: &'a Plan,
    /// The catalog the plan was made from.
    pub catalog: &'a Catalog,
    /// Everything loaded so far: by earlier rounds and by expanded turns.
    pub loaded: &'a [LoadReference],
    /// The schema validator.
    pub validate: Validate<'a>,
}

/// One answered `load_skill`, small enough to remember; [`super::reload`] makes the text again.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LoadReference {
    /// `namespace/name`.
    pub skill: String,
    /// The skill's digest when it was loaded.
    pub digest: String,
    /// The file that was read; `None`: the instructions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Values of the template inputs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub inputs: BTreeMap<String, String>,
}

/// What to do about a call.
#[derive(Debug, Clone)]
pub enum Decision {
    /// The answer is known.
    Text {
        /// For the model.
        text: String,
        /// Whether the format's error mark is set.
        is_error: bool,
        /// What was loaded, to be remembered instead of the text.
        loaded: Option<LoadReference>,
    },
    /// A program has to run.
    Run(Box<RunSpec>),
}

/// A language that code may be written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Language {
    /// CPython 3.
    Python,
    /// JavaScript of Node.js.
    Node,
}

impl Language {
    /// The word of the `language` argument of `run_code`: `python` or `node`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::Node => "node",
        }
    }

    /// Reads the word of the `language` argument; `None` for any other.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        match word {
            "python" => Some(Self::Python),
            "node" => Some(Self::Node),
            _ => None,
        }
    }
}

/// What runs.
#[derive(Debug, Clone, PartialEq)]
pub enum Program {
    /// Source text for an interpreter.
    Code {
        /// Which one.
        language: Language,
        /// The source.
        source: String,
    },
    /// Program and arguments that the model wrote; no shell.
    Argv(Vec<String>),
    /// A declared tool: the only program that may get environment grants.
    Tool(Box<ToolRun>),
}

/// Where it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cwd {
    /// The writable work directory.
    Work,
    /// A mounted skill's folder: the mount path of one of `RunSpec::mounts`.
    Mount(String),
}

/// A skill's files, read-only below the work directory.
#[derive(Debug, Clone)]
pub struct Mount {
    /// `skills/<handle>`.
    pub path: String,
    /// The conversation or skill that the files belong to.
    pub skill: Arc<Skill>,
}

/// How the outcome is rendered for the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Render {
    /// `run_code`.
    Code,
    /// A declared tool: HUSK's texts.
    Declared,
    /// A declared tool that is a function of a Python file.
    Function {
        /// Whether a call that failed may be repeated.
        retryable: bool,
    },
    /// `litellm_code_execution`.
    Litellm,
}

/// One run, as asked for. Limits, grants and queueing are the executor's business.
#[derive(Debug, Clone)]
pub struct RunSpec {
    /// The skill it is recorded under, which gives it no right to anything; `None`: model-written code that names no skill.
    pub skill: Option<SkillRef>,
    /// What runs, and whether it may get environment grants.
    pub program: Program,
    /// The working directory.
    pub cwd: Cwd,
    /// Skill files that it sees.
    pub mounts: Vec<Mount>,
    /// Skill files that are copied into the work directory itself (`litellm_code_execution` only), writable, not outputs unless changed.
    pub staged: Vec<(String, Arc<[u8]>)>,
    /// Limits that the skill asks for.
    pub sandbox: SandboxRequest,
    /// How to render the outcome: pass it to [`super::render`].
    pub render: Render,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// It exited.
    Exit(i32),
    /// A signal ended it.
    Signal(i32),
    /// The time limit.
    Timeout {
        /// The limit, seconds.
        seconds: u64,
    },
    /// The memory limit.
    OutOfMemory,
    /// It could not be started, or the executor refused: one line for the model.
    NotStarted(String),
}

/// A file that a run left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputFile {
    /// Relative path.
    pub path: String,
    /// MIME type.
    pub mime: String,
    /// Bytes.
    pub size: u64,
    /// Where a person can fetch it, if the gateway has a public URL.
    pub url: Option<String>,
}

/// What became of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// How it ended.
    pub end: End,
    /// Wall-clock milliseconds.
    pub duration_ms: u64,
    /// Standard output, as far as kept.
    pub stdout: String,
    /// Standard error, as far as kept.
    pub stderr: String,
    /// Whether the sandbox cut `stdout` or `stderr`.
    pub truncated: bool,
    /// Files for the user.
    pub files: Vec<OutputFile>,
    /// One line for each file that was not taken.
    pub file_errors: Vec<String>,
}

/// How a run of an earlier turn ended, as far as the client's form of it shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShownEnd {
    /// It exited; 128 and the number for a signal.
    Exit(i32),
    /// Not well, and it is not known how.
    Failed,
    /// The time limit.
    Timeout,
}

/// A run of an earlier turn that is not remembered, as the client was shown it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownResult<'a> {
    /// Whether it was model-written code; else another tool of Knack, whose output are its words.
    pub is_code: bool,
    /// How it ended.
    pub end: ShownEnd,
    /// Standard output.
    pub stdout: &'a str,
    /// Standard error, with what [`crate::texts::shown_stderr`] added.
    pub stderr: &'a str,
    /// Its files, as far as they are still kept.
    pub files: Vec<OutputFile>,
    /// How many more it made.
    pub other_files: usize,
}

/// One run of a declared tool: the only kind of run that ever gets environment grants.
///
/// It holds what the declaration and the mapping made of the model's arguments; nothing in it is the model's own choice but
/// values of parameters. Model-written code has no such value, whichever skill it names.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolRun {
    /// The skill that declares the tool.
    pub skill: SkillRef,
    /// The tool's name, as declared.
    pub tool: String,
    /// Its arguments, checked against its schema.
    pub arguments: Map<String, Value>,
    /// The whole command line: the declared command, then the arguments as [`crate::argv::build`] maps them.
    pub argv: Vec<String>,
    /// Environment names that the skill and the tool ask for, as far as such names can be granted; sorted, each once.
    pub env: Vec<String>,
    /// Whether the arguments say which program runs ([`crate::open_command`]).
    pub is_open: bool,
    /// The tool's level.
    pub risk: Risk,
    /// The tool's configuration parameters.
    pub config: Vec<ConfigParam>,
}
