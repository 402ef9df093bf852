//! Messages: headers and members of the request beside blocks and tools.

use serde_json::Value;

use super::values::{is_given, items};
use super::{ProviderRefusal, Rule, RuleInput};

/// Versions of the API that the provider accepts.
const VERSIONS: [&str; 3] = ["2023-01-01", "2023-06-01", "2026-10-21"];
/// The version that ended sampling parameters, documents of the assistant and citations of users.
pub(super) const NEW_VERSION: &str = "2026-10-21";
/// Smallest thinking budget in tokens.
const MIN_THINKING_BUDGET: u64 = 1024;
/// Most skills of a container.
const MAX_CONTAINER_SKILLS: usize = 8;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "version",
        check: version,
    },
    Rule {
        name: "model",
        check: model,
    },
    Rule {
        name: "max_tokens",
        check: max_tokens,
    },
    Rule {
        name: "stream_flag",
        check: stream_flag,
    },
    Rule {
        name: "chat_members",
        check: chat_members,
    },
    Rule {
        name: "system_shape",
        check: system_shape,
    },
    Rule {
        name: "sampling",
        check: sampling,
    },
    Rule {
        name: "thinking_budget",
        check: thinking_budget,
    },
    Rule {
        name: "container",
        check: container,
    },
    Rule {
        name: "thread",
        check: thread,
    },
];

fn version(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    match rule_input.header("anthropic-version") {
        None => Err(ProviderRefusal::invalid("anthropic-version: header is required")),
        Some(version) if VERSIONS.contains(&version) => Ok(()),
        Some(version) => Err(ProviderRefusal::invalid(format!(
            "anthropic-version: \"{version}\" is not a valid version"
        ))),
    }
}

fn model(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    match &rule_input.body["model"] {
        Value::String(model) if !model.is_empty() => Ok(()),
        Value::Null => Err(ProviderRefusal::invalid("model: Field required")),
        _ => Err(ProviderRefusal::invalid("model: Input should be a valid string")),
    }
}

fn max_tokens(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    match &rule_input.body["max_tokens"] {
        Value::Null if rule_input.counting => Ok(()),
        Value::Null => Err(ProviderRefusal::invalid("max_tokens: Field required")),
        limit if limit.as_u64().is_some_and(|limit| limit > 0) => Ok(()),
        _ => Err(ProviderRefusal::invalid(
            "max_tokens: Input should be an integer greater than or equal to 1",
        )),
    }
}

fn stream_flag(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    match &rule_input.body["stream"] {
        Value::Null | Value::Bool(_) => Ok(()),
        _ => Err(ProviderRefusal::invalid("stream: Input should be a valid boolean")),
    }
}

/// Members of the Chat format.
fn chat_members(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    for field in [
        "n",
        "functions",
        "function_call",
        "stream_options",
        "parallel_tool_calls",
        "max_completion_tokens",
    ] {
        if is_given(&rule_input.body[field]) {
            return Err(ProviderRefusal::invalid(format!(
                "{field}: Extra inputs are not permitted"
            )));
        }
    }
    Ok(())
}

/// `system` is a string or a list of text blocks that say something.
fn system_shape(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    match &rule_input.body["system"] {
        Value::Null | Value::String(_) => Ok(()),
        Value::Array(blocks) => {
            for (index, block) in blocks.iter().enumerate() {
                if block["type"] != "text" {
                    return Err(ProviderRefusal::invalid(format!(
                        "system.{index}.type: Input should be 'text'"
                    )));
                }
                match block["text"].as_str() {
                    None => {
                        return Err(ProviderRefusal::invalid(format!(
                            "system.{index}.text: Input should be a valid string"
                        )));
                    }
                    Some("") => {
                        return Err(ProviderRefusal::invalid(
                            "system: text content blocks must be non-empty",
                        ));
                    }
                    Some(_) => {}
                }
            }
            Ok(())
        }
        _ => Err(ProviderRefusal::invalid(
            "system: Input should be a valid string or list",
        )),
    }
}

fn sampling(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    if rule_input.header("anthropic-version") != Some(NEW_VERSION) {
        return Ok(());
    }
    match ["temperature", "top_p", "top_k"]
        .into_iter()
        .find(|field| is_given(&rule_input.body[*field]))
    {
        Some(field) => Err(ProviderRefusal::invalid(format!(
            "{field}: not supported under version {NEW_VERSION}"
        ))),
        None => Ok(()),
    }
}

fn thinking_budget(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    let thinking = &rule_input.body["thinking"];
    match thinking["type"].as_str() {
        None if !is_given(thinking) => Ok(()),
        Some("disabled" | "adaptive") => Ok(()),
        Some("enabled") => {
            let budget = thinking["budget_tokens"].as_u64().unwrap_or_default();
            if budget < MIN_THINKING_BUDGET {
                return Err(ProviderRefusal::invalid(format!(
                    "thinking.enabled.budget_tokens: Input should be greater than or equal to {MIN_THINKING_BUDGET}"
                )));
            }
            if rule_input.body["max_tokens"]
                .as_u64()
                .is_some_and(|limit| limit <= budget)
            {
                return Err(ProviderRefusal::invalid(
                    "`max_tokens` must be greater than `thinking.budget_tokens`",
                ));
            }
            Ok(())
        }
        _ => Err(ProviderRefusal::invalid(
            "thinking.type: Input should be 'enabled', 'disabled' or 'adaptive'",
        )),
    }
}

/// A conversation is kept nowhere: a thread may be begun, and is lost at once, as it may be at the API.
fn thread(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    let thread = &rule_input.body["thread"];
    if !is_given(thread) {
        return Ok(());
    }
    match (thread["type"].as_str(), thread["previous_message_id"].as_str()) {
        (Some("create"), _) => Ok(()),
        (Some("continue"), Some(id)) => Err(ProviderRefusal {
            status: 404,
            kind: "not_found_error",
            code: Some("thread_not_found"),
            ..ProviderRefusal::invalid(format!("No usable thread state was found for {id}"))
        }),
        (Some("continue"), None) => Err(ProviderRefusal::invalid(
            "thread.continue.previous_message_id: Field required",
        )),
        _ => Err(ProviderRefusal::invalid(
            "thread.type: Input should be 'create' or 'continue'",
        )),
    }
}

/// Containers and skills are the vendor's own: ids of a gateway or of a local store are not found here.
fn container(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    let container = &rule_input.body["container"];
    let id = container
        .as_str()
        .or_else(|| container["id"].as_str())
        .unwrap_or_default();
    if id.starts_with("container_knack_") {
        return Err(ProviderRefusal {
            status: 404,
            kind: "not_found_error",
            ..ProviderRefusal::invalid(format!("container {id} not found"))
        });
    }
    let skills = items(&container["skills"]);
    for (index, skill) in skills.enumerate() {
        if index >= MAX_CONTAINER_SKILLS {
            return Err(ProviderRefusal::invalid(format!(
                "container.skills: at most {MAX_CONTAINER_SKILLS} skills"
            )));
        }
        let kind = skill["type"].as_str().unwrap_or_default();
        let skill_id = skill["skill_id"].as_str().unwrap_or_default();
        if !["anthropic", "custom"].contains(&kind) || skill_id.is_empty() {
            return Err(ProviderRefusal::invalid(format!(
                "container.skills.{index}: needs a type 'anthropic' or 'custom' and a skill_id"
            )));
        }
        if kind == "custom" && !skill_id.starts_with("skill_") {
            return Err(ProviderRefusal {
                status: 404,
                kind: "not_found_error",
                ..ProviderRefusal::invalid(format!("Skill {skill_id} not found"))
            });
        }
    }
    let runs_code = items(&rule_input.body["tools"]).any(|tool| {
        tool["type"]
            .as_str()
            .is_some_and(|kind| kind.starts_with("code_execution_"))
    });
    if items(&container["skills"]).next().is_some() && !runs_code {
        return Err(ProviderRefusal::invalid(
            "container: skills can only be used when a code execution tool is enabled",
        ));
    }
    Ok(())
}
