//! Responses: input items, calls and their outputs, reasoning. The items of a stored response precede the request's
//! own.

use serde_json::Value;

use super::values::{is_given, is_tool_name, items};
use super::{ProviderRefusal, Rule, RuleInput};
use crate::signature;

/// Longest call id in bytes.
const MAX_CALL_ID_BYTES: usize = 64;
/// Item types by the prefix that their ids must have.
const PREFIXES: [(&str, &str); 4] = [
    ("message", "msg"),
    ("function_call", "fc"),
    ("reasoning", "rs"),
    ("custom_tool_call", "ctc"),
];

/// Types of calls that the client answers. A shell has [rules](super::responses_shell) of its own, since it may be hosted.
const CLIENT_CALLS: [&str; 5] = [
    "function_call",
    "custom_tool_call",
    "apply_patch_call",
    "local_shell_call",
    "computer_call",
];
/// The types of calls that have a name, whose outputs have one form.
const NAMED: [&str; 2] = ["function_call", "custom_tool_call"];

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "input_given",
        check: input_given,
    },
    Rule {
        name: "message_role",
        check: message_role,
    },
    Rule {
        name: "message_content",
        check: message_content,
    },
    Rule {
        name: "item_id",
        check: item_id,
    },
    Rule {
        name: "call_fields",
        check: call_fields,
    },
    Rule {
        name: "call_id_once",
        check: call_id_once,
    },
    Rule {
        name: "output_fields",
        check: output_fields,
    },
    Rule {
        name: "output_of_call",
        check: output_of_call,
    },
    Rule {
        name: "call_output",
        check: call_output,
    },
    Rule {
        name: "reasoning_pair",
        check: reasoning_pair,
    },
    Rule {
        name: "reasoning_kept",
        check: reasoning_kept,
    },
];

fn input<'a>(rule_input: &RuleInput<'a>) -> impl Iterator<Item = (usize, &'a Value)> {
    items(&rule_input.body["input"]).enumerate()
}

fn kind(item: &Value) -> &str {
    item["type"].as_str().unwrap_or("message")
}

fn input_given(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    match &rule_input.body["input"] {
        Value::String(_) => Ok(()),
        Value::Array(list) if !list.is_empty() => Ok(()),
        // A template of the provider's brings items of its own.
        Value::Array(_) | Value::Null if rule_input.body["prompt"]["id"].is_string() => Ok(()),
        _ => Err(ProviderRefusal::at(
            "input",
            "missing_required_parameter",
            "One of 'input' or 'previous_response_id' or 'prompt' or 'conversation' must be provided, and 'input' must be a string or a list of items.",
        )),
    }
}

fn message_role(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    for (at, item) in input(rule_input).filter(|(_, item)| kind(item) == "message") {
        let role = item["role"].as_str().unwrap_or_default();
        if !["user", "assistant", "system", "developer"].contains(&role) {
            return Err(ProviderRefusal::at(
                format!("input[{at}].role"),
                "invalid_value",
                format!(
                    "Invalid value: '{role}'. Supported values are: 'assistant', 'system', 'developer', and 'user'."
                ),
            ));
        }
    }
    Ok(())
}

/// A string, or parts of the kinds that the role may have.
fn message_content(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    for (at, item) in input(rule_input).filter(|(_, item)| kind(item) == "message") {
        let allowed: &[&str] = if item["role"] == "assistant" {
            &["output_text", "refusal"]
        } else {
            &["input_text", "input_image", "input_file", "input_audio"]
        };
        let content = &item["content"];
        let holds = |part: &Value| allowed.contains(&part["type"].as_str().unwrap_or_default());
        if !(content.is_string() || content.as_array().is_some_and(|parts| parts.iter().all(holds))) {
            return Err(ProviderRefusal::at(
                format!("input[{at}].content"),
                "invalid_value",
                format!("Invalid value in 'input[{at}].content'. Supported values are: {allowed:?}."),
            ));
        }
    }
    Ok(())
}

fn item_id(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    for (at, item) in input(rule_input) {
        let Some((id, (_, prefix))) = item["id"]
            .as_str()
            .and_then(|id| Some((id, PREFIXES.iter().find(|(name, _)| *name == kind(item))?)))
        else {
            continue;
        };
        if !id.starts_with(prefix) || id.len() > MAX_CALL_ID_BYTES {
            return Err(ProviderRefusal::at(
                format!("input[{at}].id"),
                "invalid_value",
                format!("Invalid 'input[{at}].id': '{id}'. Expected an ID that begins with '{prefix}'."),
            ));
        }
    }
    Ok(())
}

fn is_call_id(value: &Value) -> bool {
    value
        .as_str()
        .is_some_and(|id| (1..=MAX_CALL_ID_BYTES).contains(&id.len()))
}

fn call_fields(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    for (at, item) in input(rule_input).filter(|(_, item)| kind(item) == "function_call") {
        let named = is_tool_name(item["name"].as_str().unwrap_or_default(), 128);
        if !named || !item["arguments"].is_string() || !is_call_id(&item["call_id"]) {
            return Err(ProviderRefusal::at(
                format!("input[{at}]"),
                "invalid_value",
                format!(
                    "Invalid 'input[{at}]': a function_call has 'name', 'arguments' as a string and 'call_id' of 1 to {MAX_CALL_ID_BYTES} characters."
                ),
            ));
        }
    }
    Ok(())
}

fn calls<'a>(rule_input: &RuleInput<'a>) -> impl Iterator<Item = (usize, &'a Value)> {
    input(rule_input).filter(|(_, item)| CLIENT_CALLS.contains(&kind(item)))
}

fn outputs<'a>(rule_input: &RuleInput<'a>) -> impl Iterator<Item = (usize, &'a Value)> {
    input(rule_input).filter(|(_, item)| answered(item).is_some_and(|call| CLIENT_CALLS.contains(&call)))
}

/// The type of the calls that an item answers.
fn answered(item: &Value) -> Option<&str> {
    kind(item).strip_suffix("_output")
}

fn call_id_once(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    let double = super::values::first_double(calls(rule_input).filter_map(|(_, item)| item["call_id"].as_str()));
    double.map_or(Ok(()), |id| {
        Err(ProviderRefusal::at(
            "input",
            "invalid_value",
            format!("Duplicate function call with call_id {id}."),
        ))
    })
}

fn output_fields(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    for (at, item) in outputs(rule_input).filter(|(_, item)| answered(item).is_some_and(|call| NAMED.contains(&call))) {
        let output = &item["output"];
        let listed = output.as_array().is_some_and(|parts| {
            parts
                .iter()
                .all(|part| part["type"].as_str().is_some_and(|kind| kind.starts_with("input_")))
        });
        if !is_call_id(&item["call_id"]) || !(output.is_string() || listed) {
            return Err(ProviderRefusal::at(
                format!("input[{at}].output"),
                "invalid_type",
                format!(
                    "Invalid 'input[{at}]': an output has 'call_id' and 'output', a string or a list of input parts."
                ),
            ));
        }
    }
    Ok(())
}

fn output_of_call(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    for (at, item) in outputs(rule_input) {
        let earlier = calls(rule_input).any(|(index, call)| index < at && call["call_id"] == item["call_id"]);
        let double = outputs(rule_input).any(|(index, other)| index < at && other["call_id"] == item["call_id"]);
        if !earlier || double {
            return Err(ProviderRefusal::at(
                "input",
                "invalid_value",
                format!(
                    "No tool call found for function call output with call_id {}.",
                    text(&item["call_id"])
                ),
            ));
        }
    }
    Ok(())
}

/// Each call is answered.
fn call_output(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    for (_, call) in calls(rule_input) {
        if !outputs(rule_input).any(|(_, output)| output["call_id"] == call["call_id"]) {
            let what = if NAMED.contains(&kind(call)) {
                "function call"
            } else {
                kind(call)
            };
            return Err(ProviderRefusal::at(
                "input",
                "invalid_value",
                format!("No tool output found for {what} {}.", text(&call["call_id"])),
            ));
        }
    }
    Ok(())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Reasoning and the item behind it belong together: its id carries the mark of the reasoning.
fn reasoning_pair(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    let all: Vec<&Value> = items(&rule_input.body["input"]).collect();
    for (at, item) in all.iter().enumerate() {
        let id = text(&item["id"]);
        let mark = |item: &Value| signature::mark(&[text(&item["id"]).to_owned()]);
        let before = at
            .checked_sub(1)
            .map(|before| all[before])
            .filter(|item| kind(item) == "reasoning");
        if kind(item) == "reasoning" && is_given(&item["id"]) {
            let next = all.get(at + 1).and_then(|next| next["id"].as_str());
            if next.and_then(signature::mark_of) != Some(mark(item).as_str()) {
                return Err(ProviderRefusal::invalid(format!(
                    "Item '{id}' of type 'reasoning' was provided without its required following item."
                )));
            }
        } else if let Some(own) = signature::mark_of(id)
            && before.is_none_or(|reasoning| mark(reasoning) != own)
        {
            return Err(ProviderRefusal::invalid(format!(
                "Item '{id}' of type '{}' was provided without its required 'reasoning' item.",
                kind(item)
            )));
        }
    }
    Ok(())
}

/// Where nothing is stored, reasoning comes back with its encrypted content, unchanged.
fn reasoning_kept(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    for (at, item) in input(rule_input).filter(|(_, item)| kind(item) == "reasoning") {
        let encrypted = &item["encrypted_content"];
        if is_given(encrypted) && !signature::verify_sealed(text(encrypted)) {
            return Err(ProviderRefusal::at(
                format!("input[{at}].encrypted_content"),
                "invalid_encrypted_content",
                "The encrypted content could not be verified.",
            ));
        }
        if rule_input.body["store"] == false && !is_given(encrypted) {
            return Err(ProviderRefusal::at(
                "input",
                "item_not_found",
                format!(
                    "Item with id '{}' not found. Items are not persisted when `store` is set to false.",
                    text(&item["id"])
                ),
            ));
        }
    }
    Ok(())
}
