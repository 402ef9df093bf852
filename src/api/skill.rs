//! `kind: Skill`.

use std::collections::BTreeMap;

use knack_skill::model::{ActivationMode, Input, InputKind, Parameter};
use knack_skill::tools::ToolDeclaration;
use serde::Deserialize;
use serde_json::Value;

use super::manifest::ObjectMeta;

/// A `Skill` object as written.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SkillManifest {
    /// `knack.dev/v1alpha1`.
    pub api_version: String,
    /// `Skill`.
    pub kind: String,
    /// Identity and labels.
    pub metadata: ObjectMeta,
    /// What is wanted.
    pub spec: SkillSpec,
    /// Written by the controller; ignored on input.
    #[serde(default)]
    pub status: Option<Value>,
}

/// Desired state of a skill. What is left out comes from the frontmatter of SKILL.md.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SkillSpec {
    /// Where the files come from.
    pub source: Source,
    /// Semantic version; must equal the frontmatter's if both are set.
    #[serde(default)]
    pub version: Option<String>,
    /// When it reaches the model.
    #[serde(default)]
    pub activation: Option<Activation>,
    /// Takes the skill out of service without deleting it.
    #[serde(default)]
    pub suspend: bool,
    /// Declared tools; replace those of the frontmatter.
    #[serde(default)]
    pub tools: Option<Vec<ToolSpec>>,
    /// Template inputs; replace those of the frontmatter.
    #[serde(default)]
    pub inputs: Option<Vec<InputSpec>>,
    /// Limits that the skill asks for; the runtime caps them.
    #[serde(default)]
    pub sandbox: Option<SkillSandbox>,
    /// Which runtimes may serve it. Cluster only.
    #[serde(default)]
    pub allowed_runtimes: Option<Value>,
}

/// Where the files come from: exactly one member besides `path`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Source {
    /// Files in the object itself.
    #[serde(default)]
    pub inline: Option<InlineSource>,
    /// Files in a ConfigMap. Cluster only.
    #[serde(default)]
    pub config_map: Option<Value>,
    /// Files in an archive behind a URL. Cluster only.
    #[serde(default)]
    pub archive: Option<Value>,
    /// Directory inside the source that holds SKILL.md.
    #[serde(default)]
    pub path: Option<String>,
}

/// Files in the object itself.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InlineSource {
    /// Text files by path.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// Other files by path, base64.
    #[serde(default)]
    pub binary_files: BTreeMap<String, String>,
}

/// When a skill reaches the model.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Activation {
    /// The mode; the frontmatter's or `Listed` when absent.
    #[serde(default)]
    pub mode: Option<ActivationWord>,
    /// Tags that AUTO scoring matches; replace those of the frontmatter.
    #[serde(default)]
    pub tags: Option<Vec<String>>,
}

/// The enum words of the API (`off` and `on` are YAML booleans and therefore not among them).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum ActivationWord {
    /// See [`ActivationMode::Never`].
    Never,
    /// See [`ActivationMode::OnRequest`].
    OnRequest,
    /// See [`ActivationMode::Listed`].
    Listed,
    /// See [`ActivationMode::Auto`].
    Auto,
    /// See [`ActivationMode::Always`].
    Always,
}

impl From<ActivationWord> for ActivationMode {
    fn from(word: ActivationWord) -> Self {
        match word {
            ActivationWord::Never => Self::Never,
            ActivationWord::OnRequest => Self::OnRequest,
            ActivationWord::Listed => Self::Listed,
            ActivationWord::Auto => Self::Auto,
            ActivationWord::Always => Self::Always,
        }
    }
}

/// A declared tool: a command of the skill that the model calls by name.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ToolSpec {
    /// Name; the model sees `<skill>__<name>`.
    pub name: String,
    /// What it does and returns, for the model.
    #[serde(default)]
    pub description: String,
    /// Program and arguments; no shell. The first is an interpreter or a path in the skill's folder.
    pub command: Vec<String>,
    /// JSON Schema of the arguments; wins over `parameters`.
    #[serde(default)]
    pub input_schema: Option<Value>,
    /// Arguments in declared order: the first is positional if required, the others are `--name value`.
    #[serde(default)]
    pub parameters: Vec<ParameterSpec>,
    /// Environment names it asks for; values come from grants only.
    #[serde(default)]
    pub env: Vec<String>,
    /// Callable through `run_skill_tool` only.
    #[serde(default)]
    pub hidden: bool,
}

/// One argument of a declared tool.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ParameterSpec {
    /// Name in the model's arguments.
    pub name: String,
    /// Text for the model.
    #[serde(default)]
    pub description: String,
    /// Whether it must be given; true when absent, as in HUSK.
    #[serde(default = "required_by_default")]
    pub required: bool,
}

const fn required_by_default() -> bool {
    true
}

/// A template input.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InputSpec {
    /// Name used in `{{name}}`.
    pub name: String,
    /// Shown name; the name when absent.
    #[serde(default)]
    pub label: Option<String>,
    /// `text` or `textarea`.
    #[serde(default, rename = "type")]
    pub kind: InputType,
    /// Whether a value must be given.
    #[serde(default)]
    pub required: bool,
    /// Value used when none is given.
    #[serde(default)]
    pub default: Option<String>,
    /// Help text.
    #[serde(default)]
    pub description: Option<String>,
}

/// Widget type of an input.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
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
            input_schema: tool.input_schema.clone(),
            env: tool.env.clone(),
            hidden: tool.hidden,
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

/// What a skill asks of its sandbox.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SkillSandbox {
    /// Container image. Cluster only.
    #[serde(default)]
    pub image: Option<String>,
    /// Wall-clock limit of one run, seconds.
    #[serde(default)]
    pub timeout_seconds: Option<u64>,
    /// Cap of stdout and of stderr, bytes.
    #[serde(default)]
    pub max_output_bytes: Option<u64>,
    /// Kubernetes resources; `limits.memory` binds on a laptop too.
    #[serde(default)]
    pub resources: Option<Resources>,
}

/// Kubernetes resource requirements, as far as a sandbox reads them.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Resources {
    /// Hard limits, Kubernetes quantities.
    #[serde(default)]
    pub limits: BTreeMap<String, Value>,
    /// Requests. Cluster only.
    #[serde(default)]
    pub requests: BTreeMap<String, Value>,
}

impl Resources {
    /// `limits.memory` in bytes; the error names the field and the accepted form.
    pub fn memory_bytes(&self) -> Result<Option<u64>, String> {
        let Some(value) = self.limits.get("memory") else {
            return Ok(None);
        };
        let text = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
        quantity_bytes(&text).map(Some).ok_or_else(|| {
            format!("resources.limits.memory: {text:?} is not a Kubernetes quantity of bytes; write for example 256Mi")
        })
    }
}

/// A Kubernetes quantity as whole bytes: a decimal number with a suffix of `k M G T` (powers of 1000) or `Ki Mi Gi Ti`.
fn quantity_bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor: u64 = match &text[digits.len()..] {
        "" => 1,
        "k" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_kubernetes_quantities() {
        for (text, bytes) in [
            ("256Mi", Some(268_435_456)),
            ("1G", Some(1_000_000_000)),
            ("12", Some(12)),
            ("1.5Gi", None),
            ("x", None),
            ("9999999999Ti", None),
        ] {
            assert_eq!(quantity_bytes(text), bytes, "{text}");
        }
    }
}
