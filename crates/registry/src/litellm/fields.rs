//! The fields of a LiteLLM entry that an uploaded skill does not have: its id, and those that are not files.

use knack_skill::ids::UPLOADED;
use knack_skill::model::Skill;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use uuid::Uuid;

/// How ids of entries begin.
pub(crate) const LITELLM_PREFIX: &str = "litellm_skill_";
/// The fields of an entry that are not files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiteLlmFields {
    pub(super) description: Option<String>,
    pub(super) instructions: Option<String>,
    pub(super) metadata: Option<Map<String, Value>>,
    pub(super) file_name: Option<String>,
    pub(super) file_type: Option<String>,
}

impl LiteLlmFields {
    /// Whether there are no files: the instructions are all that there is.
    pub fn is_bare(&self) -> bool {
        self.file_name.is_none()
    }

    /// Shows a skill to models as LiteLLM shows the entry: by its title, its instructions, and its own schema.
    pub(crate) fn apply(&self, title: Option<&String>, skill: &mut Skill) {
        if let Some(title) = title {
            skill.title.clone_from(title);
        }
        if let Some(instructions) = &self.instructions {
            skill
                .extra
                .insert("instructions".to_owned(), instructions.clone().into());
            // Records that were stored before have them beside an empty SKILL.md.
            if self.is_bare() && skill.body.is_empty() {
                instructions.trim().clone_into(&mut skill.body);
            }
        }
        if let Some(parameters) = self.metadata.as_ref().and_then(|metadata| metadata.get("parameters")) {
            let metadata = skill.extra.entry("metadata").or_insert_with(|| json!({}));
            if let Some(metadata) = metadata.as_object_mut() {
                metadata.insert("parameters".to_owned(), parameters.clone());
            }
        }
    }
}

/// The id under which LiteLLM's clients know a skill, by the one that it has here; the same of every version.
pub fn litellm_id(id: &str) -> String {
    let bare = id.strip_prefix(UPLOADED).unwrap_or(id);
    let uuid = Uuid::try_parse(bare).map(|uuid| uuid.hyphenated().to_string());
    format!("{LITELLM_PREFIX}{}", uuid.as_deref().unwrap_or(bare))
}

/// The id of a skill that LiteLLM's clients know by another; one that no skill has, if it is none.
pub(super) fn of_shown(id: &str) -> String {
    if id.starts_with(UPLOADED) {
        return id.to_owned();
    }
    let bare = id.strip_prefix(LITELLM_PREFIX).unwrap_or_default();
    let found = Uuid::try_parse(bare).map(|uuid| format!("{UPLOADED}{}", uuid.simple()));
    // One spelling: the id that was shown.
    found.ok().filter(|found| litellm_id(found) == id).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use knack_skill::model::{SkillFile, SkillRef};
    use knack_skill::problem::Profile;
    use knack_skill::{LoadInput, SpecOverrides, load};

    use super::*;
    use crate::Files;

    #[test]
    fn instructions_are_the_body_of_an_entry_without_files() {
        for (file_name, body, expected) in [
            (None, "", "Fly."),
            (None, "Fly.", "Fly."),
            (None, "Swim.", "Swim."),
            (Some("word.zip"), "", ""),
        ] {
            let file = SkillFile {
                bytes: format!("---\nname: word\ndescription: d\n---\n{body}\n")
                    .into_bytes()
                    .into(),
                executable: false,
            };
            let loaded = load(LoadInput {
                id: SkillRef {
                    namespace: "team".to_owned(),
                    name: "word".to_owned(),
                },
                files: Files::from([("SKILL.md".to_owned(), file)]),
                overrides: SpecOverrides::default(),
                profile: Profile::Load,
            });
            let mut skill = loaded.skill.unwrap();
            let fields = LiteLlmFields {
                description: None,
                instructions: Some("Fly.\n".to_owned()),
                metadata: None,
                file_name: file_name.map(ToOwned::to_owned),
                file_type: None,
            };
            fields.apply(None, &mut skill);
            assert_eq!(skill.body, expected, "{file_name:?} {body:?}");
            // The form of LiteLLM shows them as they were sent.
            assert_eq!(skill.extra["instructions"], "Fly.\n");
        }
    }

    #[test]
    fn an_id_is_the_same_uuid_in_one_spelling() {
        let (ours, theirs) = (
            "skill_knack_0199a7c4a3cd7d53a0f6f0c1f9a2b3c4",
            "litellm_skill_0199a7c4-a3cd-7d53-a0f6-f0c1f9a2b3c4",
        );
        assert_eq!((litellm_id(ours).as_str(), of_shown(theirs).as_str()), (theirs, ours));
        let upper = theirs.replace("a7c4", "A7C4");
        for id in [
            "litellm_skill_0199a7c4a3cd7d53a0f6f0c1f9a2b3c4",
            &upper,
            "litellm_skill_",
            "skill_1",
            "",
        ] {
            assert_eq!(of_shown(id), "", "{id}");
        }
    }
}
