//! Chat Completions: roles, contents, calls and their results.

use serde_json::Value;

use super::chat_tools::MAX_NAME_BYTES;
use super::values::{first_double, is_given, is_tool_name, items, messages, role};
use super::{ProviderRefusal, Rule, RuleInput};

/// Longest call id in bytes that every known deployment takes.
const MAX_CALL_ID_BYTES: usize = 64;
const ROLES: [&str; 6] = ["developer", "system", "user", "assistant", "tool", "function"];

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "messages_list",
        check: messages_list,
    },
    Rule {
        name: "roles",
        check: roles,
    },
    Rule {
        name: "content_shape",
        check: content_shape,
    },
    Rule {
        name: "part_types",
        check: part_types,
    },
    Rule {
        name: "system_place",
        check: system_place,
    },
    Rule {
        name: "call_shape",
        check: call_shape,
    },
    Rule {
        name: "call_ids",
        check: call_ids,
    },
    Rule {
        name: "results_follow_calls",
        check: results_follow_calls,
    },
];

fn messages_list(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    match rule_input.body["messages"].as_array() {
        None => Err(ProviderRefusal::at(
            "messages",
            "missing_required_parameter",
            "Missing required parameter: 'messages'.",
        )),
        Some(list) if list.is_empty() => Err(ProviderRefusal::at(
            "messages",
            "empty_array",
            "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead.",
        )),
        Some(list) => match list.iter().position(|message| !message.is_object()) {
            Some(index) => Err(wrong_type(format!("messages[{index}]"), "an object")),
            None => Ok(()),
        },
    }
}

fn roles(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    for (index, message) in messages(rule_input) {
        let role = &message["role"];
        if !role.as_str().is_some_and(|role| ROLES.contains(&role)) {
            return Err(ProviderRefusal::at(
                format!("messages[{index}].role"),
                "invalid_value",
                format!("Invalid value: {role}. Supported values are: {}.", ROLES.join(", ")),
            ));
        }
    }
    Ok(())
}

/// A string or a filled list of parts; `null` only for an assistant that says something else.
fn content_shape(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    for (index, message) in messages(rule_input) {
        let path = format!("messages[{index}].content");
        match &message["content"] {
            Value::String(_) => {}
            Value::Array(parts) if parts.is_empty() => {
                return Err(ProviderRefusal::at(
                    path,
                    "empty_array",
                    "Invalid content: empty array.",
                ));
            }
            Value::Array(parts) => {
                if let Some(part) = parts.iter().position(|part| !part["type"].is_string()) {
                    return Err(wrong_type(format!("{path}[{part}]"), "an object with a type"));
                }
            }
            Value::Null => {
                let speaks = ["tool_calls", "function_call", "refusal", "audio"]
                    .iter()
                    .any(|key| is_given(&message[*key]));
                if role(message) != "assistant" || !speaks {
                    return Err(ProviderRefusal::at(
                        path,
                        "invalid_type",
                        "Invalid value for 'content': expected a string, got null.",
                    ));
                }
            }
            _ => return Err(wrong_type(path, "one of a string or array of objects")),
        }
    }
    Ok(())
}

fn part_types(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    for (index, message) in messages(rule_input) {
        let allowed: &[&str] = match role(message) {
            "user" => &["text", "image_url", "input_audio", "file"],
            "assistant" => &["text", "refusal"],
            _ => &["text"],
        };
        for (part_index, part) in items(&message["content"]).enumerate() {
            let path = format!("messages[{index}].content[{part_index}]");
            let kind = part["type"].as_str().unwrap_or_default();
            if !allowed.contains(&kind) {
                return Err(ProviderRefusal::at(
                    format!("{path}.type"),
                    "invalid_value",
                    format!("Invalid value: '{kind}'. Supported values are: {}.", allowed.join(", ")),
                ));
            }
            if kind == "text" && !part["text"].is_string() {
                return Err(wrong_type(format!("{path}.text"), "a string"));
            }
        }
    }
    Ok(())
}

/// System messages come first (and there may be several); many compatible servers refuse later ones.
fn system_place(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    if rule_input.provider.late_system {
        return Ok(());
    }
    let is_system = |message: &Value| matches!(role(message), "system" | "developer");
    let late = messages(rule_input)
        .skip_while(|(_, message)| is_system(message))
        .find(|(_, message)| is_system(message));
    match late {
        Some((index, _)) => Err(ProviderRefusal::at(
            format!("messages[{index}].role"),
            "invalid_value",
            "System message must be at the beginning.",
        )),
        None => Ok(()),
    }
}

fn call_shape(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    for (index, message) in messages(rule_input).filter(|(_, message)| is_given(&message["tool_calls"])) {
        let path = format!("messages[{index}].tool_calls");
        if role(message) != "assistant" {
            return Err(ProviderRefusal::at(
                path,
                "unknown_parameter",
                format!("Unknown parameter: 'messages[{index}].tool_calls'."),
            ));
        }
        let Some(calls) = message["tool_calls"].as_array().filter(|calls| !calls.is_empty()) else {
            return Err(ProviderRefusal::at(
                path,
                "empty_array",
                "Invalid 'tool_calls': expected an array with minimum length 1.",
            ));
        };
        for (call_index, call) in calls.iter().enumerate() {
            one_call(call, &format!("{path}[{call_index}]"))?;
        }
    }
    Ok(())
}

fn one_call(call: &Value, path: &str) -> Result<(), ProviderRefusal> {
    let (name, text, text_key) = match call["type"].as_str() {
        Some("function") => (
            &call["function"]["name"],
            &call["function"]["arguments"],
            "function.arguments",
        ),
        Some("custom") => (&call["custom"]["name"], &call["custom"]["input"], "custom.input"),
        _ => {
            return Err(ProviderRefusal::at(
                format!("{path}.type"),
                "invalid_value",
                "Invalid value for the type of a tool call.",
            ));
        }
    };
    if !name.as_str().is_some_and(|name| is_tool_name(name, MAX_NAME_BYTES)) {
        return Err(ProviderRefusal::at(
            format!("{path}.function.name"),
            "invalid_value",
            format!("Invalid '{path}.function.name': string does not match pattern '^[a-zA-Z0-9_-]+$' or is too long."),
        ));
    }
    if !text.is_string() {
        return Err(wrong_type(format!("{path}.{text_key}"), "a string"));
    }
    Ok(())
}

fn call_ids(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    for (index, message) in messages(rule_input) {
        let path = format!("messages[{index}].tool_calls");
        for call in items(&message["tool_calls"]) {
            let fits = call["id"]
                .as_str()
                .is_some_and(|id| (1..=MAX_CALL_ID_BYTES).contains(&id.len()));
            if !fits {
                return Err(ProviderRefusal::at(
                    path,
                    "string_above_max_length",
                    format!("Invalid tool call id: expected a string of 1 to {MAX_CALL_ID_BYTES} characters."),
                ));
            }
        }
        if let Some(id) = first_double(items(&message["tool_calls"]).filter_map(|call| call["id"].as_str())) {
            return Err(ProviderRefusal::at(
                path,
                "invalid_value",
                format!("Duplicate tool call id: {id}."),
            ));
        }
    }
    Ok(())
}

/// Every call is answered exactly once, directly behind its message; nothing else is answered.
fn results_follow_calls(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    let mut open: Vec<&str> = Vec::new();
    let mut answered: Vec<&str> = Vec::new();
    for (index, message) in messages(rule_input) {
        if role(message) != "tool" {
            unanswered(&open)?;
            answered.clear();
            open = items(&message["tool_calls"])
                .filter_map(|call| call["id"].as_str())
                .collect();
            continue;
        }
        let path = format!("messages[{index}].tool_call_id");
        let Some(id) = message["tool_call_id"].as_str() else {
            return Err(ProviderRefusal::at(
                path,
                "missing_required_parameter",
                "Missing required parameter: 'tool_call_id'.",
            ));
        };
        if let Some(found) = open.iter().position(|call| *call == id) {
            answered.push(open.remove(found));
        } else if answered.contains(&id) {
            return Err(ProviderRefusal::at(
                path,
                "invalid_value",
                format!("Duplicate tool message for tool_call_id '{id}'."),
            ));
        } else if open.is_empty() && answered.is_empty() {
            return Err(ProviderRefusal::at(
                format!("messages[{index}].role"),
                "invalid_value",
                "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.",
            ));
        } else {
            return Err(ProviderRefusal::at(
                path,
                "invalid_value",
                format!("Invalid parameter: 'tool_call_id' of '{id}' not found in 'tool_calls' of previous message."),
            ));
        }
    }
    unanswered(&open)
}

fn unanswered(open: &[&str]) -> Result<(), ProviderRefusal> {
    if open.is_empty() {
        return Ok(());
    }
    Err(ProviderRefusal::at(
        "messages",
        "invalid_value",
        format!(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: {}",
            open.join(", ")
        ),
    ))
}

fn wrong_type(path: String, expected: &str) -> ProviderRefusal {
    let message = format!("Invalid type for '{path}': expected {expected}.");
    ProviderRefusal::at(path, "invalid_type", message)
}
