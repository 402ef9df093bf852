//! Gemini: contents, calls and their answers, signatures.

use serde_json::Value;

use super::values::{is_given, items};
use super::{ProviderRefusal, Rule, RuleInput};
use crate::received::{field, parts_with};
use crate::signature;

/// The data members of a part; it may hold one of them.
const DATA: [&str; 10] = [
    "text",
    "inlineData",
    "fileData",
    "functionCall",
    "functionResponse",
    "executableCode",
    "codeExecutionResult",
    "toolCall",
    "toolResponse",
    "thoughtSignature",
];

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "contents_given",
        check: contents_given,
    },
    Rule {
        name: "content_role",
        check: content_role,
    },
    Rule {
        name: "part_data",
        check: part_data,
    },
    Rule {
        name: "empty_text",
        check: empty_text,
    },
    Rule {
        name: "user_last",
        check: user_last,
    },
    Rule {
        name: "call_place",
        check: call_place,
    },
    Rule {
        name: "call_answers",
        check: call_answers,
    },
    Rule {
        name: "answer_object",
        check: answer_object,
    },
    Rule {
        name: "thought_signature",
        check: thought_signature,
    },
];

/// Contents of one role in a row, which the API reads as one.
struct Turn<'a> {
    model: bool,
    parts: Vec<&'a Value>,
    calls: Vec<&'a Value>,
    answers: Vec<&'a Value>,
}

fn turns<'a>(rule_input: &RuleInput<'a>) -> Vec<Turn<'a>> {
    let mut turns: Vec<Turn<'a>> = Vec::new();
    for content in items(&rule_input.body["contents"]) {
        let model = content["role"] == "model";
        if turns.last().is_none_or(|last| last.model != model) {
            turns.push(Turn {
                model,
                parts: Vec::new(),
                calls: Vec::new(),
                answers: Vec::new(),
            });
        }
        if let Some(turn) = turns.last_mut() {
            turn.parts.extend(items(&content["parts"]));
            turn.calls.extend(parts_with(content, "functionCall"));
            turn.answers.extend(parts_with(content, "functionResponse"));
        }
    }
    turns
}

fn contents_given(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    if items(&rule_input.body["contents"]).next().is_some() {
        return Ok(());
    }
    Err(ProviderRefusal::invalid(
        "* GenerateContentRequest.contents: contents is not specified",
    ))
}

fn content_role(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    for content in items(&rule_input.body["contents"]) {
        let role = &content["role"];
        if !(role.is_null() || ["user", "model", "function"].contains(&role.as_str().unwrap_or_default())) {
            return Err(ProviderRefusal::invalid("Please use a valid role: user, model."));
        }
    }
    Ok(())
}

/// Each content has parts, and each part one thing that is known.
fn part_data(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    for (at, content) in items(&rule_input.body["contents"]).enumerate() {
        let parts = content["parts"].as_array();
        let holds = |part: &Value| DATA.iter().any(|name| is_given(field(part, name)));
        if !parts.is_some_and(|parts| !parts.is_empty() && parts.iter().all(holds)) {
            return Err(ProviderRefusal::invalid(format!(
                "* GenerateContentRequest.contents[{at}].parts: contents.parts must not be empty, and each part must have one initialized field 'data'."
            )));
        }
    }
    Ok(())
}

/// Vertex AI takes no text part without text, unless it brings a signature.
fn empty_text(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    let mut parts = items(&rule_input.body["contents"]).flat_map(|content| items(&content["parts"]));
    let is_empty = |part: &Value| part["text"] == "" && !is_given(field(part, "thoughtSignature"));
    if rule_input.vertex && parts.any(is_empty) {
        return Err(ProviderRefusal::invalid(
            "Unable to submit request because it has an empty text parameter. Add a value to the parameter and try again.",
        ));
    }
    Ok(())
}

fn user_last(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    if turns(rule_input).last().is_none_or(|last| !last.model) {
        return Ok(());
    }
    Err(ProviderRefusal::invalid(
        "Please ensure that single turn requests end with a user role or the role field is empty.",
    ))
}

fn call_place(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    let turns = turns(rule_input);
    let misplaced = turns
        .iter()
        .enumerate()
        .any(|(at, turn)| (turn.model && at == 0 && !turn.calls.is_empty()) || (!turn.model && !turn.calls.is_empty()));
    if misplaced {
        return Err(ProviderRefusal::invalid(
            "Please ensure that function call turn comes immediately after a user turn or after a function response turn.",
        ));
    }
    Ok(())
}

/// As many answers as calls in the next turn, of the same names, and of the same ids where they have one.
fn call_answers(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    let turns = turns(rule_input);
    for (at, turn) in turns.iter().enumerate() {
        let calls = at.checked_sub(1).map_or(&[][..], |before| &turns[before].calls);
        if turn.model {
            continue;
        }
        if calls.len() != turn.answers.len() {
            return Err(ProviderRefusal::invalid(
                "Please ensure that the number of function response parts is equal to the number of function call parts of the function call turn.",
            ));
        }
        for answer in &turn.answers {
            let same = |call: &&&Value| {
                call["name"] == answer["name"] && (answer["id"].is_null() || call["id"] == answer["id"])
            };
            if calls.iter().filter(same).count() == 0 {
                return Err(ProviderRefusal::invalid(format!(
                    "The function response {} does not match a function call of the turn before.",
                    answer["name"]
                )));
            }
        }
    }
    Ok(())
}

fn answer_object(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    let turns = turns(rule_input);
    let mut answers = turns.iter().flat_map(|turn| turn.answers.iter());
    if answers.all(|answer| answer["response"].is_object()) {
        return Ok(());
    }
    Err(ProviderRefusal::invalid(
        "Invalid value at 'function_response.response': an object is expected.",
    ))
}

/// In the open turn (behind the last content of the user's own), the first call of each answer has the signature of that
/// answer. Elsewhere a signature that was not made here is refused.
fn thought_signature(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    let turns = turns(rule_input);
    let open = turns
        .iter()
        .rposition(|turn| !turn.model && turn.answers.is_empty())
        .map_or(0, |at| at + 1);
    for (at, turn) in turns.iter().enumerate() {
        let mut signed: Option<String> = None;
        for part in &turn.parts {
            if let Some(own) = field(part, "thoughtSignature").as_str() {
                signed = Some(
                    signature::thought_of(own)
                        .ok_or_else(|| ProviderRefusal::invalid("Thought signature is not valid."))?,
                );
            }
            let call = field(part, "functionCall");
            if at < open || !is_given(call) {
                continue;
            }
            // An id of this mock names the answer; a call without one belongs to the signature before it.
            let of_answer = |answer: &String| {
                call["id"]
                    .as_str()
                    .is_none_or(|id| id.starts_with(&format!("fc_{answer}x")) || !id.starts_with("fc_mock"))
            };
            if !signed.as_ref().is_some_and(of_answer) {
                return Err(ProviderRefusal::invalid(format!(
                    "Function call is missing a thought_signature in functionCall parts. This is required for tools to work correctly. Function call {}.",
                    call["name"]
                )));
            }
        }
    }
    Ok(())
}
