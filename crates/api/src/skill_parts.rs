//! Tools and inputs of a `Skill`.

use knack_skill::model::{Input, InputKind, Parameter};
use knack_skill::schema_text::SchemaText;
use knack_skill::tools::ToolDeclaration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::risk::RiskWord;
use super::shared::{any_object, is_false};

/// A declared tool: a command of the skill that the model calls by name, or a file whose functions are such tools.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolSpec {
    /// Name; the model sees `<skill>__<name>`. Required beside `command`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(min = 1, max = 64))]
    pub name: String,
    /// What it does and returns, for the model.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 4096))]
    pub description: String,
    /// Program and arguments; no shell. The first is an interpreter or a path in the skill's folder.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 64), inner(length(min = 1, max = 1024)))]
    pub command: Vec<String>,
    /// JSON Schema of the arguments, of at most 64 KiB and 4,096 values; takes precedence over `parameters`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_object")]
    pub input_schema: Option<SchemaText>,
    /// Arguments in declared order: the first is positional if required, the others are `--name value`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub parameters: Vec<ParameterSpec>,
    /// Environment variables that it requests; values come only from grants.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(min = 1, max = 256)))]
    pub env: Vec<String>,
    /// Callable only through `run_skill_tool`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub hidden: bool,
    /// How much damage a call can do; a runtime offers and runs tools up to its `maxRisk` only. Default: `Safe`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk: Option<RiskWord>,
    /// A Python file in the skill's folder: each of its functions is a tool, as declared in `python-tools.lock`. Set
    /// instead of `name` and `command`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub python: Option<String>,
}

/// One argument of a declared tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ParameterSpec {
    /// Name in the model's arguments.
    #[schemars(length(min = 1, max = 64))]
    pub name: String,
    /// Text for the model.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 4096))]
    pub description: String,
    /// Whether it must be given. Default: true, as in HUSK.
    #[serde(default = "required_by_default")]
    pub required: bool,
}

const fn required_by_default() -> bool {
    true
}

/// A template input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InputSpec {
    /// Name used in `{{name}}`.
    #[schemars(length(min = 1, max = 64))]
    pub name: String,
    /// Shown name. Default: the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub label: Option<String>,
    /// How its value is typed in. Default: `text`.
    #[serde(default, rename = "type")]
    pub kind: InputType,
    /// Whether a value must be given.
    #[serde(default, skip_serializing_if = "is_false")]
    pub required: bool,
    /// Value used when none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16384))]
    pub default: Option<String>,
    /// Help text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub description: Option<String>,
}

/// Widget type of an input.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum InputType {
    /// One line.
    #[default]
    Text,
    /// Several lines.
    Textarea,
}

impl From<&ToolSpec> for ToolDeclaration {
    fn from(tool: &ToolSpec) -> Self {
        Self {
            name: tool.name.clone(),
            description: tool.description.clone(),
            command: tool.command.clone(),
            parameters: tool
                .parameters
                .iter()
                .map(|parameter| Parameter {
                    name: parameter.name.clone(),
                    description: parameter.description.clone(),
                    required: parameter.required,
                })
                .collect(),
            input_schema: tool.input_schema.as_ref().map(SchemaText::value),
            env: tool.env.clone(),
            hidden: tool.hidden,
            risk: tool.risk.map(Into::into),
            python: tool.python.as_deref().map(knack_skill::functions::path),
            ..Self::default()
        }
    }
}

impl From<&InputSpec> for Input {
    fn from(input: &InputSpec) -> Self {
        Self {
            name: input.name.clone(),
            label: input.label.clone().unwrap_or_else(|| input.name.clone()),
            kind: match input.kind {
                InputType::Text => InputKind::Text,
                InputType::Textarea => InputKind::Textarea,
            },
            required: input.required,
            default: input.default.clone(),
            description: input.description.clone(),
        }
    }
}
