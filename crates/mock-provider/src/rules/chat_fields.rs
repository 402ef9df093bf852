//! Chat Completions: members of the request beside messages and tools.

use super::values::{is_given, tools};
use super::{ProviderRefusal, Rule, RuleInput};

/// Most answers per request.
const MAX_N: u64 = 128;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "model",
        check: model,
    },
    Rule { name: "n", check: n },
    Rule {
        name: "stream_flag",
        check: stream_flag,
    },
    Rule {
        name: "stream_options",
        check: stream_options,
    },
    Rule {
        name: "token_limits",
        check: token_limits,
    },
    Rule {
        name: "legacy_functions",
        check: legacy_functions,
    },
    Rule {
        name: "messages_members",
        check: messages_members,
    },
];

fn model(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    match rule_input.body["model"].as_str() {
        Some(model) if !model.is_empty() => Ok(()),
        _ => Err(ProviderRefusal::invalid("you must provide a model parameter")),
    }
}

fn n(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    let n = &rule_input.body["n"];
    if !is_given(n) || n.as_u64().is_some_and(|n| (1..=MAX_N).contains(&n)) {
        return Ok(());
    }
    Err(ProviderRefusal::at(
        "n",
        "invalid_value",
        format!("Invalid 'n': expected an integer from 1 to {MAX_N}, but got {n}."),
    ))
}

fn stream_flag(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    let stream = &rule_input.body["stream"];
    if !is_given(stream) || stream.is_boolean() {
        return Ok(());
    }
    Err(ProviderRefusal::at(
        "stream",
        "invalid_type",
        format!("Invalid type for 'stream': expected a boolean, but got {stream}."),
    ))
}

fn stream_options(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    if is_given(&rule_input.body["stream_options"]) && rule_input.body["stream"] != true {
        return Err(ProviderRefusal::at(
            "stream_options",
            "invalid_value",
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
        ));
    }
    Ok(())
}

fn token_limits(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    let body = rule_input.body;
    for field in ["max_tokens", "max_completion_tokens"] {
        let limit = &body[field];
        if is_given(limit) && limit.as_u64().is_none_or(|limit| limit == 0) {
            return Err(ProviderRefusal::at(
                field,
                "invalid_value",
                format!("Invalid '{field}': expected an integer of at least 1, but got {limit}."),
            ));
        }
    }
    if is_given(&body["max_tokens"]) && is_given(&body["max_completion_tokens"]) {
        return Err(ProviderRefusal::at(
            "max_tokens",
            "invalid_parameter_combination",
            "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.",
        ));
    }
    Ok(())
}

fn legacy_functions(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    let legacy = is_given(&rule_input.body["functions"]) || is_given(&rule_input.body["function_call"]);
    if legacy && (tools(rule_input).next().is_some() || is_given(&rule_input.body["tool_choice"])) {
        return Err(ProviderRefusal::at(
            "functions",
            "invalid_value",
            "'functions' and 'function_call' cannot be combined with 'tools' or 'tool_choice'.",
        ));
    }
    Ok(())
}

/// Members of the Messages format, and a container with ids of a local skill store: a gateway let them through.
fn messages_members(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    for field in ["system", "stop_sequences", "container"] {
        let foreign = field != "container" || rule_input.body[field].to_string().contains("litellm");
        if foreign && is_given(&rule_input.body[field]) {
            return Err(ProviderRefusal::at(
                field,
                "unknown_parameter",
                format!("Unrecognized request argument supplied: {field}"),
            ));
        }
    }
    Ok(())
}
