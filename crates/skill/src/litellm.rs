//! Skills in the LiteLLM dialect (docs/design/dialects.md#litellm): how a `litellm:` id is disclosed, and how its archives are read.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::catalog::SKILL_MD;
use crate::model::{Input, Skill};
use crate::plan::{Action, PlannedTool};
use crate::texts;
use crate::wire_name;

/// A tool's description is cut here, `...` included.
const MAX_DESCRIPTION_BYTES: usize = 1_024;

/// A record as the Skills API stores it, as far as it is shown to models.
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

    /// The prompt section: the archive's Markdown under a heading, else the bare instructions, else nothing.
    pub fn section(&self, archive: Option<&[ArchiveFile<'_>]>) -> Option<String> {
        let text = archive.and_then(content);
        let title = self.title.filter(|title| !title.is_empty()).unwrap_or(self.id);
        let bare = || self.instructions.filter(|text| !text.is_empty()).map(str::to_owned);
        text.map(|text| texts::litellm_section(title, text)).or_else(bare)
    }
}

/// One entry of an archive, in archive order.
#[derive(Debug, Clone, Copy)]
pub struct ArchiveFile<'a> {
    /// Its path as written.
    pub path: &'a str,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// The Markdown of an archive: the first SKILL.md at any depth, else the first README.md, else the first `.md`. Empty files and files
/// that are not UTF-8 are passed over.
fn content<'a>(archive: &[ArchiveFile<'a>]) -> Option<&'a str> {
    let text = |ending: &str| {
        let found = archive.iter().filter(|file| file.path.ends_with(ending));
        found
            .filter_map(|file| std::str::from_utf8(file.bytes).ok())
            .find(|text| !text.is_empty())
    };
    text(SKILL_MD).or_else(|| text("README.md")).or_else(|| text(".md"))
}

/// The files of an archive for the sandbox: the top folder removed, paths normalized; folders, absolute paths, backslashes and what
/// `..` leads out of the folder passed over. A path that two top folders share keeps its top folder in both; of two entries of one
/// path the last counts.
pub fn archive_files(archive: &[ArchiveFile<'_>]) -> BTreeMap<String, Vec<u8>> {
    let kept: Vec<_> = archive
        .iter()
        .filter_map(|file| Some((file, place(file.path)?)))
        .collect();
    let mut tops: BTreeMap<&str, BTreeSet<Option<&str>>> = BTreeMap::new();
    for (_, (top, below)) in &kept {
        tops.entry(below).or_default().insert(*top);
    }
    let files = kept.iter().map(|(file, (top, below))| {
        let is_shared = tops.get(below.as_str()).is_some_and(|tops| tops.len() > 1);
        let path = match top {
            Some(top) if is_shared => format!("{top}/{below}"),
            _ => below.clone(),
        };
        (path, file.bytes.to_vec())
    });
    files.collect()
}

/// The top folder of a path, if it has one, and the rest without `.`, `..` and doubled slashes.
fn place(path: &str) -> Option<(Option<&str>, String)> {
    let (top, below) = path
        .split_once('/')
        .map_or((None, path), |(top, below)| (Some(top), below));
    let is_outside = matches!(top, Some("" | "..")) || below.starts_with('/');
    if is_outside || path.ends_with('/') || path.contains(['\\', '\0']) {
        return None;
    }
    let mut parts = Vec::new();
    for part in below.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            other => parts.push(other),
        }
    }
    (!parts.is_empty()).then(|| (top, parts.join("/")))
}

/// The section of a served skill: its body without frontmatter under a heading; for a record without Markdown its bare instructions.
pub(crate) fn section(skill: &Skill, body: &str) -> String {
    match instructions(skill) {
        Some(instructions) if body.is_empty() => instructions.to_owned(),
        _ => texts::litellm_section(&skill.title, body),
    }
}

/// The instructions of a record, which are separate from its SKILL.md.
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
        stored.tool_schema()
    };
    PlannedTool::new(wire_name::of_stored_id(id), stored.tool_description(), schema, action)
}

/// The arguments of the tool of a template: its inputs. None is required by the schema, since a pin may give it.
fn inputs_schema(skill: &Skill) -> Value {
    let property = |input: &Input| {
        let help = input.description.as_deref().unwrap_or(&input.label);
        (input.name.clone(), json!({"type": "string", "description": help}))
    };
    let properties: Map<String, Value> = skill.inputs.iter().map(property).collect();
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

    #[test]
    fn paths_of_an_archive_are_normalized_and_none_leads_out() {
        let files = |paths: &[&str]| {
            let archive: Vec<_> = paths.iter().map(|path| ArchiveFile { path, bytes: b"x" }).collect();
            archive_files(&archive).into_keys().collect::<Vec<_>>().join(" ")
        };
        for (paths, expected) in [
            (
                &["s/./x.py", "s/a//b.py", "s/a/../c.py", "s/..d/e"][..],
                "..d/e a/b.py c.py x.py",
            ),
            (
                &[
                    "s/../up.py",
                    "../up.py",
                    "/etc/passwd",
                    "s//etc/passwd",
                    "s/a\\b",
                    "s/",
                    "s/.",
                    "s/a/..",
                ],
                "",
            ),
            (&["s/x.py", "s/./x.py", "t/x.py", "x.py"], "s/x.py t/x.py x.py"),
            (&["s/x.py", "s/x.py"], "x.py"),
        ] {
            assert_eq!(files(paths), expected, "{paths:?}");
        }
    }
}
