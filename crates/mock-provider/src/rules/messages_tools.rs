//! Messages: tools and tool choice.

use serde_json::Value;

use super::chat_tools::is_object_schema;
use super::schemas::{anthropic_property_keys, anthropic_top_level};
use super::values::{first_double, is_given, is_tool_name, tools};
use super::{ProviderRefusal, Rule, RuleInput};

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "tools_list",
        check: tools_list,
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
        name: "tool_schema",
        check: tool_schema,
    },
    Rule {
        name: "tool_top_level",
        check: tool_top_level,
    },
    Rule {
        name: "tool_property_keys",
        check: tool_property_keys,
    },
    Rule {
        name: "tool_choice",
        check: tool_choice,
    },
];

fn tools_list(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    match &rule_input.body["tools"] {
        Value::Null => Ok(()),
        Value::Array(list) => match list.iter().position(|tool| !tool.is_object()) {
            Some(index) => Err(ProviderRefusal::invalid(format!(
                "tools.{index}: Input should be an object"
            ))),
            None => Ok(()),
        },
        _ => Err(ProviderRefusal::invalid("tools: Input should be a valid list")),
    }
}

fn tool_name(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    let limit = rule_input.provider.messages_tool_name_bytes;
    for (index, tool) in tools(rule_input) {
        match tool["name"].as_str() {
            // A toolset has no name.
            None if is_server_tool(tool) => {}
            None => {
                return Err(ProviderRefusal::invalid(format!(
                    "tools.{index}.custom.name: Field required"
                )));
            }
            Some(name) if is_tool_name(name, limit) => {}
            Some(_) => {
                return Err(ProviderRefusal::invalid(format!(
                    "tools.{index}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,{limit}}}$'"
                )));
            }
        }
    }
    Ok(())
}

fn tool_name_once(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    match first_double(tools(rule_input).filter_map(|(_, tool)| tool["name"].as_str())) {
        Some(name) => Err(ProviderRefusal::invalid(format!(
            "tools: Tool names must be unique. Found {name} twice."
        ))),
        None => Ok(()),
    }
}

/// Own tools have a JSON Schema of an object; a tool in the Chat shape is not known.
fn tool_schema(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    for (index, tool) in tools(rule_input) {
        let kind = tool["type"].as_str().unwrap_or_default();
        let is_missing = kind.starts_with("code_execution_") && !rule_input.provider.code_tools;
        if is_server_tool(tool) && !is_missing {
            continue;
        }
        if is_missing || kind == "function" {
            return Err(ProviderRefusal::invalid(format!(
                "tools.{index}: Input tag '{kind}' found using 'type' does not match any of the expected tags"
            )));
        }
        if !is_given(&tool["input_schema"]) {
            return Err(ProviderRefusal::invalid(format!(
                "tools.{index}.custom.input_schema: Field required"
            )));
        }
        let has_type = tool["input_schema"]["type"] == "object";
        if !has_type || !is_object_schema(&tool["input_schema"]) {
            return Err(ProviderRefusal::invalid(format!(
                "tools.{index}.custom.input_schema.type: Input should be 'object'"
            )));
        }
        if is_given(&tool["description"]) && !tool["description"].is_string() {
            return Err(ProviderRefusal::invalid(format!(
                "tools.{index}.custom.description: Input should be a valid string"
            )));
        }
    }
    Ok(())
}

fn tool_top_level(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    own_tools(rule_input).try_for_each(|(index, tool)| anthropic_top_level(index, &tool["input_schema"]))
}

fn tool_property_keys(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    own_tools(rule_input).try_for_each(|(index, tool)| anthropic_property_keys(index, &tool["input_schema"]))
}

/// The tools that the client runs.
fn own_tools<'a>(rule_input: &RuleInput<'a>) -> impl Iterator<Item = (usize, &'a Value)> {
    tools(rule_input).filter(|(_, tool)| !is_server_tool(tool))
}

fn tool_choice(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    let choice = &rule_input.body["tool_choice"];
    if !is_given(choice) {
        return Ok(());
    }
    let kind = choice["type"].as_str().unwrap_or_default();
    if !["auto", "any", "tool", "none"].contains(&kind) {
        return Err(ProviderRefusal::invalid(
            "tool_choice: Input should be an object with a type 'auto', 'any', 'tool' or 'none'",
        ));
    }
    if kind != "none" && tools(rule_input).next().is_none() {
        return Err(ProviderRefusal::invalid(
            "tool_choice may only be specified while providing tools.",
        ));
    }
    let named = |name: &str| tools(rule_input).any(|(_, tool)| tool["name"] == name);
    if kind == "tool" && !choice["name"].as_str().is_some_and(named) {
        return Err(ProviderRefusal::invalid(format!(
            "Tool {} not found in provided tools",
            choice["name"]
        )));
    }
    let thinks = matches!(
        rule_input.body["thinking"]["type"].as_str(),
        Some("enabled" | "adaptive")
    );
    if thinks && matches!(kind, "any" | "tool") {
        return Err(ProviderRefusal::invalid(
            "Thinking may not be enabled when tool_choice forces tool use.",
        ));
    }
    Ok(())
}

/// Server tools have a versioned type of their own.
fn is_server_tool(tool: &Value) -> bool {
    tool["type"]
        .as_str()
        .is_some_and(|kind| kind != "custom" && kind != "function")
}
