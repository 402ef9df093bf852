//! Adapters of `pyschema.json`: Python functions to tool schemas.

use knack_python_schema::{ConfigParam, RiskLevel, SafetyFlags, display_name, generate, parameter_descriptions};
use knack_skill::config::{self, ConfigEntry, ConfigSource};
use serde_json::{Map, Value, json};

use crate::facts::result::{ShownResult, shown};
use crate::registry::{Compare, Failure, Op, Outcome};

const FILE: &str = "pyschema";

/// The ops of this file.
pub(crate) const OPS: &[Op] = &[
    Op::new(FILE, "infer", infer).compared(Compare::Custom(compare_infer)),
    Op::new(FILE, "docstring", docstring),
    Op::new(FILE, "display_name", shown_name),
    Op::new(FILE, "risk", risk),
    Op::new(FILE, "config_param", config_param),
    Op::new(FILE, "config_value", config_value),
    Op::new(FILE, "config_merge", config_merge),
    Op::new("injection", "tukuy_tool", tukuy_tool),
    Op::new(FILE, "result", result).compared(Compare::Custom(compare_result)),
];

fn text<'v>(input: &'v Value, member: &str) -> &'v str {
    input[member].as_str().unwrap_or_default()
}

/// One function in the source: its whole declaration.
fn infer(input: &Value) -> Outcome {
    let report = generate(text(input, "python"));
    match report.tools.first() {
        Some(tool) => Ok(tool.to_value()),
        None => Err(Failure::new(
            report
                .problems
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join("; "),
        )),
    }
}

/// A decorated function as the tool of both providers. Tukuy leaves the description of a function without one empty, and Knack
/// writes a text that providers accept.
fn tukuy_tool(input: &Value) -> Outcome {
    let report = generate(text(input, "python"));
    let tool = report
        .tools
        .first()
        .ok_or_else(|| Failure::new("nothing is declared".to_owned()))?;
    let (mut openai, mut anthropic) = (tool.openai_tool(), tool.anthropic_tool());
    if tool.description.is_empty() {
        openai["function"]["description"] = "".into();
        anthropic["description"] = "".into();
    }
    Ok(json!({"openai": openai, "anthropic": anthropic}))
}

/// Only the members that the case names count, each of them whole; an absent one is null.
fn compare_infer(expected: &Value, actual: &Value) -> Result<(), String> {
    let named = expected.as_object().ok_or("expected must be an object")?;
    for (member, wanted) in named {
        let got = actual.get(member).unwrap_or(&Value::Null);
        if got != wanted {
            return Err(format!("{member}: expected {wanted}, got {got}"));
        }
    }
    Ok(())
}

fn docstring(input: &Value) -> Outcome {
    Ok(json!(parameter_descriptions(text(input, "docstring"))))
}

fn shown_name(input: &Value) -> Outcome {
    Ok(display_name(text(input, "name"), input["display_name"].as_str()).into())
}

fn risk(input: &Value) -> Outcome {
    let flag = |name: &str| input[name].as_bool().unwrap_or_default();
    let flags = SafetyFlags {
        side_effects: flag("side_effects"),
        idempotent: flag("idempotent"),
        requires_network: flag("requires_network"),
        requires_filesystem: flag("requires_filesystem"),
    };
    RiskLevel::parse(text(input, "risk_level"))
        .map(|level| level.resolve(flags).word().into())
        .ok_or_else(|| Failure::new("unknown risk level"))
}

fn config_param(input: &Value) -> Outcome {
    let keywords: Vec<(String, Value)> = input
        .as_object()
        .map(|members| members.iter().filter(|(name, _)| *name != "op"))
        .into_iter()
        .flatten()
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    ConfigParam::from_keywords(&keywords)
        .map(|param| param.to_value())
        .map_err(Failure::new)
}

/// A value for a parameter, as a runtime gives it: as a text.
fn config_value(input: &Value) -> Outcome {
    // Cases write the members of a declaration as Python or as its wire form does.
    let members = input["param"].as_object().into_iter().flatten();
    let mut declared: Value = members
        .map(|(name, value)| (snake(name), value.clone()))
        .collect::<Map<_, _>>()
        .into();
    declared["name"] = "x".into();
    let param = serde_json::from_value(config_param(&declared)?).map_err(|error| Failure::new(error.to_string()))?;
    let value = &input["value"];
    let written = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let accepted = config::read(&param, &written).is_ok();
    Ok(json!({ "accepted": accepted }))
}

fn snake(name: &str) -> String {
    let mut snake = String::new();
    for each in name.chars() {
        if each.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(each.to_ascii_lowercase());
    }
    snake
}

/// Values by tool, laid over others, as those of the command line lie over those of a pin.
fn config_merge(input: &Value) -> Outcome {
    let merged = config::overlay(entries(&input["request"]), &entries(&input["bot_environment"]));
    let mut tools = Map::new();
    for ConfigEntry { name, source } in merged {
        let (Some((tool, param)), ConfigSource::Value(text)) = (name.split_once('.'), source) else {
            return Err(Failure::new("an entry is not of a tool"));
        };
        let value = serde_json::from_str(&text).map_err(|error| Failure::new(error.to_string()))?;
        tools.entry(tool).or_insert_with(|| json!({}))[param] = value;
    }
    Ok(tools.into())
}

fn entries(tools: &Value) -> Vec<ConfigEntry> {
    let tools = tools.as_object().into_iter().flatten();
    let entries = tools.flat_map(|(tool, values)| {
        values
            .as_object()
            .into_iter()
            .flatten()
            .map(move |(param, value)| ConfigEntry {
                name: format!("{tool}.{param}"),
                source: ConfigSource::Value(value.to_string()),
            })
    });
    entries.collect()
}

fn result(input: &Value) -> Outcome {
    let mut members = Map::new();
    let text = match shown(&input["value"]) {
        ShownResult::Text(text) => text,
        ShownResult::Artifact { members: inner, text } => {
            members.insert("artifact".to_owned(), inner.into());
            text
        }
        ShownResult::Update { members: inner, text } => {
            members.insert("artifact_update".to_owned(), inner.into());
            text
        }
    };
    members.insert("tool_end".to_owned(), text.into());
    Ok(members.into())
}

/// Only the members that the case names count; a text that is JSON is compared as JSON.
fn compare_result(expected: &Value, actual: &Value) -> Result<(), String> {
    let named = expected.as_object().ok_or("expected must be an object")?;
    let parsed = |value: &Value| value.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
    for (member, wanted) in named {
        let got = actual.get(member).unwrap_or(&Value::Null);
        let same_json = parsed(wanted).is_some() && parsed(wanted) == parsed(got);
        let named_members = wanted.is_object()
            && wanted
                .as_object()
                .is_some_and(|wanted| wanted.iter().all(|(name, value)| got.get(name) == Some(value)));
        if got != wanted && !same_json && !named_members {
            return Err(format!("{member}: expected {wanted}, got {got}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bound_of_a_parameter_reaches_the_check_of_its_value() {
        let list = json!({"type": "list", "min_items": 1, "max_items": 2});
        for (param, value, accepted) in [
            (&list, json!(["a", "b"]), true),
            (&list, json!([]), false),
            (&list, json!(["a", "b", "c"]), false),
            (
                &json!({"type": "map", "max_items": 1}),
                json!({"a": "1", "b": "2"}),
                false,
            ),
            (&json!({"type": "number", "max": 5}), json!(6), false),
            (&json!({"type": "select", "options": ["a"]}), json!("b"), false),
        ] {
            let answer = config_value(&json!({"param": param, "value": value})).unwrap();
            assert_eq!(answer["accepted"], accepted, "{param} {value}");
        }
        let unknown = config_value(&json!({"param": {"type": "list", "most": 1}, "value": []}));
        assert!(unknown.is_err(), "{unknown:?}");
    }
}
