//! Responses: the shell, its calls and their outputs.

use serde_json::Value;

use super::values::{is_given, items, tools};
use super::{ProviderRefusal, Rule, RuleInput};

/// Longest call id in bytes.
const MAX_CALL_ID_BYTES: usize = 64;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "shell_environment",
        check: shell_environment,
    },
    Rule {
        name: "shell_call_fields",
        check: shell_call_fields,
    },
    Rule {
        name: "shell_output_fields",
        check: shell_output_fields,
    },
    Rule {
        name: "shell_pairs",
        check: shell_pairs,
    },
];

/// One of three environments; skills that are attached are the provider's own: ids of a gateway are not found here.
fn shell_environment(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    for (index, tool) in tools(rule_input).filter(|(_, tool)| tool["type"] == "shell") {
        let environment = &tool["environment"];
        if !is_given(environment) {
            continue;
        }
        let kind = environment["type"].as_str().unwrap_or_default();
        let complete = kind != "container_reference" || environment["container_id"].is_string();
        if !["local", "container_auto", "container_reference"].contains(&kind) || !complete {
            return Err(ProviderRefusal::at(
                format!("tools[{index}].environment"),
                "invalid_value",
                format!(
                    "Invalid value: {environment}. Supported environments are 'local', 'container_auto' and 'container_reference'."
                ),
            ));
        }
        for skill in items(&environment["skills"]).filter(|skill| skill["type"] == "skill_reference") {
            let id = skill["skill_id"].as_str().unwrap_or_default();
            if !id.starts_with("skill_") || id.starts_with("skill_knack_") {
                return Err(ProviderRefusal {
                    status: 404,
                    ..ProviderRefusal::at(
                        format!("tools[{index}].environment.skills"),
                        "not_found",
                        format!("Skill '{id}' not found."),
                    )
                });
            }
        }
    }
    Ok(())
}

fn of_type<'a>(rule_input: &RuleInput<'a>, kind: &'static str) -> impl Iterator<Item = (usize, &'a Value)> {
    let input = items(&rule_input.body["input"]).enumerate();
    input.filter(move |(_, item)| item["type"] == kind)
}

fn has_call_id(item: &Value) -> bool {
    item["call_id"]
        .as_str()
        .is_some_and(|id| (1..=MAX_CALL_ID_BYTES).contains(&id.len()))
}

/// `id` and `status` are optional in an input.
fn has_id(item: &Value, prefix: &str) -> bool {
    !is_given(&item["id"]) || item["id"].as_str().is_some_and(|id| id.starts_with(prefix))
}

fn shell_call_fields(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    for (at, item) in of_type(rule_input, "shell_call") {
        let commands = item["action"]["commands"].as_array();
        let texts = commands.is_some_and(|list| !list.is_empty() && list.iter().all(Value::is_string));
        if !texts || !has_call_id(item) || !has_id(item, "sh_") {
            return Err(ProviderRefusal::at(
                format!("input[{at}]"),
                "invalid_value",
                format!("Invalid 'input[{at}]': a shell_call has 'call_id' and 'action.commands', a list of strings."),
            ));
        }
    }
    Ok(())
}

fn shell_output_fields(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    let holds = |one: &Value| {
        let outcome = &one["outcome"];
        let ended = match outcome["type"].as_str() {
            Some("exit") => outcome["exit_code"].is_i64(),
            Some("timeout") => true,
            _ => false,
        };
        one["stdout"].is_string() && one["stderr"].is_string() && ended
    };
    for (at, item) in of_type(rule_input, "shell_call_output") {
        let complete = item["output"].as_array().is_some_and(|list| list.iter().all(holds));
        if !complete || !has_call_id(item) || !has_id(item, "sho_") {
            return Err(ProviderRefusal::at(
                format!("input[{at}].output"),
                "invalid_value",
                format!(
                    "Invalid 'input[{at}]': a shell_call_output has 'call_id' and 'output', a list of 'stdout', 'stderr' and 'outcome'."
                ),
            ));
        }
    }
    Ok(())
}

/// Each call has one output behind it, and each output a call.
fn shell_pairs(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    let calls: Vec<(usize, &Value)> = of_type(rule_input, "shell_call").collect();
    let outputs: Vec<(usize, &Value)> = of_type(rule_input, "shell_call_output").collect();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for (at, call) in &calls {
        let answers = outputs
            .iter()
            .filter(|(number, output)| number > at && output["call_id"] == call["call_id"]);
        if answers.count() != 1 {
            let id = text(&call["call_id"]);
            return Err(ProviderRefusal::at(
                "input",
                "invalid_value",
                format!("No shell call output found for shell call {id}."),
            ));
        }
    }
    for (_, output) in &outputs {
        if calls
            .iter()
            .filter(|(_, call)| call["call_id"] == output["call_id"])
            .count()
            != 1
        {
            let id = text(&output["call_id"]);
            return Err(ProviderRefusal::at(
                "input",
                "invalid_value",
                format!("No shell call found for shell call output with call_id {id}."),
            ));
        }
    }
    Ok(())
}
