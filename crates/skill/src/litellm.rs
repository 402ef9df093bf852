//! Skills in the LiteLLM dialect (docs/design/dialects.md#litellm): how a `litellm:` id is disclosed.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::model::{Input, Skill};
use crate::plan::{Action, PlannedTool};
use crate::provider_schema::sent;
use crate::schema::normalize;
use crate::template::is_input_name;
use crate::texts;
use crate::wire_name;

/// A tool's description is cut here, `...` included.
const MAX_DESCRIPTION_BYTES: usize = 1_024;

/// An entry as the Skills API stores it, as far as it is shown to models.
#[derive(Debug, Clone, Copy, Default)]
pub struct StoredSkill<'a> {
    /// `skill_id`.
    pub id: &'a str,
    /// `display_title`.
    pub title: Option<&'a str>,
    /// `description`.
    pub description: Option<&'a str>,
    /// `instructions`.
    pub instructions: Option<&'a str>,
    /// `metadata.parameters`, which replaces the empty schema if it is a mapping with members.
    pub parameters: Option<&'a Value>,
}

impl StoredSkill<'_> {
    /// The text for the model: instructions, else description, else title, else `Skill: <id>`; at most 1,024 characters.
    pub fn tool_description(&self) -> String {
        let given = [self.instructions, self.description, self.title];
        let text = given
            .into_iter()
            .flatten()
            .find(|text| !text.is_empty())
            .map_or_else(|| Cow::Owned(format!("Skill: {}", self.id)), Cow::Borrowed);
        if text.chars().count() <= MAX_DESCRIPTION_BYTES {
            return text.into_owned();
        }
        let kept: String = text.chars().take(MAX_DESCRIPTION_BYTES - 3).collect();
        format!("{kept}...")
    }

    /// The arguments of its tool.
    pub fn tool_schema(&self) -> Value {
        match self.parameters {
            Some(Value::Object(members)) if !members.is_empty() => Value::Object(members.clone()),
            _ => json!({"type": "object", "properties": {}, "required": []}),
        }
    }
}

/// The section of a served skill: its body without frontmatter under a heading; for an entry without Markdown its bare instructions,
/// which may be its body, too.
pub(crate) fn section(skill: &Skill, body: &str) -> String {
    match instructions(skill) {
        Some(instructions) if body.is_empty() || body == instructions.trim() => instructions.to_owned(),
        _ => texts::litellm_section(&skill.title, body),
    }
}

/// The instructions of an entry, which are separate from its SKILL.md.
fn instructions(skill: &Skill) -> Option<&str> {
    skill.extra.get("instructions").and_then(Value::as_str)
}

/// The one tool that represents a served skill, named by the id it was referenced by.
pub(crate) fn tool(skill: &Arc<Skill>, id: &str) -> PlannedTool {
    let metadata = skill.extra.get("metadata");
    let stored = StoredSkill {
        id,
        title: Some(&skill.title),
        description: Some(&skill.description),
        instructions: instructions(skill),
        parameters: metadata.and_then(|metadata| metadata.get("parameters")),
    };
    let action = Action::LitellmSkill {
        skill: Arc::clone(skill),
    };
    let schema = if stored.parameters.is_none() && !skill.inputs.is_empty() {
        inputs_schema(skill)
    } else {
        sent(&normalize(&stored.tool_schema()))
    };
    PlannedTool::new(wire_name::of_stored_id(id), stored.tool_description(), schema, action)
}

/// The arguments of the tool of a template: its inputs. None is required by the schema, since a pin may give it.
fn inputs_schema(skill: &Skill) -> Value {
    let property = |input: &Input| {
        let help = input.description.as_deref().unwrap_or(&input.label);
        (input.name.clone(), json!({"type": "string", "description": help}))
    };
    // Providers take no other names of properties, and no placeholder has one.
    let usable = skill.inputs.iter().filter(|input| is_input_name(&input.name));
    let properties: Map<String, Value> = usable.map(property).collect();
    json!({"type": "object", "properties": properties, "required": []})
}

/// The code tool, last of all.
pub(crate) fn code_tool() -> PlannedTool {
    let (description, schema) = (texts::litellm_code_description(), texts::litellm_code_schema());
    PlannedTool::new(
        texts::LITELLM_CODE_TOOL.to_owned(),
        description,
        schema,
        Action::LitellmCode,
    )
}

/// Whether the code tool is offered for a skill.
pub(crate) fn has_python(skill: &Skill) -> bool {
    skill
        .files
        .keys()
        .any(|path| path.rsplit_once('.').is_some_and(|(_, extension)| extension == "py"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::mk_skill;
    use crate::model::ActivationMode;

    #[test]
    fn parameters_of_a_record_are_sent_as_every_provider_takes_them() {
        let mut skill = mk_skill("fly", ActivationMode::OnRequest);
        let mut shown = |parameters: Value| {
            skill
                .extra
                .insert("metadata".to_owned(), json!({"parameters": parameters}));
            tool(&Arc::new(skill.clone()), "litellm_skill_1").schema
        };
        let plain = json!({"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]});
        assert_eq!(shown(plain.clone()), plain);
        let refused = json!({"properties": {"Nach Ort": {"type": "array"}}, "anyOf": [{"required": ["Nach Ort"]}]});
        assert_eq!(
            shown(refused),
            json!({"type": "object", "properties": {"Nach_Ort": {"type": "array", "items": {}, "description": "Nach Ort"}}})
        );
    }
}
