//! Adapters of `skillmd.json`: the ops `afl.*` of Agent Flow Lite.

use std::collections::{BTreeMap, BTreeSet};

use knack_skill::agent_flow::{self, AgentFlowSkill, ApiError, Existing, Status};
use knack_skill::finding::Finding;
use knack_skill::names;
use serde_json::{Map, Value, json};

use super::template::input_json;
use crate::registry::{Failure, Op, Outcome};

/// The ops of this file.
pub(crate) const OPS: &[Op] = &[
    Op::new("skillmd", "afl.name", name),
    Op::new("skillmd", "afl.normalize", normalize),
    Op::new("skillmd", "afl.size", size),
    Op::new("skillmd", "afl.placeholders", placeholders),
    Op::new("skillmd", "afl.parse", parse),
    Op::new("skillmd", "afl.create", create),
    Op::new("skillmd", "afl.update", update),
    Op::new("skillmd", "afl.get", get),
    Op::new("skillmd", "afl.list", list),
    Op::new("skillmd", "afl.http_status", http_status),
    Op::new("skillmd", "afl.error_body", error_body),
    Op::new("skillmd", "afl.create_http", create_http),
    Op::new("skillmd", "afl.run_http", run_http),
];

fn text<'a>(input: &'a Value, key: &str) -> &'a str {
    input[key].as_str().unwrap_or_default()
}

fn failure(error: ApiError) -> Failure {
    let failure = Failure::new(error.message)
        .with("field", error.field)
        .with("http", error.status.code());
    if error.names.is_empty() {
        failure
    } else {
        failure.with("names", error.names)
    }
}

fn refused(finding: Finding) -> Failure {
    failure(finding.into())
}

fn name(input: &Value) -> Outcome {
    match names::check(text(input, "name")) {
        Ok(()) => Ok("valid".into()),
        Err(kind) => Err(Failure::new(names::rule(kind)).with("field", "name").with("http", 400)),
    }
}

fn normalize(input: &Value) -> Outcome {
    Ok(names::normalize(text(input, "name")).into())
}

fn size(input: &Value) -> Outcome {
    agent_flow::check_size(text(input, "content")).map_err(refused)?;
    Ok("ok".into())
}

fn placeholders(input: &Value) -> Outcome {
    let declared: BTreeSet<&str> = input["inputs"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    agent_flow::check_placeholders(text(input, "prompt"), &declared).map_err(failure)?;
    Ok("ok".into())
}

fn parse(input: &Value) -> Outcome {
    let parsed = agent_flow::parse(text(input, "content")).map_err(refused)?;
    Ok(json!({"frontmatter": parsed.members, "body": parsed.body}))
}

fn create(input: &Value) -> Outcome {
    let existing: BTreeMap<String, Existing> = members(&input["existing"])
        .into_iter()
        .map(|(folder, _)| match folder.strip_suffix('/') {
            Some(empty) => (empty.to_owned(), Existing::EmptyFolder),
            None => (folder, Existing::Skill),
        })
        .collect();
    let user = input["user_id"].as_str();
    agent_flow::create(text(input, "name"), text(input, "content"), user, &existing)
        .map(skill_json)
        .map_err(failure)
}

fn update(input: &Value) -> Outcome {
    let exists = !input["current"].is_null();
    agent_flow::update(text(input, "name"), exists, text(input, "content"))
        .map(skill_json)
        .map_err(failure)
}

fn get(input: &Value) -> Outcome {
    let stored = input["folder"].as_str();
    let name = input["name"].as_str().or(stored).unwrap_or_default();
    let content = stored.and_then(|_| input["content"].as_str());
    agent_flow::get(name, content).map(skill_json).map_err(failure)
}

fn list(input: &Value) -> Outcome {
    let skills = input["skills"].as_array().into_iter().flatten();
    let stored = skills.map(|skill| (text(skill, "folder"), text(skill, "content")));
    Ok(json!(agent_flow::list(stored, input["user_id"].as_str())))
}

/// The cases give a message; the product has classes. These are the messages of each class.
fn http_status(input: &Value) -> Outcome {
    let message = text(input, "message");
    let about_a_skill = message.starts_with("Skill ");
    let status = match message {
        _ if about_a_skill && message.ends_with(" not found") => Status::NotFound,
        _ if about_a_skill && message.ends_with(" already exists") => Status::Conflict,
        _ if about_a_skill && message.contains(" conflicts with existing skill ") => Status::Conflict,
        _ => Status::Invalid,
    };
    Ok(status.code().into())
}

fn error_body(input: &Value) -> Outcome {
    let error = ApiError {
        status: Status::Invalid,
        field: text(&input["error"], "field").to_owned(),
        message: text(&input["error"], "message").to_owned(),
        names: Vec::new(),
    };
    Ok(answer(&error))
}

fn create_http(input: &Value) -> Outcome {
    let created = agent_flow::parse_create_body(&input["body"])
        .and_then(|(name, content)| agent_flow::create(name, content, None, &BTreeMap::new()));
    Ok(match created {
        Ok(skill) => json!({"http": 201, "body": skill_json(skill)}),
        Err(error) => answer(&error),
    })
}

fn run_http(input: &Value) -> Outcome {
    if let Err(error) = agent_flow::parse_run_body(&input["body"]) {
        return Ok(answer(&error));
    }
    // The store of these cases is empty.
    match agent_flow::get(input["name"].as_str().unwrap_or("nonexistent"), None) {
        Ok(_) => Ok(json!({"http": 200})),
        Err(error) => Ok(answer(&error)),
    }
}

fn answer(error: &ApiError) -> Value {
    json!({"http": error.status.code(), "body": error.body()})
}

fn members(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

fn skill_json(skill: AgentFlowSkill) -> Value {
    let inputs = skill
        .inputs
        .map(|inputs| inputs.iter().map(input_json).collect::<Vec<_>>());
    let model = skill
        .model
        .map(|model| json!({"temperature": model.temperature, "max_tokens": model.max_tokens}));
    json!({
        "name": skill.name, "description": skill.description, "license": skill.license, "metadata": skill.metadata,
        "inputs": inputs, "knowledge_base": skill.knowledge_base, "model": model, "user_id": skill.user_id,
        "prompt": skill.prompt,
    })
}
