//! Calls that run something: declared tools, model-written code, LiteLLM's code tool.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::arguments::{self, error};
use super::staging::{collide, is_below_skills, is_stageable};
use super::types::ToolRun;
use super::types::{CallContext, Cwd, Decision, Language, Program, Render, RunSpec};
use super::visible::visible;
use super::{command, mounts};
use crate::catalog::{CatalogEntry, ModelCode, Node};
use crate::model::{CallForm, SandboxRequest, Tool};
use crate::plan::ActivationCause;
use crate::texts;

/// LiteLLM's own limit for one run (docs/design/dialects.md#litellm); a runtime may only tighten it.
pub const LITELLM_TIMEOUT_SECONDS: u64 = knack_vocabulary::defaults::MAX_TIMEOUT_SECONDS;

/// `run_skill_tool`.
pub(super) fn skill_tool(context: &CallContext<'_>, arguments: &Map<String, Value>) -> Decision {
    let text = |name: &str| arguments.get(name).and_then(Value::as_str).unwrap_or_default();
    let (name, tool_name) = (text("skill"), text("tool"));
    let Some(entry) = visible(context, name) else {
        return error(texts::no_skill(name, &context.catalog.closest(name)));
    };
    let Some(tool) = entry.skill.tools.iter().find(|tool| tool.name == tool_name) else {
        let names: Vec<&str> = entry.offered().map(|tool| tool.name.as_str()).collect();
        return error(texts::no_tool(&entry.handle, tool_name, &names));
    };
    // Some models write the inner object as a string of JSON.
    let inner = match arguments.get("arguments") {
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
        None => String::new(),
    };
    match arguments::read(&tool.name, &inner, (&tool.input_schema, Some(tool)), context.validate) {
        Ok(inner) => run_tool(context, entry, tool, inner),
        Err(refusal) => refusal,
    }
}

/// A declared tool under its wire name, as the catalog has it now.
pub(super) fn declared(
    context: &CallContext<'_>,
    found: Option<(&CatalogEntry, &Tool)>,
    arguments: Map<String, Value>,
) -> Decision {
    match found {
        Some((entry, tool)) => run_tool(context, entry, tool, arguments),
        None => error(texts::SKILL_CHANGED.to_owned()),
    }
}

fn run_tool(context: &CallContext<'_>, entry: &CatalogEntry, tool: &Tool, arguments: Map<String, Value>) -> Decision {
    let render = match tool.call {
        CallForm::Words => Render::Declared,
        CallForm::Function { retryable } => Render::Function { retryable },
    };
    let tool = match ToolRun::new(&entry.skill, tool, arguments) {
        Ok(tool) => tool,
        Err(refused) => return error(refused),
    };
    if entry.withheld.contains(&tool.tool) {
        let refused = texts::not_configured(&entry.skill.id.name, &tool.tool);
        return error(texts::argument_refused(&refused));
    }
    let settings = context.catalog.settings();
    if let Err(refused) = tool.admit(false, settings.model_code, settings.max_risk) {
        return error(texts::argument_refused(&refused));
    }
    let mount = mounts::of(entry);
    run(RunSpec {
        skill: Some(entry.skill.id.clone()),
        program: Program::Tool(Box::new(tool)),
        cwd: Cwd::Mount(mount.path.clone()),
        mounts: vec![mount],
        staged: Vec::new(),
        sandbox: entry.skill.sandbox.clone(),
        render,
    })
}

/// `run_code`.
pub(super) fn code(context: &CallContext<'_>, tool: &str, arguments: &Map<String, Value>) -> Decision {
    if context.catalog.settings().model_code == ModelCode::Deny {
        return error(texts::MODEL_CODE_DENIED.to_owned());
    }
    let text = |name: &str| {
        arguments
            .get(name)
            .and_then(Value::as_str)
            .filter(|text| !text.trim().is_empty())
    };
    let entry = match text("skill") {
        None => None,
        // Its files are in the work directory of every run.
        Some(name) if context.plan.attached.iter().any(|attached| attached == name.trim()) => None,
        Some(name) => match visible(context, name) {
            Some(entry) => Some(entry),
            None => return error(texts::no_skill(name, &context.catalog.closest(name))),
        },
    };
    let (program, source) = match (text("code"), text("command")) {
        (Some(code), None) => match language(text("language"), context) {
            Ok(language) => (
                Program::Code {
                    language,
                    source: code.to_owned(),
                },
                code,
            ),
            Err(why) => return error(texts::not_executable(&why)),
        },
        (None, Some(line)) => match command::split(line) {
            Ok(words) => (Program::Argv(words), line),
            Err(why) => return error(texts::not_executable(&why)),
        },
        _ => return error(texts::one_program(tool)),
    };
    run(RunSpec {
        skill: entry.map(|entry| entry.skill.id.clone()),
        mounts: mounts::for_code(context, entry, source),
        program,
        cwd: Cwd::Work,
        staged: Vec::new(),
        sandbox: entry.map(|entry| entry.skill.sandbox.clone()).unwrap_or_default(),
        render: Render::Code,
    })
}

fn language(word: Option<&str>, context: &CallContext<'_>) -> Result<Language, String> {
    match word.map_or(Some(Language::Python), Language::from_word) {
        Some(Language::Python) => Ok(Language::Python),
        Some(Language::Node) if context.catalog.settings().node == Node::Present => Ok(Language::Node),
        Some(Language::Node) => Err("this runtime has no node; write Python".to_owned()),
        None => Err("language is neither \"python\" nor \"node\"".to_owned()),
    }
}

/// `litellm_code_execution`: Python with the skills' files in the work directory itself, as that dialect's scripts expect.
pub(super) fn litellm_code(context: &CallContext<'_>, arguments: &Map<String, Value>) -> Decision {
    if context.catalog.settings().model_code == ModelCode::Deny {
        return error(texts::MODEL_CODE_DENIED.to_owned());
    }
    let source = arguments
        .get("code")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    let ours = context
        .plan
        .active
        .iter()
        .filter(|active| active.why == ActivationCause::Litellm);
    let entries: Vec<&CatalogEntry> = ours
        .filter_map(|active| context.catalog.get(&active.skill.id))
        .collect();
    let first = entries.first();
    let mut staged: Vec<(String, Arc<[u8]>)> = Vec::new();
    for entry in &entries {
        for (path, file) in &entry.skill.files {
            // The first skill has a shared path; each skill's own files are also at skills/<name>/, which has those
            // that a work directory does not take: dot files configure programs, and `skills` is that folder itself.
            let is_free = || !staged.iter().any(|(known, _)| collide(known, path));
            if is_stageable(path) && !is_below_skills(path) && is_free() {
                staged.push((path.clone(), Arc::clone(&file.bytes)));
            }
        }
    }
    let asked = first.map(|entry| entry.skill.sandbox.clone()).unwrap_or_default();
    run(RunSpec {
        skill: first.map(|entry| entry.skill.id.clone()),
        program: Program::Code {
            language: Language::Python,
            source,
        },
        cwd: Cwd::Work,
        mounts: entries.iter().map(|entry| mounts::of(entry)).collect(),
        staged,
        sandbox: SandboxRequest {
            timeout_seconds: asked.timeout_seconds.or(Some(LITELLM_TIMEOUT_SECONDS)),
            ..asked
        },
        render: Render::Litellm,
    })
}

fn run(spec: RunSpec) -> Decision {
    Decision::Run(Box::new(spec))
}
