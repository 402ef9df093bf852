//! LiteLLM's stored skills: sections, archives, tools, requests before and after.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use knack_skill::autoscore::AutoContext;
use knack_skill::catalog::Catalog;
use knack_skill::fixture::{mk_empty_skill, mk_settings};
use knack_skill::litellm::StoredSkill;
use knack_skill::model::{ActivationMode, Skill, SkillFile};
use knack_skill::plan::{ContainerSkill, Plan, PlanRequest, ToolChoice, plan};
use knack_skill::{frontmatter, texts, wire_name};
use knack_wire::json::Edits;
use knack_wire::request::Material;
use knack_wire::{Injection, Request, Route, Tool, route};
use serde_json::{Map, Value, json};

use super::super::omniroute::{items, text};
use crate::facts::litellm_archive::{ArchiveFile, archive_files, section};
use crate::registry::{Failure, Outcome};
use crate::special;

/// Parses a body as the gateway does.
fn parse(body: &Value, anthropic: bool) -> Result<Request, Failure> {
    let path = if anthropic {
        "/v1/messages"
    } else {
        "/v1/chat/completions"
    };
    let Route::Model(route) = route("POST", path) else {
        return Err(Failure::of_adapter("no route"));
    };
    Request::parse(route, Bytes::from(body.to_string())).map_err(|fault| Failure::of_adapter(format!("{fault:?}")))
}

/// Puts a plan and an additional text into a request through the wire crate.
pub(super) fn apply(body: &Value, anthropic: bool, system: &str, plan: &Plan, own_skills: Vec<String>) -> Outcome {
    let tools = plan.tools.iter().map(|tool| Tool {
        name: tool.name.clone(),
        description: tool.description.clone(),
        schema: tool.schema_json.clone(),
    });
    let injection = Injection {
        material: Arc::new(Material::new(format!("{}{system}", plan.system), tools.collect())),
        own_skills,
        ..Injection::default()
    };
    let bytes = parse(body, anthropic)?.apply(&injection, Edits::new());
    serde_json::from_slice(&bytes).map_err(|error| Failure::of_adapter(error.to_string()))
}

/// A stored record with its archive.
struct Stored<'a> {
    record: StoredSkill<'a>,
    archive: Option<Vec<(String, Vec<u8>)>>,
}

fn stored<'a>(id: &'a str, case: &'a Value) -> Stored<'a> {
    let member = |name: &str| case[name].as_str();
    Stored {
        record: StoredSkill {
            id,
            title: member("display_title"),
            description: member("description"),
            instructions: member("instructions"),
            parameters: case["metadata"].get("parameters"),
        },
        archive: case["zip"].as_array().map(|pairs| archive(pairs)),
    }
}

fn archive(pairs: &[Value]) -> Vec<(String, Vec<u8>)> {
    let entry = |pair: &Value| Some((pair[0].as_str()?.to_owned(), special::bytes(&pair[1])?));
    pairs.iter().filter_map(entry).collect()
}

fn files(archive: &[(String, Vec<u8>)]) -> Vec<ArchiveFile<'_>> {
    archive
        .iter()
        .map(|(path, bytes)| ArchiveFile { path, bytes })
        .collect()
}

pub(super) fn skill_content(input: &Value) -> Outcome {
    let stored = stored(text(&input["skill"], "skill_id"), &input["skill"]);
    let files = stored.archive.as_deref().map(files);
    Ok(json!(section(&stored.record, files.as_deref())))
}

pub(super) fn zip_files(input: &Value) -> Outcome {
    let archive = archive(items(input, "zip"));
    let kept = archive_files(&files(&archive)).into_iter();
    Ok(kept
        .map(|(path, bytes)| (path, Value::from(String::from_utf8_lossy(&bytes))))
        .collect::<Map<_, _>>()
        .into())
}

pub(super) fn tool(input: &Value) -> Outcome {
    let id = text(&input["skill"], "skill_id");
    let record = stored(id, &input["skill"]).record;
    let (name, description, schema) = (
        wire_name::of_stored_id(id),
        record.tool_description(),
        record.tool_schema(),
    );
    let mut plan = Plan::default();
    plan.tools = Arc::new([Arc::new(knack_skill::plan::PlannedTool::new(
        name,
        description,
        schema,
        knack_skill::plan::Action::LitellmCode,
    ))]);
    let body = json!({"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "x"}]});
    let shown = |anthropic| apply(&body, anthropic, "", &plan, Vec::new()).map(|body| body["tools"][0].clone());
    Ok(json!({"openai": shown(false)?, "anthropic": shown(true)?}))
}

pub(super) fn inject_prompt(input: &Value) -> Outcome {
    let sections: Vec<&str> = items(input, "contents").iter().filter_map(Value::as_str).collect();
    let system = if sections.is_empty() {
        String::new()
    } else {
        texts::bodies_block(&sections)
    };
    apply(
        &input["request"],
        input["anthropic"] == true,
        &system,
        &Plan::default(),
        Vec::new(),
    )
}

/// The stored records as a catalog: each is a skill by its id, active only where a request names it.
fn catalog(cases: &Map<String, Value>) -> Catalog {
    let skills = cases.iter().map(|(id, case)| Arc::new(skill(id, case)));
    Catalog::compile_named(skills.collect(), mk_settings(), &BTreeMap::new())
}

fn skill(id: &str, case: &Value) -> Skill {
    let stored = stored(id, case);
    let kept = stored
        .archive
        .as_deref()
        .map(|archive| archive_files(&files(archive)))
        .unwrap_or_default();
    let document = kept
        .get("SKILL.md")
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        .unwrap_or_default();
    let mut skill = mk_empty_skill(id, ActivationMode::OnRequest);
    skill.ids = vec![String::from(id)];
    skill.title = String::from(stored.record.title.unwrap_or(id));
    skill.description = String::from(stored.record.description.unwrap_or_default());
    let (frontmatter::Split::Found { body, .. }
    | frontmatter::Split::Absent { body }
    | frontmatter::Split::Unclosed { body }) = frontmatter::split(&document, frontmatter::Delimiters::Lenient);
    skill.body = String::from(body);
    if let Some(instructions) = stored.record.instructions {
        skill.extra.insert("instructions".to_owned(), Value::from(instructions));
    }
    if !case["metadata"].is_null() {
        skill.extra.insert("metadata".to_owned(), case["metadata"].clone());
    }
    let file = |bytes: Vec<u8>| SkillFile {
        bytes: bytes.into(),
        executable: false,
    };
    skill.files = kept.into_iter().map(|(path, bytes)| (path, file(bytes))).collect();
    skill
}

pub(crate) fn pre_call(input: &Value) -> Outcome {
    let request = &input["request"];
    let call_type = text(input, "call_type");
    if !["completion", "acompletion", "anthropic_messages"].contains(&call_type) {
        // Other call types have no route of a format: they pass untouched.
        return Ok(request.clone());
    }
    let anthropic = call_type == "anthropic_messages";
    let none = Map::new();
    let catalog = catalog(input["stored_skills"].as_object().unwrap_or(&none));
    let fields = parse(request, anthropic)?
        .fields()
        .map_err(|fault| Failure::of_adapter(format!("{fault:?}")))?;
    let container: Vec<ContainerSkill<'_>> = fields
        .container_skills
        .iter()
        .map(|skill| ContainerSkill {
            kind: Some(&skill.kind),
            id: &skill.id,
        })
        .collect();
    let names: Vec<&str> = fields.client_tools.iter().map(String::as_str).collect();
    let auto = AutoContext::default;
    let asked = PlanRequest {
        provider: "",
        model: &fields.model,
        user_texts: &[],
        auto: &auto,
        client_tools: &names,
        tool_choice: ToolChoice::Free,
        container: &container,
        run_code: knack_skill::plan::RunCode::WithFiles,
        header: None,
        max_tokens: fields.max_tokens,
        run_of: None,
    };
    let plan = plan(&asked, &catalog).map_err(|error| Failure::new(error.to_string()).with("http", 404))?;
    let ours = plan
        .container
        .ours
        .iter()
        .filter_map(|place| fields.container_skills.get(*place));
    let own_skills = ours.map(|skill| skill.id.clone()).collect();
    let mut body = apply(request, anthropic, "", &plan, own_skills)?;
    metadata(&mut body, &plan);
    Ok(body)
}

/// LiteLLM's bookkeeping, which Knack keeps out of the request: the files that the code tool sees, by skill. It is put beside what
/// the client has there.
fn metadata(body: &mut Value, plan: &Plan) {
    let has_python = |skill: &Skill| skill.files.keys().any(|path| path.ends_with("py"));
    if plan.tool(texts::LITELLM_CODE_TOOL).is_none() {
        return;
    }
    let with_code = plan.active.iter().filter(|active| has_python(&active.skill));
    let files: Map<String, Value> = with_code
        .map(|active| {
            (
                active.skill.id.name.clone(),
                json!(active.skill.files.keys().collect::<Vec<_>>()),
            )
        })
        .collect();
    let kept = &mut body["litellm_metadata"];
    if !kept.is_object() {
        *kept = json!({});
    }
    kept["_skill_files"] = files.into();
    kept["_litellm_code_execution_enabled"] = true.into();
}

/// Compares as `litellm_inject_prompt`, apart from the remark that a case may carry.
pub(super) fn compare_request(expected: &Value, actual: &Value) -> Result<(), String> {
    let mut expected = expected.clone();
    if let Value::Object(members) = &mut expected {
        members.remove("$and");
    }
    super::same_request(&expected, actual)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tool_of_a_stored_skill_has_the_parameters_of_its_record() {
        let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
        let case = json!({
            "call_type": "anthropic_messages",
            "request": {"model": "m", "max_tokens": 1000, "messages": [{"role": "user", "content": "x"}],
                "container": {"skills": [{"type": "custom", "skill_id": "litellm:litellm_skill_1"}]}},
            "stored_skills": {"litellm_skill_1": {"skill_id": "litellm_skill_1", "instructions": "i", "metadata": {"parameters": parameters}}},
        });
        let sent = pre_call(&case).unwrap();
        assert_eq!(sent["tools"][0]["input_schema"], parameters, "{sent}");
    }
}
