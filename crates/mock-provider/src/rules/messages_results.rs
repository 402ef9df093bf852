//! Messages: calls and their results, of client tools and of server tools.

use super::values::{first_double, runs};
use super::{ProviderRefusal, Rule, RuleInput};

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "call_ids_once",
        check: call_ids_once,
    },
    Rule {
        name: "results_follow_calls",
        check: results_follow_calls,
    },
    Rule {
        name: "results_first",
        check: results_first,
    },
    Rule {
        name: "results_known",
        check: results_known,
    },
    Rule {
        name: "results_once",
        check: results_once,
    },
    Rule {
        name: "server_results_known",
        check: server_results_known,
    },
];

fn call_ids_once(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    let runs = runs(rule_input);
    let ids = runs
        .iter()
        .flat_map(|run| run.of("tool_use").chain(run.of("server_tool_use")))
        .filter_map(|call| call["id"].as_str());
    match first_double(ids) {
        Some(id) => Err(ProviderRefusal::invalid(format!(
            "messages: `tool_use` ids must be unique, found {id} twice"
        ))),
        None => Ok(()),
    }
}

/// Every call of a message is answered in the very next message.
fn results_follow_calls(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    let runs = runs(rule_input);
    for (position, run) in runs.iter().enumerate() {
        let answered: Vec<&str> = runs
            .get(position + 1)
            .into_iter()
            .flat_map(|next| next.of("tool_result"))
            .filter_map(|result| result["tool_use_id"].as_str())
            .collect();
        let open: Vec<&str> = run
            .of("tool_use")
            .filter_map(|call| call["id"].as_str())
            .filter(|id| !answered.contains(id))
            .collect();
        if !open.is_empty() {
            return Err(ProviderRefusal::invalid(format!(
                "messages.{}: `tool_use` ids were found without `tool_result` blocks immediately after: {}. Each `tool_use` block must have a corresponding `tool_result` block in the next message.",
                run.index,
                open.join(", ")
            )));
        }
    }
    Ok(())
}

/// Results are the first blocks of their message; text may follow, not precede.
fn results_first(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    for run in runs(rule_input).iter().filter(|run| run.role == "user") {
        let late = run
            .blocks
            .iter()
            .skip_while(|block| block["type"] == "tool_result")
            .any(|block| block["type"] == "tool_result");
        if late {
            return Err(ProviderRefusal::invalid(format!(
                "messages.{}: `tool_result` blocks must come first in the user message, before any other content",
                run.index
            )));
        }
    }
    Ok(())
}

fn results_known(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    let runs = runs(rule_input);
    for (position, run) in runs.iter().enumerate() {
        let calls: Vec<&str> = position
            .checked_sub(1)
            .and_then(|before| runs.get(before))
            .into_iter()
            .flat_map(|before| before.of("tool_use"))
            .filter_map(|call| call["id"].as_str())
            .collect();
        for result in run.of("tool_result") {
            let id = result["tool_use_id"].as_str().unwrap_or_default();
            if !calls.contains(&id) {
                return Err(ProviderRefusal::invalid(format!(
                    "messages.{}: unexpected `tool_use_id` found in `tool_result` blocks: {id}. Each `tool_result` block must have a corresponding `tool_use` block in the previous message.",
                    run.index
                )));
            }
        }
    }
    Ok(())
}

fn results_once(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    for run in runs(rule_input) {
        if let Some(id) = first_double(
            run.of("tool_result")
                .filter_map(|result| result["tool_use_id"].as_str()),
        ) {
            return Err(ProviderRefusal::invalid(format!(
                "messages.{}: each tool_use must have a single result. Found multiple `tool_result` blocks with id: {id}",
                run.index
            )));
        }
    }
    Ok(())
}

/// Results of server tools follow their call, within one message of the assistant; a call without a result may only be
/// in the last message.
fn server_results_known(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    let runs = runs(rule_input);
    for (position, run) in runs.iter().enumerate().filter(|(_, run)| run.role == "assistant") {
        let mut open: Vec<&str> = Vec::new();
        for block in &run.blocks {
            let kind = block["type"].as_str().unwrap_or_default();
            if kind == "server_tool_use" {
                open.extend(block["id"].as_str());
            } else if kind.ends_with("_tool_result") {
                let id = block["tool_use_id"].as_str().unwrap_or_default();
                let Some(found) = open.iter().position(|call| *call == id) else {
                    return Err(ProviderRefusal::invalid(format!(
                        "messages.{}: `{kind}` block without a `server_tool_use` block before it: {id}",
                        run.index
                    )));
                };
                open.remove(found);
            }
        }
        if position + 1 < runs.len() && !open.is_empty() {
            return Err(ProviderRefusal::invalid(format!(
                "messages.{}: `server_tool_use` ids were found without a result block: {}",
                run.index,
                open.join(", ")
            )));
        }
    }
    Ok(())
}
