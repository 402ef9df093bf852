//! Responses: fields, tools and tool choice.

use serde_json::Value;

use super::chat_tools::is_object_schema;
use super::schemas::{openai_arrays, openai_top_level};
use super::values::{first_double, is_given, is_tool_name, items, tools};
use super::{ProviderRefusal, Rule, RuleInput};

/// Longest tool name in bytes.
const MAX_NAME_BYTES: usize = 128;
/// The members of a request. Unknown ones are refused.
const MEMBERS: [&str; 32] = [
    "background",
    "context_management",
    "conversation",
    "include",
    "input",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "model",
    "moderation",
    "parallel_tool_calls",
    "previous_response_id",
    "prompt",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "reasoning",
    "safety_identifier",
    "service_tier",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "truncation",
    "user",
    "verbosity",
];
/// Members that only an answer needs: a count refuses them.
const NOT_COUNTED: [&str; 6] = [
    "background",
    "include",
    "max_output_tokens",
    "metadata",
    "store",
    "stream",
];
/// The values that `include` accepts.
const INCLUDES: [&str; 8] = [
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "message.output_text.logprobs",
    "reasoning.encrypted_content",
    "web_search_call.action.sources",
    "web_search_call.results",
];
/// Types of tools that have no name of their own, or are not checked further.
const HOSTED: [&str; 17] = [
    "apply_patch",
    "code_interpreter",
    "computer",
    "computer_use_preview",
    "file_search",
    "image_generation",
    "local_shell",
    "mcp",
    "namespace",
    "programmatic_tool_calling",
    "shell",
    "tool_search",
    "web_search",
    "web_search_2025_08_26",
    "web_search_preview",
    "web_search_preview_2025_03_11",
    "custom",
];

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "known_fields",
        check: known_fields,
    },
    Rule {
        name: "model_given",
        check: model_given,
    },
    Rule {
        name: "instructions_text",
        check: instructions_text,
    },
    Rule {
        name: "one_state",
        check: one_state,
    },
    Rule {
        name: "flags",
        check: flags,
    },
    Rule {
        name: "include_known",
        check: include_known,
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
];

fn known_fields(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    let members = rule_input.body.as_object().into_iter().flatten();
    for (key, _) in members {
        if !MEMBERS.contains(&key.as_str()) || (rule_input.counting && NOT_COUNTED.contains(&key.as_str())) {
            return Err(ProviderRefusal::at(
                key.clone(),
                "unknown_parameter",
                format!("Unknown parameter: '{key}'."),
            ));
        }
    }
    Ok(())
}

fn model_given(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    if rule_input.body["model"].as_str().is_some_and(|model| !model.is_empty()) {
        return Ok(());
    }
    Err(ProviderRefusal::at(
        "model",
        "missing_required_parameter",
        "Missing required parameter: 'model'.",
    ))
}

fn instructions_text(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    let instructions = &rule_input.body["instructions"];
    if instructions.is_null() || instructions.is_string() {
        return Ok(());
    }
    Err(ProviderRefusal::at(
        "instructions",
        "invalid_type",
        "Invalid type for 'instructions': expected a string.",
    ))
}

fn one_state(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    if is_given(&rule_input.body["previous_response_id"]) && is_given(&rule_input.body["conversation"]) {
        return Err(ProviderRefusal::at(
            "previous_response_id",
            "mutually_exclusive_parameters",
            "Mutually exclusive parameters: 'previous_response_id' and 'conversation'.",
        ));
    }
    Ok(())
}

fn flags(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    for key in ["background", "parallel_tool_calls", "store", "stream"] {
        let flag = &rule_input.body[key];
        if is_given(flag) && !flag.is_boolean() {
            return Err(ProviderRefusal::at(
                key,
                "invalid_type",
                format!("Invalid type for '{key}': expected a boolean."),
            ));
        }
    }
    Ok(())
}

fn include_known(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    let include = &rule_input.body["include"];
    let known = |one: &Value| one.as_str().is_some_and(|name| INCLUDES.contains(&name));
    if include.is_null() || include.as_array().is_some_and(|all| all.iter().all(known)) {
        return Ok(());
    }
    Err(ProviderRefusal::at(
        "include",
        "invalid_value",
        format!("Invalid value: {include}. Supported values are: {INCLUDES:?}."),
    ))
}

fn tool_type(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    for (index, tool) in tools(rule_input) {
        let kind = tool["type"].as_str().unwrap_or_default();
        let has_tool = kind != "shell" || rule_input.provider.code_tools;
        if kind != "function" && !(HOSTED.contains(&kind) && has_tool) {
            return Err(ProviderRefusal::at(
                format!("tools[{index}].type"),
                "invalid_value",
                format!("Invalid value: '{kind}'. A type of tool is expected."),
            ));
        }
    }
    Ok(())
}

fn named<'a>(rule_input: &RuleInput<'a>) -> impl Iterator<Item = (usize, &'a Value)> {
    tools(rule_input).filter(|(_, tool)| ["function", "custom"].contains(&tool["type"].as_str().unwrap_or_default()))
}

fn tool_name(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    for (index, tool) in named(rule_input) {
        if !is_tool_name(tool["name"].as_str().unwrap_or_default(), MAX_NAME_BYTES) {
            return Err(ProviderRefusal::at(
                format!("tools[{index}].name"),
                "invalid_value",
                format!(
                    "Invalid 'tools[{index}].name': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$', at most {MAX_NAME_BYTES} long."
                ),
            ));
        }
    }
    Ok(())
}

fn tool_name_once(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    match first_double(named(rule_input).filter_map(|(_, tool)| tool["name"].as_str())) {
        Some(name) => Err(ProviderRefusal::at(
            "tools",
            "invalid_value",
            format!("Duplicate tool name: '{name}'. Tool names must be unique."),
        )),
        None => Ok(()),
    }
}

/// A schema of an object; a strict one names all of its properties as required and allows no others.
fn tool_parameters(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    for (index, tool) in tools(rule_input).filter(|(_, tool)| tool["type"] == "function") {
        let (parameters, name) = (&tool["parameters"], tool["name"].as_str().unwrap_or_default());
        let refuse = |text: &str| {
            Err(ProviderRefusal::at(
                format!("tools[{index}].parameters"),
                "invalid_function_parameters",
                format!("Invalid schema for function '{name}': {text}"),
            ))
        };
        if is_given(parameters) && !is_object_schema(parameters) {
            return refuse("schema must be a JSON Schema of 'type: \"object\"'.");
        }
        let required = items(&parameters["required"]).count();
        let properties = parameters["properties"].as_object().map_or(0, serde_json::Map::len);
        if tool["strict"] == true && (parameters["additionalProperties"] != false || required != properties) {
            return refuse(
                "'additionalProperties' is required to be supplied and to be false, and 'required' to include every key in properties.",
            );
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
        let name = tool["name"].as_str().unwrap_or_default();
        (format!("tools[{index}].parameters"), name, &tool["parameters"])
    })
}

fn tool_choice(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    let choice = &rule_input.body["tool_choice"];
    if !is_given(choice) {
        return Ok(());
    }
    let offered = |one: &Value| {
        tools(rule_input)
            .any(|(_, tool)| tool["type"] == one["type"] && (one["name"].is_null() || tool["name"] == one["name"]))
    };
    let holds = match (choice.as_str(), choice["type"].as_str()) {
        (Some("required"), _) => tools(rule_input).next().is_some(),
        (Some(word), _) => ["none", "auto"].contains(&word),
        (None, Some("allowed_tools")) => {
            ["auto", "required"].contains(&choice["mode"].as_str().unwrap_or_default())
                && items(&choice["tools"]).all(offered)
        }
        (None, Some("function" | "custom")) => choice["name"].is_string() && offered(choice),
        (None, Some(_)) => offered(choice),
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
