//! Chat Completions: tools and tool choice.

use serde_json::Value;

use super::schemas::{openai_arrays, openai_top_level};
use super::values::{first_double, is_given, is_tool_name, tools};
use super::{ProviderRefusal, Rule, RuleInput};

/// Longest tool name in bytes.
pub(super) const MAX_NAME_BYTES: usize = 64;
/// Most tools of a request.
const MAX_TOOLS: usize = 128;
/// Longest description in characters.
const MAX_DESCRIPTION_CHARS: usize = 1024;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "tools_list",
        check: tools_list,
    },
    Rule {
        name: "tool_count",
        check: tool_count,
    },
    Rule {
        name: "tool_type",
        check: tool_type,
    },
    Rule {
        name: "tool_name",
        check: tool_name,
    },
    Rule {
        name: "tool_name_once",
        check: tool_name_once,
    },
    Rule {
        name: "tool_description",
        check: tool_description,
    },
    Rule {
        name: "tool_parameters",
        check: tool_parameters,
    },
    Rule {
        name: "tool_top_level",
        check: tool_top_level,
    },
    Rule {
        name: "tool_arrays",
        check: tool_arrays,
    },
    Rule {
        name: "tool_choice",
        check: tool_choice,
    },
    Rule {
        name: "parallel_flag",
        check: parallel_flag,
    },
];

fn tools_list(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    match &rule_input.body["tools"] {
        Value::Null => Ok(()),
        Value::Array(list) if !list.is_empty() => Ok(()),
        Value::Array(_) => Err(ProviderRefusal::at(
            "tools",
            "empty_array",
            "Invalid 'tools': empty array. Expected an array with minimum length 1, but got an empty array instead.",
        )),
        _ => Err(ProviderRefusal::at(
            "tools",
            "invalid_type",
            "Invalid type for 'tools': expected an array of objects.",
        )),
    }
}

fn tool_count(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    let count = tools(rule_input).count();
    if count <= MAX_TOOLS {
        return Ok(());
    }
    Err(ProviderRefusal::at(
        "tools",
        "array_above_max_length",
        format!(
            "Invalid 'tools': array too long. Expected an array with maximum length {MAX_TOOLS}, but got an array with length {count} instead."
        ),
    ))
}

fn tool_type(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    for (index, tool) in tools(rule_input) {
        let kind = tool["type"].as_str().unwrap_or_default();
        if !["function", "custom"].contains(&kind) || !tool[kind].is_object() {
            return Err(ProviderRefusal::at(
                format!("tools[{index}].type"),
                "invalid_value",
                format!("Invalid tools[{index}]: expected a type 'function' or 'custom' and an object of that name."),
            ));
        }
    }
    Ok(())
}

fn tool_name(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    for (index, tool) in tools(rule_input) {
        let kind = tool["type"].as_str().unwrap_or_default();
        let path = format!("tools[{index}].{kind}.name");
        let name = name_of(tool).unwrap_or_default();
        if name.len() > MAX_NAME_BYTES {
            return Err(ProviderRefusal::at(
                path.clone(),
                "string_above_max_length",
                format!(
                    "Invalid '{path}': string too long. Expected a string with maximum length {MAX_NAME_BYTES}, but got a string with length {} instead.",
                    name.len()
                ),
            ));
        }
        if !is_tool_name(name, MAX_NAME_BYTES) {
            return Err(ProviderRefusal::at(
                path.clone(),
                "invalid_value",
                format!(
                    "Invalid '{path}': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
                ),
            ));
        }
    }
    Ok(())
}

fn tool_name_once(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    match first_double(tools(rule_input).filter_map(|(_, tool)| name_of(tool))) {
        Some(name) => Err(ProviderRefusal::at(
            "tools",
            "invalid_value",
            format!("Duplicate tool name: '{name}'. Tool names must be unique."),
        )),
        None => Ok(()),
    }
}

fn tool_description(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    for (index, tool) in tools(rule_input) {
        let description = &tool[tool["type"].as_str().unwrap_or_default()]["description"];
        let fits = match description {
            Value::Null => true,
            Value::String(text) => text.chars().count() <= MAX_DESCRIPTION_CHARS,
            _ => false,
        };
        if !fits {
            let path = format!("tools[{index}].function.description");
            let message = format!("Invalid '{path}': expected a string with maximum length {MAX_DESCRIPTION_CHARS}.");
            return Err(ProviderRefusal::at(path, "string_above_max_length", message));
        }
    }
    Ok(())
}

/// Parameters are absent or a JSON Schema of an object.
fn tool_parameters(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    for (index, tool) in tools(rule_input).filter(|(_, tool)| tool["type"] == "function") {
        let function = &tool["function"];
        let parameters = &function["parameters"];
        if is_given(parameters) && !is_object_schema(parameters) {
            let name = function["name"].as_str().unwrap_or_default();
            return Err(ProviderRefusal::at(
                format!("tools[{index}].function.parameters"),
                "invalid_function_parameters",
                format!(
                    "Invalid schema for function '{name}': schema must be a JSON Schema of 'type: \"object\"', got {}.",
                    parameters["type"]
                ),
            ));
        }
        if is_given(&function["strict"]) && !function["strict"].is_boolean() {
            return Err(ProviderRefusal::at(
                format!("tools[{index}].function.strict"),
                "invalid_type",
                "Invalid type for 'strict': expected a boolean.",
            ));
        }
    }
    Ok(())
}

fn tool_top_level(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    schemas(rule_input).try_for_each(|(param, name, schema)| openai_top_level(param, name, schema))
}

fn tool_arrays(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    schemas(rule_input).try_for_each(|(param, name, schema)| openai_arrays(param, name, schema))
}

/// The parameters of functions, each with its place and the name of its function.
fn schemas<'a>(rule_input: &RuleInput<'a>) -> impl Iterator<Item = (String, &'a str, &'a Value)> {
    let functions = tools(rule_input).filter(|(_, tool)| tool["type"] == "function");
    functions.map(|(index, tool)| {
        let function = &tool["function"];
        let name = function["name"].as_str().unwrap_or_default();
        (
            format!("tools[{index}].function.parameters"),
            name,
            &function["parameters"],
        )
    })
}

/// A schema of an object: `type` is `object` (or absent beside nothing else), `properties` an object of schemas,
/// `required` a list of names.
pub(super) fn is_object_schema(schema: &Value) -> bool {
    let Some(members) = schema.as_object() else {
        return false;
    };
    let type_holds = members.get("type").map_or(members.is_empty(), |kind| kind == "object");
    let properties_hold = members.get("properties").is_none_or(|properties| {
        properties
            .as_object()
            .is_some_and(|all| all.values().all(|one| one.is_object() || one.is_boolean()))
    });
    let required_holds = members
        .get("required")
        .is_none_or(|required| required.as_array().is_some_and(|all| all.iter().all(Value::is_string)));
    type_holds && properties_hold && required_holds
}

fn tool_choice(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    let choice = &rule_input.body["tool_choice"];
    if !is_given(choice) {
        return Ok(());
    }
    if tools(rule_input).next().is_none() && choice != "none" {
        return Err(ProviderRefusal::at(
            "tool_choice",
            "invalid_value",
            "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified.",
        ));
    }
    let offered = |name: &Value| tools(rule_input).any(|(_, tool)| name_of(tool) == name.as_str() && name.is_string());
    let holds = match (choice.as_str(), choice["type"].as_str()) {
        (Some(word), _) => ["none", "auto", "required"].contains(&word),
        (None, Some(kind @ ("function" | "custom"))) => offered(&choice[kind]["name"]),
        (None, Some("allowed_tools")) => {
            let allowed = &choice["allowed_tools"];
            ["auto", "required"].contains(&allowed["mode"].as_str().unwrap_or_default())
                && allowed["tools"].as_array().is_some_and(|all| {
                    all.iter()
                        .all(|one| offered(&one[one["type"].as_str().unwrap_or_default()]["name"]))
                })
        }
        _ => false,
    };
    if holds {
        return Ok(());
    }
    Err(ProviderRefusal::at(
        "tool_choice",
        "invalid_value",
        format!("Tool choice {choice} not found in 'tools' parameter or not a valid choice."),
    ))
}

fn parallel_flag(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    let flag = &rule_input.body["parallel_tool_calls"];
    if is_given(flag) && (tools(rule_input).next().is_none() || !flag.is_boolean()) {
        return Err(ProviderRefusal::at(
            "parallel_tool_calls",
            "invalid_value",
            "Invalid value for 'parallel_tool_calls': a boolean that is only allowed when 'tools' are specified.",
        ));
    }
    Ok(())
}

fn name_of(tool: &Value) -> Option<&str> {
    tool[tool["type"].as_str().unwrap_or_default()]["name"].as_str()
}
