//! One skill as a value, independent of the dialect of its SKILL.md.
//!
//! Everything downstream (scoring, planning, calling) reads these types, and no longer the frontmatter.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use knack_vocabulary::{DEFAULT_NAMESPACE, split_name};
use serde_json::{Map, Value};

use crate::config::ConfigParam;
use crate::risk::Risk;

/// Namespace and name: the identity of a skill (`metadata.namespace`, `metadata.name`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SkillRef {
    /// Kubernetes namespace; `default` for bare folders.
    pub namespace: String,
    /// Object name, or the folder's name for bare folders.
    pub name: String,
}

/// The namespace of skills that callers upload to a process of one machine.
pub const UPLOADS: &str = "uploads";

/// Whether a namespace is one of skills that callers of a process of one machine upload. A version that is not the default has one of its
/// own, `uploads-2`.
pub fn is_of_uploads(namespace: &str) -> bool {
    namespace.strip_prefix(UPLOADS).is_some_and(|rest| {
        let number = rest.strip_prefix('-').unwrap_or_default();
        rest.is_empty() || (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    })
}

impl SkillRef {
    /// The word by which a person on the command line means this skill: its name in the namespace of folders, of an uploaded one, in
    /// all versions, `uploads/name`, and `namespace/name` of every other one. Whoever uploads or writes a manifest chooses its name and
    /// namespace, so a bare name never means these.
    pub fn word(&self) -> String {
        if self.namespace == DEFAULT_NAMESPACE {
            return self.name.clone();
        }
        let namespace = if is_of_uploads(&self.namespace) {
            UPLOADS
        } else {
            &self.namespace
        };
        format!("{namespace}/{}", self.name)
    }

    /// Whether a person who writes `word` on the command line means this skill: [`SkillRef::word`], or `namespace/name`.
    pub fn is_meant_by(&self, word: &str) -> bool {
        word == self.word()
            || word
                .split_once('/')
                .is_some_and(|(namespace, name)| namespace == self.namespace && name == self.name)
    }
}

impl fmt::Display for SkillRef {
    /// `namespace/name`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}

/// A text that is not `namespace/name` of a skill.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the name of a skill must be namespace/name, in lower-case letters, digits and hyphens")]
pub struct ReadSkillRefError;

impl FromStr for SkillRef {
    type Err = ReadSkillRefError;

    /// Both parts must be DNS labels, as those of a Skill of a cluster are.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (namespace, name) = split_name(text).ok_or(ReadSkillRefError)?;
        Ok(Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }
}

/// The dialect a SKILL.md was recognised as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// agentskills.io: name and description, body is instructions.
    AgentSkills,
    /// Agent Flow Lite: inputs, `{{placeholders}}`, model settings.
    AgentFlow,
    /// HUSK: mode, tools with command and parameters.
    Husk,
}

/// When a skill reaches the model. The order is that of `maxActivation`: `Never < OnRequest < Listed < Auto < Always`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ActivationMode {
    /// Never injected, never executed.
    Never,
    /// Only when a request names it.
    OnRequest,
    /// One line in the system text; loaded on demand. What a skill has that says nothing.
    #[default]
    Listed,
    /// Scored against the request.
    Auto,
    /// Body and tools in every request.
    Always,
}

impl ActivationMode {
    /// The word in manifests.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Never => "Never",
            Self::OnRequest => "OnRequest",
            Self::Listed => "Listed",
            Self::Auto => "Auto",
            Self::Always => "Always",
        }
    }

    /// Parses a mode, in any case; `on`, `off` and `auto` are those of the OmniRoute dialect.
    pub fn from_word(word: &str) -> Option<Self> {
        match word.trim().to_ascii_lowercase().as_str() {
            "never" | "off" => Some(Self::Never),
            "onrequest" | "on-request" | "on_request" => Some(Self::OnRequest),
            "listed" => Some(Self::Listed),
            "auto" => Some(Self::Auto),
            "always" | "on" => Some(Self::Always),
            _ => None,
        }
    }
}

/// One valid skill.
#[derive(Debug, Clone)]
pub struct Skill {
    /// Identity.
    pub id: SkillRef,
    /// Shown name: frontmatter `display_name`, else the frontmatter name, else the object's name.
    pub title: String,
    /// One paragraph; never empty (defaults to the name).
    pub description: String,
    /// Semantic version, if declared.
    pub version: Option<String>,
    /// The dialect that SKILL.md was read as.
    pub dialect: Dialect,
    /// SKILL.md without frontmatter, trimmed.
    pub body: String,
    /// SKILL.md as it came.
    pub document: String,
    /// When it reaches the model.
    pub activation: ActivationMode,
    /// Tags for AUTO scoring, lower case, in declared order, duplicates kept.
    pub tags: Vec<String>,
    /// `metadata.installCount`, else 0: breaks AUTO ties.
    pub install_count: u64,
    /// Ids that other systems gave it (`spec.ids`, else `metadata.skill_id`): requests may name it by them.
    pub ids: Vec<String>,
    /// Ids that its object on a cluster gives it ([`crate::ids::of_object`]): no other skill can carry them. A load leaves
    /// it empty.
    pub object_ids: Vec<String>,
    /// Template inputs; empty when the body is not a template.
    pub inputs: Vec<Input>,
    /// Declared tools.
    pub tools: Vec<Tool>,
    /// Environment names that any tool or run of this skill asks for. Requests only: values come from grants.
    pub env: Vec<String>,
    /// Frontmatter keys that nothing here gives a meaning to.
    pub extra: Map<String, Value>,
    /// Every file but nothing else, SKILL.md included, by path relative to the skill's folder (`/` separated).
    pub files: BTreeMap<String, SkillFile>,
    /// Hex SHA-256 of the canonical file tree.
    pub digest: String,
    /// Limits that the skill asks for; a runtime may only tighten them.
    pub sandbox: SandboxRequest,
    /// Packages that its runs can import, as far as the executor provides any. A load leaves it empty.
    pub packages: Packages,
    /// Packages that a manifest asks for; they replace every declaration in the files.
    pub requirements: Option<AskedPackages>,
    /// The upload that it is. A load leaves it empty: no file says of itself that it is a version of another skill.
    pub upload: Option<Upload>,
    /// Names of tools that are not run here, since values of their configuration are missing or do not fit: as a hub says
    /// it. A load leaves it empty.
    pub withheld: Vec<String>,
}

/// Names of packages, for models.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Packages {
    /// Python packages.
    pub python: Vec<String>,
    /// Node packages: those that the skill asks for, without their own dependencies.
    pub node: Vec<String>,
}

/// Packages that a manifest asks for, `spec.packages`: in the place of every declaration in the skill's files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AskedPackages {
    /// Requirements of Python packages as pip writes them.
    pub python: Vec<String>,
    /// Packages of Node as npm writes them, `docx@^9`; `None`: the skill's files say.
    pub node: Option<Vec<String>>,
    /// The standard environment, in the place of a list.
    pub standard: bool,
}

/// One version of an uploaded skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upload {
    /// The id of the skill, that of all its versions.
    pub id: String,
    /// Versions are numbered in the order of their making.
    pub number: u32,
}

impl Skill {
    /// What the environment of its packages depends on: its files, and what a manifest asks for besides.
    pub fn environment_id(&self) -> String {
        self.requirements
            .as_ref()
            .map_or_else(|| self.digest.clone(), |asked| format!("{} {asked:?}", self.digest))
    }
}

/// One file of a skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillFile {
    /// Content, shared between revisions and executions.
    pub bytes: Arc<[u8]>,
    /// Whether the owner may execute it.
    pub executable: bool,
}

/// A template input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    /// Name used in `{{name}}`, 1 to 64 characters of `[a-zA-Z0-9_-]`.
    pub name: String,
    /// Shown name; defaults to `name`.
    pub label: String,
    /// `text` or `textarea`.
    pub kind: InputKind,
    /// Whether a value must be given.
    pub required: bool,
    /// Value used when none is given.
    pub default: Option<String>,
    /// Help text.
    pub description: Option<String>,
}

/// Widget type of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputKind {
    /// One line.
    Text,
    /// Several lines.
    Textarea,
}

/// A declared tool: a command of the skill that the model calls by name.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// Name as declared; the wire name is made by `plan`.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// Argv; `command[0]` is an interpreter on PATH or a path in the skill's folder. Never a shell line.
    pub command: Vec<String>,
    /// HUSK parameters in declared order, or empty when `input_schema` alone is given.
    pub parameters: Vec<Parameter>,
    /// JSON Schema of the arguments: as declared and repaired, or made from `parameters`.
    pub input_schema: Value,
    /// Environment names this tool asks for, besides the skill's.
    pub env: Vec<String>,
    /// Callable through `run_skill_tool` only, never injected by itself.
    pub hidden: bool,
    /// How its program is called.
    pub call: CallForm,
    /// What its author says a call can do; a runtime may run tools up to a level only.
    pub risk: Risk,
    /// Configuration parameters, whose values come from a runtime; it is offered where each has one.
    pub config: Vec<ConfigParam>,
}

/// How the program of a declared tool gets its arguments, and what its output is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CallForm {
    /// Words of the command line, by the rules of `argv`; standard output is the result.
    #[default]
    Words,
    /// A function of a Python file: one JSON object; standard output is the result or the text of an error, and what the
    /// function printed is on standard error.
    Function {
        /// Whether a call that failed may be repeated.
        retryable: bool,
    },
}

/// A HUSK parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// Name in the model's arguments.
    pub name: String,
    /// Text for the model.
    pub description: String,
    /// Defaults to true, as in HUSK.
    pub required: bool,
}

/// What a skill asks of its sandbox. `None` = the runtime's default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SandboxRequest {
    /// Container image.
    pub image: Option<String>,
    /// Container image by the name that a runtime gives it.
    pub image_name: Option<String>,
    /// Wall-clock limit of one run, seconds.
    pub timeout_seconds: Option<u64>,
    /// Cap of stdout and stderr each, bytes.
    pub max_output_bytes: Option<u64>,
    /// Memory limit, bytes.
    pub memory_bytes: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_name_on_the_command_line_means_the_namespace_of_folders_alone() {
        let of = |namespace: &str| SkillRef {
            namespace: namespace.to_owned(),
            name: "weather".to_owned(),
        };
        for (namespace, word, expected) in [
            ("default", "weather", true),
            ("default", "default/weather", true),
            ("default", "team/weather", false),
            ("default", "other", false),
            ("default", "uploads/weather", false),
            // A manifest chooses its namespace, and its name.
            ("team", "weather", false),
            ("team", "team/weather", true),
            ("uploads-of-a-team", "weather", false),
            ("uploads-of-a-team", "uploads/weather", false),
            ("uploads-", "weather", false),
            ("uploads", "weather", false),
            ("uploads", "default/weather", false),
            ("uploads", "uploads/weather", true),
            ("uploads-2", "weather", false),
            ("uploads-2", "uploads/weather", true),
            ("uploads-2", "uploads-2/weather", true),
            ("uploads-2", "uploads-3/weather", false),
        ] {
            let skill = of(namespace);
            assert_eq!(skill.is_meant_by(word), expected, "{namespace}/weather by {word}");
            assert!(skill.is_meant_by(&skill.word()));
        }
    }
}
