//! The values that go into a plan and the plan itself.

use std::sync::Arc;

use serde_json::Value;

use crate::autoscore::AutoContext;
use crate::model::{ActivationMode, Skill, SkillRef};
use crate::semver::NoVersion;
use crate::template::FilledTooLarge;

/// What a request says about tools, as far as it decides whether anything may be injected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolChoice {
    /// Absent, `auto`, `any`, `required` or a forced tool: injection is allowed.
    Free,
    /// `none`.
    None,
    /// OpenAI `allowed_tools`.
    AllowedTools,
    /// Something that the format does not take beside tools of others; the word is for the log.
    Closed(&'static str),
}

/// When `run_code` is among the tools, besides where a skill that is served has files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RunCode {
    /// Not besides.
    #[default]
    WithFiles,
    /// If the request attaches a skill that is Knack's: it replaces the tool that the skill is attached to.
    WithAttached,
    /// Always: it replaces a tool of the client's.
    Always,
}

/// One entry of `container.skills`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContainerSkill<'a> {
    /// `type`; `anthropic` is always native. One that is attached to a shell (`skill_reference`) is run by `run_code`,
    /// whatever its id.
    pub kind: Option<&'a str>,
    /// `skill_id` as it came.
    pub id: &'a str,
}

/// One request, reduced to the values that selection and collision rules read.
#[expect(missing_debug_implementations, reason = "holds a closure")]
#[derive(Clone, Copy)]
pub struct PlanRequest<'a> {
    /// `openai`, `anthropic`, `google`, or anything else: for the AUTO hints in tags.
    pub provider: &'a str,
    /// Model id as the client wrote it.
    pub model: &'a str,
    /// Texts of the user messages, in order. Texts that do not start with `@` may be left out.
    pub user_texts: &'a [&'a str],
    /// Makes the AUTO context; called only if the catalog has an AUTO skill.
    pub auto: &'a dyn Fn() -> AutoContext,
    /// Names of the client's own tools.
    pub client_tools: &'a [&'a str],
    /// What the request says about tool use.
    pub tool_choice: ToolChoice,
    /// `container.skills` in order.
    pub container: &'a [ContainerSkill<'a>],
    /// When `run_code` is among the tools. A runtime that denies code of models has none in any case.
    pub run_code: RunCode,
    /// The header `x-knack-skills`, values joined by commas.
    pub header: Option<&'a str>,
    /// The request's cap of output tokens.
    pub max_tokens: Option<u64>,
    /// The request is a run of this skill, whose instructions it carries: it gets its tools, and no other skill.
    pub run_of: Option<&'a SkillRef>,
}

/// Why no plan could be made. The gateway answers in the client's error shape.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A skill id in `container.skills` or in the header is Knack's by its form but unknown.
    #[error(
        "no skill \"{id}\" is available here; check its name or id, and that the runtime of this gateway serves it"
    )]
    UnknownSkill {
        /// The id as the request wrote it.
        id: String,
    },
    /// The skill is here and may be named, but is not served.
    #[error("skill \"{id}\" is here but not served: {why}")]
    NotServed {
        /// The id as the request wrote it.
        id: String,
        /// The reason that it is not served.
        why: String,
    },
    /// Several skills carry the id that the request names.
    #[error("several skills here carry the id \"{id}\"; name the one you mean as namespace/name")]
    AmbiguousSkill {
        /// The id as the request wrote it.
        id: String,
    },
    /// The texts of the skills that the request names would be too long with the inputs that it gives.
    #[error("the instructions of skill \"{skill}\" are too long with these inputs: {error}")]
    InputsTooLong {
        /// What the skill is called here.
        skill: Arc<str>,
        /// The length.
        error: FilledTooLarge,
    },
    /// There is no memory for the texts of the skills that the request names.
    #[error("there is no room for {bytes} bytes of instructions")]
    NoRoom {
        /// The length of the texts.
        bytes: usize,
    },
    /// The skill is here, the version that the request asks for is not.
    #[error(transparent)]
    NoVersion(#[from] NoVersion),
}

/// How an active skill came in, which is also the order in the system text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ActivationCause {
    /// Mode Always.
    Always,
    /// `@name` in a user message.
    Mention,
    /// The header.
    Header,
    /// `container.skills` by a name, without the `litellm:` prefix.
    Container,
    /// `container.skills` by `litellm:<id>` or by a stored id.
    Litellm,
    /// Scored.
    Auto,
    /// The request is a run of it.
    Run,
}

/// One skill whose body is in the system text.
#[derive(Debug, Clone)]
pub struct Active {
    /// The skill.
    pub skill: Arc<Skill>,
    /// What a model and the log call it: its name, or `namespace/name` where two have the same name.
    pub handle: Arc<str>,
    /// The mode that it is active in here.
    pub mode: ActivationMode,
    /// What brought it in.
    pub why: ActivationCause,
}

/// What a call of a planned tool means.
#[derive(Debug, Clone)]
pub enum Action {
    /// `load_skill`.
    LoadSkill,
    /// `run_skill_tool`.
    RunSkillTool,
    /// `run_code`.
    RunCode,
    /// A declared tool: index into `skill.tools`.
    Declared {
        /// The skill that declares the tool.
        skill: Arc<Skill>,
        /// The tool's place in `skill.tools`.
        tool: usize,
    },
    /// The tool that represents a `litellm:` skill; answers like `load_skill` of that skill.
    LitellmSkill {
        /// The skill.
        skill: Arc<Skill>,
    },
    /// `litellm_code_execution`.
    LitellmCode,
}

/// One tool to put into the request, after the client's.
#[derive(Debug, Clone)]
pub struct PlannedTool {
    /// Legal in every format: `^[a-zA-Z][a-zA-Z0-9_-]{0,63}$`.
    pub name: String,
    /// For the model.
    pub description: String,
    /// JSON Schema of the arguments, an object.
    pub schema: Value,
    /// The JSON Schema of the arguments as minified text.
    pub schema_json: String,
    /// What a call means.
    pub action: Action,
}

/// Something that the log and the `x-knack` header should say about this request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The skill it is about, if one.
    pub skill: Option<SkillRef>,
    /// One line.
    pub text: String,
    /// What the header says of it, if anything.
    pub header: Option<HeaderNote>,
}

/// What the `x-knack` header says of a note: fixed words and names that the catalog made, never a client's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeaderNote {
    /// The tool of this name is left out.
    LeftOut(String),
    /// Nothing is injected, for the reason of this word.
    Off(&'static str),
}

impl Note {
    /// Nothing is injected.
    pub fn off(word: &'static str, text: impl Into<String>) -> Self {
        Self {
            skill: None,
            text: text.into(),
            header: Some(HeaderNote::Off(word)),
        }
    }
}

/// A version that is served, in the words of the Skills APIs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedVersion {
    /// For an upload, the microsecond of its creation, or its number; for another skill, the version that it declares.
    pub word: String,
    /// The id of an uploaded version.
    pub id: Option<String>,
}

/// What becomes of `container.skills`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContainerPlan {
    /// Places in `container.skills` of the entries that are Knack's: to be removed before the request goes upstream.
    pub ours: Vec<usize>,
    /// The versions of these that are served, in the same order; `None`: it has none, or the request names it.
    pub versions: Vec<Option<ServedVersion>>,
    /// Places of the entries that stay.
    pub native: Vec<usize>,
}

/// The injection for one request. `Default` is "nothing": empty texts, no tools.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about one request")]
pub struct Plan {
    /// Text to add to the system prompt; empty: none.
    pub system: Arc<str>,
    /// Tools to add after the client's.
    pub tools: Arc<[Arc<PlannedTool>]>,
    /// Skills whose body is in `system`, in that order.
    pub active: Arc<[Active]>,
    /// Whether `system` and `tools` are the catalog's own, the same allocation for every such request: a caller may cache what it makes of them by pointer.
    pub shared: bool,
    /// What happened that was not asked for.
    pub notes: Vec<Note>,
    /// What becomes of `container.skills`.
    pub container: ContainerPlan,
    /// Names of the skills that the request attaches whole.
    pub attached: Vec<String>,
    /// Whether the request itself names a skill that is served, also one that every request gets.
    pub names_skills: bool,
    /// Whether a `litellm:` skill is active: generated files then go into `_litellm_generated_files`.
    pub litellm: bool,
    /// Whether injection was switched off (header `none`, tool choice, model or token limits). Hidden turns are still expanded.
    pub off: bool,
    /// Bytes of `system` and of each tool's name, description and schema, divided by 4, rounded up.
    pub added_tokens: usize,
}
