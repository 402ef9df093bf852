//! `load_skill`: instructions or one file, and the same again from a reference.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::arguments::error;
use super::types::{CallContext, Decision, LoadReference};
use super::visible::{entry_of, visible};
use crate::catalog::{Catalog, CatalogEntry, SKILL_MD};
use crate::model::ActivationMode;
use crate::plan::{Action, Plan};
use crate::template::{self, FilledTooLarge};
use crate::texts;
use crate::tree::MAX_SKILL_MD_BYTES;

/// Longest filled instructions that a call may load: as long as a SKILL.md without inputs may be.
const MAX_LOADED_BYTES: usize = MAX_SKILL_MD_BYTES;

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
    let text = match instructions_text(plan, entry, &inputs) {
        Ok(text) => text,
        Err(FilledTooLarge { bytes }) => {
            return error(texts::inputs_too_long(&entry.handle, bytes, MAX_LOADED_BYTES));
        }
    };
    Decision::Text {
        text,
        is_error: false,
        loaded: Some(reference(entry, None, inputs)),
    }
}

fn instructions_text(
    plan: &Plan,
    entry: &CatalogEntry,
    inputs: &BTreeMap<String, String>,
) -> Result<String, FilledTooLarge> {
    let bytes = entry.body_bytes(inputs);
    if bytes > MAX_LOADED_BYTES {
        return Err(FilledTooLarge { bytes });
    }
    let body = entry.body(inputs)?;
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
    Ok(texts::loaded(
        &entry.handle,
        skill.version.as_deref(),
        &body,
        &files,
        caller,
        &tools,
    ))
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
        loaded: Some(reference(entry, Some(path.to_owned()), BTreeMap::new())),
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

fn reference(entry: &CatalogEntry, path: Option<String>, inputs: BTreeMap<String, String>) -> LoadReference {
    LoadReference {
        skill: entry.skill.id.to_string(),
        digest: entry.skill.digest.clone(),
        path,
        inputs,
    }
}

/// Makes the text of a remembered load again: byte-equal to the first time, or a line that says that the skill changed or is gone.
/// `plan` only gives the name of `run_skill_tool` in this request.
pub fn reload(reference: &LoadReference, plan: &Plan, catalog: &Catalog) -> String {
    let entry = entry_of(reference, catalog).filter(|entry| entry.skill.digest == reference.digest);
    let Some(entry) = entry else {
        return texts::SKILL_CHANGED.to_owned();
    };
    match &reference.path {
        // A pin may have made it too long since.
        None => instructions_text(plan, entry, &reference.inputs).unwrap_or_else(|_| texts::SKILL_CHANGED.to_owned()),
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::call::tests::{call, planned, said};
    use crate::fixture::{mk_catalog, mk_input, mk_skill};
    use crate::model::Skill;

    #[test]
    fn inputs_that_a_template_repeats_too_often_are_refused_and_a_reference_of_them_is_no_text() {
        let catalog = mk_catalog([Skill {
            inputs: vec![mk_input("text", true)],
            body: "{{text}}".repeat(1_000),
            ..mk_skill("echo", ActivationMode::Listed)
        }]);
        let plan = planned(&catalog, &[], &[], &[]);
        let load = |bytes: usize| {
            let inputs = json!({"skill": "echo", "inputs": {"text": "x".repeat(bytes)}});
            call(&catalog, &plan, &[], "load_skill", &inputs.to_string())
        };
        let fits = MAX_LOADED_BYTES / 1_000;
        let (text, is_error) = said(load(fits));
        assert!(!is_error && text.len() > fits * 1_000);
        let (text, is_error) = said(load(fits + 1));
        assert!(is_error && text.contains("above the limit of 1048576"), "{text}");

        let Decision::Text {
            loaded: Some(mut kept), ..
        } = load(1)
        else {
            panic!("it is loaded")
        };
        kept.inputs.insert("text".to_owned(), "x".repeat(fits + 1));
        assert_eq!(reload(&kept, &plan, &catalog), texts::SKILL_CHANGED);
    }
}
