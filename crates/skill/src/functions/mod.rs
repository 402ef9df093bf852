//! Functions of a skill's Python file as declared tools (docs/skills.md#python-functions-as-tools).
//!
//! ```text
//! tools: [{python: tools.py}] ─▶ declarations of its functions ─▶ one declared tool each ─▶ argv: harness, file, function, JSON
//!                                 from the text (a reader) or from the lock (beside it)
//! ```
//!
//! Nothing here reads Python. Where a person works, the reader is a parser of Python that the caller gives; a cluster has
//! none and takes the lock, which that person's `knack skill lock` wrote.

pub(crate) mod entry;
mod lock;

use serde_json::Value;

pub use entry::path;
pub use lock::{FunctionLock, LOCK_FILE};

use crate::config::ConfigParam;
use crate::problem::Severity;
use crate::risk::Risk;

/// The program that calls a function. It is given as text, so that no file of a skill can take its place.
const HARNESS: &str = include_str!("harness.py");

/// The modules that this program has where no package of that name is installed.
pub const STAND_INS: [&str; 5] = [
    "tukuy",
    "tukuy.context",
    "tukuy.skill",
    "tukuy.skills",
    "prompture.integrations.tukuy_bridge",
];

/// What a function declares, as far as a call of it needs.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Function {
    /// Its name in the file.
    pub function: String,
    /// The tool's name; the function's unless its decorator gives another.
    pub name: String,
    /// Text for the model.
    pub description: String,
    /// JSON Schema of the arguments.
    pub input_schema: Value,
    /// What a call can do. A lock that does not say it is refused: it would lift a limit.
    pub risk: Risk,
    /// Whether a call that failed may be repeated: the function says that it is idempotent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retryable: bool,
    /// Callable through `run_skill_tool` only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
    /// The function's configuration parameters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub config: Vec<ConfigParam>,
}

/// What a reader found in the text of a file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FunctionsRead {
    /// In the order of the file.
    pub functions: Vec<Function>,
    /// What is wrong. The skill is refused for an error.
    pub problems: Vec<FunctionProblem>,
}

/// What is wrong in a file with functions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionProblem {
    /// How much it weighs.
    pub severity: Severity,
    /// Line, from 1.
    pub line: u32,
    /// What is wrong: one sentence without a full stop.
    pub message: String,
    /// What to do about it.
    pub help: String,
}

/// Reads the text of a Python file.
pub type ReadFunctions = fn(&str) -> FunctionsRead;

/// The command of a function; its arguments follow as one JSON object.
pub(crate) fn command(path: &str, function: &str) -> Vec<String> {
    ["python3", "-c", HARNESS, path, function].map(str::to_owned).to_vec()
}
