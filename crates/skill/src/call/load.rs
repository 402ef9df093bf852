//! `load_skill`: instructions or one file, and the same again from a record.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::arguments::error;
use super::types::{CallContext, Decision, LoadRecord};
use super::visible::{entry_of, visible};
use crate::catalog::{Catalog, CatalogEntry, SKILL_MD};
use crate::model::ActivationMode;
use crate::plan::{Action, Plan};
use crate::template;
use crate::texts;

/// Answers `load_skill`.
pub(super) fn load(context: &CallContext<'_>, arguments: &Map<String, Value>) -> Decision {
    let name = arguments.get("skill").and_then(Value::as_str).unwrap_or_default();
    let Some(entry) = visible(context, name) else {
        return error(texts::no_skill(name, &context.catalog.closest(name)));
    };
    if let Some(path) = arguments
        .get("path")
        .and_then(Value::as_str)
        .filter(|path| !path.is_empty())
    {
        return file(entry, path);
    }
    let inputs = arguments
        .get("inputs")
        .and_then(Value::as_object)
        .map(template::given)
        .unwrap_or_default();
    instructions(context.plan, entry, inputs)
}

/// Answers with a skill's instructions.
pub(super) fn instructions(plan: &Plan, entry: &CatalogEntry, inputs: BTreeMap<String, String>) -> Decision {
    let mut values = entry.inputs.clone();
    values.extend(inputs.iter().map(|(name, value)| (name.clone(), value.clone())));
    if template::validate_inputs(&entry.skill.inputs, &values).is_err() {
        return error(texts::inputs_missing(&entry.handle, &entry.skill.inputs));
    }
    let text = instructions_text(plan, entry, &inputs);
    Decision::Text {
        text,
        is_error: false,
        loaded: Some(record(entry, None, inputs)),
    }
}

fn instructions_text(plan: &Plan, entry: &CatalogEntry, inputs: &BTreeMap<String, String>) -> String {
    let skill = &entry.skill;
    let mut tools: Vec<(&str, &str, String)> = Vec::new();
    // Tools of a listed skill are called through run_skill_tool; those of an active one are in the request, except
    // hidden ones.
    for tool in entry
        .offered()
        .filter(|tool| tool.hidden || entry.mode == ActivationMode::Listed)
    {
        tools.push((&tool.name, &tool.description, tool.input_schema.to_string()));
    }
    let tools: Vec<(&str, &str, &str)> = tools
        .iter()
        .map(|(name, text, schema)| (*name, *text, schema.as_str()))
        .collect();
    let caller = plan
        .tools
        .iter()
        .find(|tool| matches!(tool.action, Action::RunSkillTool));
    let caller = caller.map_or(texts::RUN_SKILL_TOOL, |tool| &tool.name);
    let files = texts::more_files(entry.paths());
    texts::loaded(
        &entry.handle,
        skill.version.as_deref(),
        &entry.body(inputs),
        &files,
        caller,
        &tools,
    )
}

fn file(entry: &CatalogEntry, path: &str) -> Decision {
    let path = relative(entry, path);
    let handle = &entry.handle;
    let Some(file) = entry.skill.files.get(path) else {
        return error(texts::file_unknown(handle, path, &texts::more_files(entry.paths())));
    };
    Decision::Text {
        text: file_text(handle, path, &file.bytes),
        is_error: false,
        loaded: Some(record(entry, Some(path.to_owned()), BTreeMap::new())),
    }
}

fn file_text(handle: &str, path: &str, bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => {
            if text.len() <= texts::MAX_RESULT_BYTES {
                return text.to_owned();
            }
            texts::file_too_large(
                handle,
                path,
                text.len(),
                &text[..text.floor_char_boundary(texts::MAX_RESULT_BYTES)],
            )
        }
        _ => texts::file_binary(handle, path, bytes.len()),
    }
}

/// A path inside the skill: models also write `./a` and `skills/<handle>/a`.
fn relative<'a>(entry: &CatalogEntry, path: &'a str) -> &'a str {
    let path = path.trim_start_matches("./");
    let below = path
        .strip_prefix("skills/")
        .and_then(|path| path.strip_prefix(&*entry.handle))
        .and_then(|path| path.strip_prefix('/'));
    below.unwrap_or(path)
}

fn record(entry: &CatalogEntry, path: Option<String>, inputs: BTreeMap<String, String>) -> LoadRecord {
    let id = &entry.skill.id;
    LoadRecord {
        skill: format!("{}/{}", id.namespace, id.name),
        digest: entry.skill.digest.clone(),
        path,
        inputs,
    }
}

/// Makes the text of a remembered load again: byte-equal to the first time, or a line that says that the skill changed or is gone.
/// `plan` only gives the name of `run_skill_tool` in this request.
pub fn reload(record: &LoadRecord, plan: &Plan, catalog: &Catalog) -> String {
    let entry = entry_of(record, catalog).filter(|entry| entry.skill.digest == record.digest);
    let Some(entry) = entry else {
        return texts::SKILL_CHANGED.to_owned();
    };
    match &record.path {
        None => instructions_text(plan, entry, &record.inputs),
        Some(path) if path == SKILL_MD => file_text(&entry.handle, path, entry.skill.document.as_bytes()),
        Some(path) => match entry.skill.files.get(path) {
            Some(file) => file_text(&entry.handle, path, &file.bytes),
            None => texts::SKILL_CHANGED.to_owned(),
        },
    }
}

/// Arguments that are inputs of the skill: what the tool of a `litellm:` skill takes.
pub(super) fn inputs_of(entry: &CatalogEntry, arguments: &Map<String, Value>) -> BTreeMap<String, String> {
    let mut inputs = template::given(arguments);
    inputs.retain(|name, _| entry.skill.inputs.iter().any(|input| input.name == *name));
    inputs
}
