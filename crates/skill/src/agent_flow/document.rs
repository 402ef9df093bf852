//! SKILL.md of Agent Flow Lite: frontmatter and prompt.

use serde_json::{Map, Value};

use crate::finding::Finding;
use crate::frontmatter::{self, Delimiters, Split};
use crate::inputs::{self, is_falsy};
use crate::model::Input;
use crate::problem::ProblemKind;
use crate::yaml::{self, Content, Node};

/// Largest content in bytes of UTF-8 that create and update take.
pub const MAX_CONTENT_BYTES: usize = 51_200;
const MAX_DESCRIPTION_CHARS: usize = 1_024;
const MAX_LICENSE_CHARS: usize = 64;
const MAX_ID_CHARS: usize = 256;
const MAX_TEMPERATURE: f64 = 2.0;
pub(super) const DEFAULT_TEMPERATURE: f64 = 0.7;
const MAX_TOKENS: u64 = 8_192;
const DEFAULT_MAX_TOKENS: u64 = 2_000;

/// A parsed text before its fields are read.
#[derive(Debug, Clone, PartialEq)]
pub struct Frontmatter {
    /// Members; empty where there is no frontmatter.
    pub members: Map<String, Value>,
    /// Trimmed body.
    pub body: String,
}

/// A stored skill.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentFlowSkill {
    /// The folder's name.
    pub name: String,
    /// Defaults to the name.
    pub description: String,
    /// At most 64 characters.
    pub license: Option<String>,
    /// Any mapping.
    pub metadata: Option<Map<String, Value>>,
    /// `None` if none is declared.
    pub inputs: Option<Vec<Input>>,
    /// Knowledge base to search.
    pub knowledge_base: Option<String>,
    /// `None` if the frontmatter has no model mapping.
    pub model: Option<ModelConfig>,
    /// Owner.
    pub user_id: Option<String>,
    /// The template.
    pub prompt: String,
}

/// Model settings with their defaults filled in; an explicit null stays none.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    /// 0 to 2, default 0.7.
    pub temperature: Option<f64>,
    /// 1 to 8192, default 2000.
    pub max_tokens: Option<u64>,
}

/// Whether the content is small enough for create and update.
pub fn check_size(content: &str) -> Result<(), Finding> {
    if content.len() <= MAX_CONTENT_BYTES {
        return Ok(());
    }
    let message = format!(
        "file size {} bytes exceeds the limit of {MAX_CONTENT_BYTES} bytes",
        content.len()
    );
    Err(Finding::refused(
        ProblemKind::FileTooLarge,
        "content",
        message,
        "split the skill or move text to other files",
    ))
}

/// Splits and reads the YAML. A text without a closed frontmatter, or with a byte order mark, is all body.
pub fn parse(content: &str) -> Result<Frontmatter, Finding> {
    if content.trim().is_empty() {
        let message = "Skill content is empty";
        return Err(Finding::refused(
            ProblemKind::BodyEmpty,
            "content",
            message,
            "write frontmatter and a prompt",
        ));
    }
    let found = if content.starts_with('\u{feff}') {
        None
    } else {
        match frontmatter::split(content, Delimiters::Lenient) {
            Split::Found { yaml, body } => Some((yaml, body)),
            Split::Absent { .. } | Split::Unclosed { .. } => None,
        }
    };
    let Some((yaml, body)) = found else {
        return Ok(Frontmatter {
            members: Map::new(),
            body: content.trim().to_owned(),
        });
    };
    let yaml = yaml.trim_end();
    let mut node = yaml::parse(yaml).map_err(|error| {
        let message = format!("Invalid YAML frontmatter: {}", error.message);
        Finding::refused(
            ProblemKind::YamlInvalid,
            "frontmatter",
            message,
            "put texts with colons in quotes",
        )
    })?;
    strip_last_line_end(&mut node, yaml);
    let members = match (&node.content, node.to_json()) {
        (Content::Mapping(_), Value::Object(members)) => members,
        (_, Value::Null) => Map::new(),
        _ => {
            let message = "frontmatter must be a YAML mapping";
            let kind = ProblemKind::FrontmatterNotMapping;
            return Err(Finding::refused(kind, "frontmatter", message, "write key: value lines"));
        }
    };
    Ok(Frontmatter {
        members,
        body: body.to_owned(),
    })
}

/// Agent Flow strips the text between the lines before it reads it, so a block text at its end has no line end.
fn strip_last_line_end(node: &mut Node, yaml: &str) {
    match &mut node.content {
        Content::Mapping(members) => {
            if let Some((_, last)) = members.last_mut() {
                strip_last_line_end(last, yaml);
            }
        }
        Content::Sequence(items) => {
            if let Some(last) = items.last_mut() {
                strip_last_line_end(last, yaml);
            }
        }
        Content::Scalar(Value::String(text)) => {
            let written = node.span.and_then(|(from, to)| yaml.get(from..to)).unwrap_or_default();
            // Text in quotes, and what an alias stands for, ends where it says.
            if !written.starts_with(['"', '\'', '*']) {
                text.truncate(text.trim_end_matches('\n').len());
            }
        }
        Content::Scalar(_) => {}
    }
}

/// Reads the fields. Findings that are refused mean that the dialect does not take the file.
pub fn read(name: &str, frontmatter: Frontmatter) -> (AgentFlowSkill, Vec<Finding>) {
    let mut fields = Fields {
        members: &frontmatter.members,
        findings: Vec::new(),
    };
    let is_described = fields.members.get("description").is_some_and(|text| !is_falsy(text));
    let description = is_described
        .then(|| fields.text("description", MAX_DESCRIPTION_CHARS))
        .flatten();
    let license = fields.text("license", MAX_LICENSE_CHARS);
    let metadata = fields.metadata();
    let knowledge_base = fields.text("knowledge_base", MAX_ID_CHARS);
    let user_id = fields.text("user_id", MAX_ID_CHARS);
    let model = fields.model();
    let mut findings = fields.findings;
    let declared = frontmatter.members.get("inputs").filter(|inputs| !is_falsy(inputs));
    let (inputs, problems) = inputs::read(declared.unwrap_or(&Value::Null));
    findings.extend(problems);
    let skill = AgentFlowSkill {
        name: name.to_owned(),
        description: description.unwrap_or_else(|| name.to_owned()),
        license,
        metadata,
        inputs: (!inputs.is_empty()).then_some(inputs),
        knowledge_base,
        model,
        user_id,
        prompt: frontmatter.body,
    };
    (skill, findings)
}

struct Fields<'a> {
    members: &'a Map<String, Value>,
    findings: Vec<Finding>,
}

impl Fields<'_> {
    fn refuse(&mut self, field: &str, message: String, help: &str) {
        self.findings
            .push(Finding::refused(ProblemKind::FieldInvalid, field, message, help));
    }

    fn text(&mut self, key: &str, max_chars: usize) -> Option<String> {
        match self.members.get(key)? {
            Value::Null => None,
            Value::String(text) => {
                let chars = text.chars().count();
                if chars > max_chars {
                    self.refuse(
                        key,
                        format!("{key} has {chars} characters, more than {max_chars}"),
                        "shorten it",
                    );
                }
                Some(text.clone())
            }
            other => {
                let text = inputs::scalar_text(other);
                self.refuse(key, format!("{key} must be text"), "put it in quotes");
                text
            }
        }
    }

    fn metadata(&mut self) -> Option<Map<String, Value>> {
        match self.members.get("metadata")? {
            Value::Null => None,
            Value::Object(members) => Some(members.clone()),
            _ => {
                self.refuse(
                    "metadata",
                    "metadata must be a mapping".to_owned(),
                    "write key: value lines under it",
                );
                None
            }
        }
    }

    /// A mapping that is not empty; a string is ignored, as the format says.
    fn model(&mut self) -> Option<ModelConfig> {
        let members = self.members;
        let Some(Value::Object(model)) = members.get("model") else {
            return None;
        };
        if model.is_empty() {
            return None;
        }
        Some(model_config(model, |field, message, help| {
            self.refuse(field, message, help);
        }))
    }
}

/// The settings of a mapping that is not empty; what is out of range is passed to `refuse` as field, message and
/// remedy, and is left out.
pub(super) fn model_config(model: &Map<String, Value>, mut refuse: impl FnMut(&str, String, &str)) -> ModelConfig {
    let temperature = match model.get("temperature") {
        None => Some(DEFAULT_TEMPERATURE),
        Some(value) => temperature(value).unwrap_or_else(|message| {
            refuse("model.temperature", message, "write a number from 0 to 2");
            None
        }),
    };
    let max_tokens = match model.get("max_tokens") {
        None => Some(DEFAULT_MAX_TOKENS),
        Some(value) => max_tokens(value).unwrap_or_else(|message| {
            refuse("model.max_tokens", message, "write a whole number from 1 to 8192");
            None
        }),
    };
    ModelConfig {
        temperature,
        max_tokens,
    }
}

fn temperature(value: &Value) -> Result<Option<f64>, String> {
    let number = match value {
        Value::Null => return Ok(None),
        Value::String(text) => text.trim().parse().ok(),
        other => other.as_f64(),
    };
    match number {
        Some(number) if (0.0..=MAX_TEMPERATURE).contains(&number) => Ok(Some(number)),
        Some(_) => Err("temperature is out of range".to_owned()),
        None => Err("temperature must be a number".to_owned()),
    }
}

pub(super) fn max_tokens(value: &Value) -> Result<Option<u64>, String> {
    let number = match value {
        Value::Null => return Ok(None),
        Value::String(text) => text.trim().parse().ok(),
        other => inputs::whole(other),
    };
    match number {
        Some(number) if (1..=MAX_TOKENS).contains(&number) => Ok(Some(number)),
        Some(_) => Err("max_tokens is out of range".to_owned()),
        None => Err("max_tokens must be a whole number".to_owned()),
    }
}
