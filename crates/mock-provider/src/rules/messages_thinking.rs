//! Messages: thinking blocks must be sent back unchanged.

use serde_json::Value;

use super::values::{Run, block_type, runs};
use super::{ProviderRefusal, Rule, RuleInput};
use crate::signature;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "thinking_signature",
        check: thinking_signature,
    },
    Rule {
        name: "thinking_not_last",
        check: thinking_not_last,
    },
    Rule {
        name: "thinking_kept",
        check: thinking_kept,
    },
];

fn thinking_signature(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    for run in runs(rule_input) {
        for (index, block) in run.blocks.iter().enumerate() {
            let holds = match block_type(block) {
                "thinking" => signature::verify(
                    block["thinking"].as_str().unwrap_or_default(),
                    block["signature"].as_str().unwrap_or_default(),
                ),
                "redacted_thinking" => signature::verify_sealed(block["data"].as_str().unwrap_or_default()),
                _ => true,
            };
            if !holds {
                return Err(ProviderRefusal::invalid(format!(
                    "messages.{}.content.{index}: Invalid `signature` in `{}` block",
                    run.index,
                    block_type(block)
                )));
            }
        }
    }
    Ok(())
}

fn thinking_not_last(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    for run in runs(rule_input).iter().filter(|run| run.role == "assistant") {
        if run.blocks.last().is_some_and(|block| is_thinking(block)) {
            return Err(ProviderRefusal::invalid(format!(
                "messages.{}: The final block in an assistant message cannot be `thinking`.",
                run.index
            )));
        }
    }
    Ok(())
}

/// In the open tool turn (after the last real user text), thinking must be at its original position.
///
/// The id of a call has a mark over the thinking blocks before it. They, and no others, must precede the call: further
/// ones belong to another answer, whether separate or directly before.
fn thinking_kept(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    let runs = runs(rule_input);
    let turn_start = runs
        .iter()
        .rposition(|run| run.role == "user" && run.of("tool_result").next().is_none())
        .map_or(0, |position| position + 1);
    runs[turn_start..]
        .iter()
        .filter(|run| run.role == "assistant")
        .try_for_each(|run| {
            let calls = run
                .blocks
                .iter()
                .enumerate()
                .filter(|(_, block)| block["type"] == "tool_use");
            for (at, call) in calls {
                let Some(mark) = call["id"].as_str().and_then(signature::mark_of) else {
                    continue;
                };
                one_call(run, at, mark, rule_input.provider.foreign_thinking)?;
            }
            Ok(())
        })
}

fn one_call(run: &Run<'_>, at: usize, mark: &str, foreign_allowed: bool) -> Result<(), ProviderRefusal> {
    let thoughts: Vec<String> = run.blocks[..at]
        .iter()
        .filter(|block| is_thinking(block))
        .map(|block| seal_of(block))
        .collect();
    if thoughts.is_empty() {
        return Err(ProviderRefusal::invalid(format!(
            "messages.{}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{}`. When `thinking` is enabled, a final `assistant` message must start with a thinking block.",
            run.index,
            run.blocks.first().map_or("nothing", |block| block_type(block))
        )));
    }
    let changed = || {
        ProviderRefusal::invalid(format!(
            "messages.{}.content: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. These blocks must remain as they were in the original response.",
            run.index
        ))
    };
    let group_start = (0..thoughts.len())
        .find(|start| signature::mark(&thoughts[*start..]) == mark)
        .ok_or_else(changed)?;
    if group_start > 0 && !foreign_allowed {
        Err(changed())
    } else {
        Ok(())
    }
}

fn is_thinking(block: &Value) -> bool {
    matches!(block_type(block), "thinking" | "redacted_thinking")
}

/// The seal that the mark is made of: a block's signature, or the data of a redacted one.
fn seal_of(block: &Value) -> String {
    block["signature"]
        .as_str()
        .or_else(|| block["data"].as_str())
        .unwrap_or_default()
        .to_owned()
}
