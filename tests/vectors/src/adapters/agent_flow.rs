//! Adapters of `skillmd.json`: the ops `afl.*` of Agent Flow Lite.

use std::collections::BTreeSet;

use http::Method;
use knack_skill::agent_flow::{self, AgentFlowSkill, ApiError, Status};
use knack_skill::finding::Finding;
use knack_skill::names;
use serde_json::{Map, Value, json};

use super::skills_api::{Api, owner};
use super::template::input_json;
use crate::facts;
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

/// The API's path.
const SKILLS: &str = "/api/v1/skills";

fn text<'a>(input: &'a Value, key: &str) -> &'a str {
    input[key].as_str().unwrap_or_default()
}

fn failure(error: ApiError) -> Failure {
    let failure = Failure::new(error.message)
        .with("field", error.field)
        .with("http", status_of(error.status));
    if error.names.is_empty() {
        failure
    } else {
        failure.with("names", error.names)
    }
}

fn status_of(status: Status) -> u16 {
    match status {
        Status::Invalid => 400,
        Status::NotFound => 404,
        Status::Conflict => 409,
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

/// Stores a skill as a program does; the answer is not looked at.
fn stored(api: &Api, name: &str, content: &str) -> Result<(u16, Value), Failure> {
    let body = json!({"name": name, "content": content});
    api.send(Some(&owner()), &Method::POST, SKILLS, body.to_string())
}

/// The skill of an answer, or what it refuses.
fn answered((status, body): (u16, Value)) -> Outcome {
    if status >= 400 {
        let detail = &body["detail"];
        let failure = Failure::new(text(detail, "message"));
        let failure = failure.with("field", text(detail, "field")).with("http", status);
        return Err(match undeclared(text(detail, "message")) {
            Some(names) => failure.with("names", json!(names)),
            None => failure,
        });
    }
    Ok(skill_of(body))
}

/// The placeholders that a message names as undeclared.
fn undeclared(message: &str) -> Option<Vec<&str>> {
    let names = message.strip_prefix("Undeclared placeholders in prompt: ")?;
    Some(names.split_once(". Add")?.0.split(", ").collect())
}

/// The members that cases have: they say nothing of times, and the content is their own.
fn skill_of(mut body: Value) -> Value {
    if let Some(members) = body.as_object_mut() {
        members.retain(|name, _| !["raw_content", "created_at", "updated_at"].contains(&name.as_str()));
    }
    body
}

fn create(input: &Value) -> Outcome {
    let (name, content) = (text(input, "name"), text(input, "content"));
    let (existing, user) = (members(&input["existing"]), input["user_id"].as_str());
    let api = Api::start()?;
    let mut is_stored = user.is_none();
    for (name, content) in &existing {
        is_stored = is_stored && stored(&api, name, content.as_str().unwrap_or_default())?.0 == 201;
    }
    if is_stored {
        return answered(stored(&api, name, content)?);
    }
    // No caller of the API has such an id, and what it does not take comes by another way, as from files. A name that ends in a
    // slash is a folder without a SKILL.md, which stands in the way of its own name only.
    let taken = existing.keys().find_map(|other| match other.strip_suffix('/') {
        Some(folder) => (folder == name).then_some(folder),
        None => other.eq_ignore_ascii_case(name).then_some(other.as_str()),
    });
    let created = agent_flow::create(name, content, user, taken);
    created.map(skill_json).map_err(failure)
}

/// The path of a skill, whatever its name.
fn path_of(name: &str) -> String {
    let mut path = format!("{SKILLS}/");
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            path.push(char::from(byte));
        } else {
            path.push_str(&format!("%{byte:02X}"));
        }
    }
    path
}

fn update(input: &Value) -> Outcome {
    let (api, name) = (Api::start()?, text(input, "name"));
    if let Some(current) = input["current"].as_str() {
        stored(&api, name, current)?;
    }
    let body = json!({"content": text(input, "content")}).to_string();
    answered(api.send(Some(&owner()), &Method::PUT, &path_of(name), body)?)
}

fn get(input: &Value) -> Outcome {
    let folder = input["folder"].as_str();
    let name = input["name"].as_str().or(folder).unwrap_or_default();
    let api = Api::start()?;
    if folder.is_some() {
        let content = text(input, "content");
        if stored(&api, name, content)?.0 != 201 {
            // What this API does not take comes by another way, as from files: what its answer is made of.
            return agent_flow::get(name, Some(content)).map(skill_json).map_err(failure);
        }
    }
    answered(api.send(Some(&owner()), &Method::GET, &path_of(name), String::new())?)
}

fn list(input: &Value) -> Outcome {
    let skills = input["skills"].as_array().into_iter().flatten();
    let skills = skills.map(|skill| (text(skill, "folder"), text(skill, "content")));
    if let Some(user) = input["user_id"].as_str() {
        // No caller of the API has such an id.
        return Ok(json!(facts::agent_flow::list(skills, Some(user))));
    }
    let api = Api::start()?;
    for (folder, content) in skills.clone() {
        let is_stored = stored(&api, folder, content)?.0 == 201;
        if !is_stored && agent_flow::get(folder, Some(content)).is_ok() {
            // What this API does not take and can be read comes by another way, as from files.
            return Ok(json!(facts::agent_flow::list(skills, None)));
        }
    }
    let (_, list) = api.send(Some(&owner()), &Method::GET, SKILLS, String::new())?;
    let skills = list["skills"].as_array().into_iter().flatten();
    Ok(skills.map(|skill| skill["name"].clone()).collect())
}

/// A name that breaks the rule which a message tells.
fn broken_name(message: &str) -> Option<String> {
    let rules = [
        ("Skill name is required", String::new()),
        ("characters or less", "x".repeat(65)),
        ("must be lowercase", "X".to_owned()),
        ("can only contain", "a_b".to_owned()),
        ("start or end with a hyphen", "-a".to_owned()),
        ("consecutive hyphens", "a--b".to_owned()),
        ("path traversal", "../x".to_owned()),
    ];
    rules
        .into_iter()
        .find(|(rule, _)| message.contains(rule))
        .map(|(_, name)| name)
}

/// A content that is refused as a message tells, for a skill `x`.
fn broken_content(message: &str) -> Option<String> {
    let contents = [
        ("Invalid YAML", "---\nname: [x\n---\nB".to_owned()),
        ("content is empty", String::new()),
        ("no valid YAML frontmatter", "B".to_owned()),
        ("frontmatter is required", "B".to_owned()),
        (
            "exceeds",
            format!("---\nname: x\n---\n{}", "x".repeat(agent_flow::MAX_CONTENT_BYTES)),
        ),
        ("Skill name mismatch", "---\nname: other\n---\nB".to_owned()),
        ("does not match requested name", "---\nname: other\n---\nB".to_owned()),
    ];
    contents
        .into_iter()
        .find(|(rule, _)| message.contains(rule))
        .map(|(_, content)| content)
}

/// The request that a message is the answer to.
fn provoked(message: &str) -> Result<(u16, Value), Failure> {
    let api = Api::start()?;
    let quoted = message.split('\'').nth(1).unwrap_or("x");
    let content = |body: &str| format!("---\nname: {quoted}\n---\n{body}");
    if let Some(name) = broken_name(message) {
        return stored(&api, &name, &content("B"));
    }
    if let Some(content) = broken_content(message) {
        return stored(&api, "x", &content);
    }
    match message {
        _ if message.starts_with("Skill ") && message.ends_with(" not found") => api.send(
            Some(&owner()),
            &Method::GET,
            &format!("{SKILLS}/{quoted}"),
            String::new(),
        ),
        _ if message.contains(" already exists") || message.contains(" conflicts with ") => {
            stored(&api, quoted, &content("B"))?;
            stored(&api, quoted, &content("B"))
        }
        _ if message.starts_with("Cannot change skill name") => {
            stored(&api, "x", "---\nname: x\n---\nB")?;
            let body = json!({"content": "---\nname: y\n---\nB"}).to_string();
            api.send(Some(&owner()), &Method::PUT, &format!("{SKILLS}/x"), body)
        }
        _ if message.starts_with("Undeclared placeholders") => stored(&api, quoted, &content("{{other}}")),
        _ => Err(Failure::of_adapter("a message that this adapter does not know")),
    }
}

fn http_status(input: &Value) -> Outcome {
    Ok(provoked(text(input, "message"))?.0.into())
}

fn error_body(input: &Value) -> Outcome {
    let (status, body) = provoked(text(&input["error"], "message"))?;
    Ok(json!({"http": status, "body": body}))
}

fn create_http(input: &Value) -> Outcome {
    let api = Api::start()?;
    let (status, body) = api.send(Some(&owner()), &Method::POST, SKILLS, input["body"].to_string())?;
    Ok(json!({"http": status, "body": skill_of(body)}))
}

/// A skill runs in a model request; what is asked here is not there.
/// A body is read before anything else, and a skill that is not there is not run.
fn run_http(input: &Value) -> Outcome {
    if let Some(Err(refused)) = input.get("body").cloned().map(agent_flow::parse_run_body) {
        return Ok(json!({"http": status_of(refused.status)}));
    }
    let path = format!("{SKILLS}/{}/run", input["name"].as_str().unwrap_or("nonexistent"));
    let (status, body) = Api::start()?.send(Some(&owner()), &Method::POST, &path, input["body"].to_string())?;
    Ok(json!({"http": status, "body": body}))
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
