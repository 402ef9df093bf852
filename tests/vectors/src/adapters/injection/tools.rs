//! OmniRoute's tools: which ones are injected, their names, their schemas.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use knack_skill::autoscore::AutoContext;
use knack_skill::call::owner;
use knack_skill::catalog::Catalog;
use knack_skill::fixture::mk_settings;
use knack_skill::model::ActivationMode;
use knack_skill::plan::{Action, Plan, PlanRequest, PlannedTool, ToolChoice, plan};
use knack_skill::schema;
use serde_json::{Map, Value, json};

use super::super::omniroute::{self, items, text};
use super::litellm::apply;
use crate::registry::{Failure, Outcome};

/// Plans a request that names no skill.
pub(crate) fn planned(catalog: &Catalog, request: &Value, tool_names: &[&str]) -> Result<Plan, Failure> {
    let auto = || -> AutoContext { omniroute::context(request) };
    let request = PlanRequest {
        provider: text(request, "provider"),
        model: text(request, "model"),
        user_texts: &[],
        auto: &auto,
        client_tools: tool_names,
        tool_choice: ToolChoice::Free,
        container: &[],
        run_code: knack_skill::plan::RunCode::WithFiles,
        header: None,
        max_tokens: None,
        run_of: None,
    };
    plan(&request, catalog).map_err(|error| Failure::new(error.to_string()))
}

/// The identity of a planned tool: `name@version`.
pub(crate) fn identity(tool: &PlannedTool) -> Option<String> {
    match &tool.action {
        Action::Declared { skill, .. } => Some(format!(
            "{}@{}",
            skill.id.name,
            skill.version.as_deref().unwrap_or("0.1.0")
        )),
        _ => None,
    }
}

pub(super) fn inject_tools(input: &Value) -> Outcome {
    let request = &input["request"];
    let existing = items(request, "existingTools");
    let named = existing
        .iter()
        .filter_map(|tool| tool["name"].as_str().or_else(|| tool["function"]["name"].as_str()));
    // A client that has the tool under OmniRoute's own spelling has it: that spelling means the decoded identity.
    let catalog = omniroute::catalog(input);
    let all = planned(&catalog, request, &[])?;
    let spelled: Vec<&str> = named.map(|name| wire_name_of(&all, name)).collect();
    let plan = planned(&catalog, request, &spelled)?;
    let provider = text(request, "provider");
    let mut tools = existing.to_vec();
    if provider == "google" {
        // A function declaration of Gemini has these three members.
        let declare =
            |tool: &PlannedTool| json!({"name": tool.name, "description": tool.description, "parameters": tool.schema});
        tools.extend(plan.tools.iter().map(|tool| declare(tool)));
    } else {
        let anthropic = provider == "anthropic";
        let mut body = json!({"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "x"}]});
        if !existing.is_empty() {
            body["tools"] = Value::from(existing);
        }
        let body = apply(&body, anthropic, "", &plan, Vec::new())?;
        tools = items(&body, "tools").to_vec();
    }
    let mut injected = Vec::new();
    for (shown, tool) in tools.iter_mut().skip(existing.len()).zip(plan.tools.iter()) {
        let name = identity(tool).ok_or_else(|| Failure::of_adapter("a tool without a skill"))?;
        let slot = if shown.get("function").is_some() {
            &mut shown["function"]["name"]
        } else {
            &mut shown["name"]
        };
        if *slot != tool.name {
            return Err(Failure::of_adapter(format!(
                "tool {} stands at the place of {}",
                slot, tool.name
            )));
        }
        *slot = Value::from(name.clone());
        injected.push(name);
    }
    Ok(json!({"tools": tools, "injected": injected}))
}

/// Our wire name for a name in OmniRoute's spelling, or the name itself.
fn wire_name_of<'a>(plan: &'a Plan, name: &'a str) -> &'a str {
    let decoded = spelled_identity(name);
    let found = plan
        .tools
        .iter()
        .find(|tool| identity(tool).is_some_and(|known| known == name || Some(&known) == decoded.as_ref()));
    found.map_or(name, |tool| &tool.name)
}

/// The identity inside OmniRoute's later spelling, `omr_skill_` and base64url.
fn spelled_identity(name: &str) -> Option<String> {
    let bytes = URL_SAFE_NO_PAD.decode(name.strip_prefix("omr_skill_")?).ok()?;
    String::from_utf8(bytes).ok()
}

/// Earlier cases expect the list of tools alone. Injected names mean identities in any spelling.
pub(super) fn compare_tools(expected: &Value, actual: &Value) -> Result<(), String> {
    let (mut expected, mut actual) = (expected.clone(), actual.clone());
    // A tool of the client may be spelled so as well.
    respell(&mut expected);
    respell(&mut actual);
    if expected.is_array() {
        super::whole(&expected, &actual["tools"])
    } else {
        super::whole(&expected, &actual)
    }
}

fn respell(value: &mut Value) {
    match value {
        Value::String(name) => {
            if let Some(identity) = spelled_identity(name) {
                *name = identity;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(respell),
        Value::Object(members) => members.values_mut().for_each(respell),
        _ => {}
    }
}

/// A catalog of skills that are always active, and its plan.
fn plan_of(names: &[&str], version: &str) -> Result<Plan, Failure> {
    let skill = |name: &&str| {
        let case = json!({"name": name, "version": version, "schema": {"input": {}}});
        let mut skill = omniroute::skill(&case);
        skill.activation = ActivationMode::Always;
        skill.into()
    };
    let skills = names.iter().map(skill).collect();
    planned(
        &Catalog::compile_named(skills, mk_settings(), &BTreeMap::new()),
        &json!({}),
        &[],
    )
}

/// The name stands beside those that are the easiest to take for it: the same with one more character, and with `_` for what no wire
/// name has.
pub(super) fn encode(input: &Value) -> Outcome {
    let (name, version) = (text(input, "name"), text(input, "version"));
    let longer = format!("{name}x");
    let is_of_names = |each: char| each.is_ascii_alphanumeric() || each == '_' || each == '-';
    let legal = name.replace(|each| !is_of_names(each), "_");
    let mut names = vec![longer.as_str(), legal.as_str(), name];
    names.dedup();
    let plan = plan_of(&names, version)?;
    let own = format!("{name}@{version}");
    let tool = plan.tools.iter().find(|tool| identity(tool).as_ref() == Some(&own));
    let tool = tool.ok_or_else(|| Failure::of_adapter("no tool"))?;
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    let decoded = owner(&plan, &tool.name).and_then(identity);
    Ok(
        json!({"tool_name": tool.name, "legal": tool.name.bytes().all(is_legal), "length": tool.name.len(), "decodes_to": decoded}),
    )
}

/// Holds to the properties: legal, at most 64 bytes, decodes to the same skill. The spelling is free.
pub(super) fn compare_name(expected: &Value, actual: &Value) -> Result<(), String> {
    let length = actual["length"].as_u64().unwrap_or(u64::MAX);
    if actual["legal"] != true || length > 64 {
        return Err(format!("not a legal name: {actual}"));
    }
    for (member, expected) in expected.as_object().ok_or("expected must be an object")? {
        match member.as_str() {
            // The spelling of upstream.
            "tool_name" | "length" => {}
            "legal_length" => {
                let most = expected
                    .as_str()
                    .and_then(|words| words.strip_prefix("<=")?.trim().parse().ok());
                if most.is_none_or(|most: u64| length > most) {
                    return Err(format!("legal_length: expected {expected}, got {length}"));
                }
            }
            _ => super::whole(expected, &actual[member]).map_err(|why| format!("{member}{why}"))?,
        }
    }
    Ok(())
}

pub(super) fn decode(input: &Value) -> Outcome {
    let given = text(input, "tool_name");
    // The skill that the name speaks of was injected, if it speaks of one.
    let spelled = spelled_identity(given);
    let name = spelled.as_deref().unwrap_or(given);
    let (skill, version) = name.rsplit_once('@').unwrap_or((name, ""));
    let resolved = if version.is_empty() {
        None
    } else {
        let plan = plan_of(&[skill], version)?;
        let wire_name = if spelled.is_some() {
            wire_name_of(&plan, given)
        } else {
            given
        };
        owner(&plan, wire_name).and_then(identity)
    };
    let mut answer = Map::new();
    answer.insert(
        "identifier".to_owned(),
        Value::from(resolved.clone().unwrap_or_else(|| given.to_owned())),
    );
    answer.insert("resolves".to_owned(), resolved.map_or(Value::Null, Value::from));
    Ok(Value::Object(answer))
}

pub(super) fn normalize(input: &Value) -> Outcome {
    Ok(schema::normalize(&input["schema"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_property_of_a_name_that_a_case_has_is_compared() {
        let encoded = |name: &str| encode(&json!({"name": name, "version": "1.0.0"})).unwrap();
        let long = "n".repeat(80);
        for name in ["search", "my skill", &long] {
            let actual = encoded(name);
            let own = format!("{name}@1.0.0");
            for (expected, holds) in [
                (
                    json!({"tool_name": "omr_skill_c2VhcmNo", "legal": true, "decodes_to": own}),
                    true,
                ),
                (json!({"legal_length": "<= 64"}), true),
                (json!({"legal_length": "<= 3"}), false),
                (json!({"legal_length": "short"}), false),
                (json!({"legal": false}), false),
                (json!({"decodes_to": "another@1.0.0"}), false),
                (json!({"stable": true}), false),
                (json!("search"), false),
            ] {
                let compared = compare_name(&expected, &actual);
                assert_eq!(compared.is_ok(), holds, "{name}: {expected}: {compared:?}");
            }
        }
    }
}
