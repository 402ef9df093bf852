//! Gemini: code that ran, and its results, in a history.

use serde_json::Value;

use super::values::{is_given, items};
use super::{ProviderRefusal, Rule, RuleInput};
use crate::received::{field, parts_with};

/// How code ended.
const OUTCOMES: [&str; 3] = ["OUTCOME_OK", "OUTCOME_FAILED", "OUTCOME_DEADLINE_EXCEEDED"];

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "code_fields",
        check: code_fields,
    },
    Rule {
        name: "code_pairs",
        check: code_pairs,
    },
];

fn of_kind<'a>(rule_input: &RuleInput<'a>, key: &'static str) -> impl Iterator<Item = (bool, &'a Value)> {
    let contents = items(&rule_input.body["contents"]);
    contents.flat_map(move |content| {
        let by_model = content["role"] == "model";
        parts_with(content, key).into_iter().map(move |part| (by_model, part))
    })
}

/// Code of the model's in the one language, and results with an outcome. Servers without code execution know neither.
fn code_fields(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    let known = rule_input.provider.code_tools;
    let text = |value: &Value| value.is_string();
    let code =
        |(by_model, code): (bool, &Value)| known && by_model && code["language"] == "PYTHON" && text(&code["code"]);
    let result = |(by_model, result): (bool, &Value)| {
        let outcome = result["outcome"].as_str().unwrap_or_default();
        known && by_model && OUTCOMES.contains(&outcome) && (!is_given(&result["output"]) || text(&result["output"]))
    };
    if of_kind(rule_input, "executableCode").all(code) && of_kind(rule_input, "codeExecutionResult").all(result) {
        return Ok(());
    }
    Err(ProviderRefusal::invalid(
        "Invalid value at 'contents.parts': executable_code has language PYTHON and code, code_execution_result an outcome and output, both in contents of role model.",
    ))
}

/// Each result follows its code: with an id that of the code, without one in order. Contents of one role are one.
fn code_pairs(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    let mut open: Vec<&Value> = Vec::new();
    for content in items(&rule_input.body["contents"]) {
        let unanswered = !open.is_empty() && content["role"] != "model";
        for part in items(&content["parts"]) {
            let (code, result) = (field(part, "executableCode"), field(part, "codeExecutionResult"));
            if is_given(code) {
                open.push(&code["id"]);
            } else if is_given(result) {
                let own = open.iter().position(|id| **id == result["id"]);
                let Some(own) = own else {
                    return Err(unpaired());
                };
                open.remove(own);
            }
        }
        if unanswered {
            return Err(unpaired());
        }
    }
    Ok(())
}

fn unpaired() -> ProviderRefusal {
    ProviderRefusal::invalid("Please ensure that each code execution result follows the executable code with its id.")
}
