//! One run of a skill for a user, `POST /api/v1/skills/{name}/run`: the call of the model, and the events of the stream.
//! See docs/design/dialects.md#agent-flow-lite.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::document::{DEFAULT_TEMPERATURE, max_tokens, model_config, parse};
use super::operations::{ApiError, Status};
use crate::template::MissingInput;

/// The system text of a run; the filled template is the message of the user.
pub const RUN_SYSTEM: &str = "You are a helpful AI assistant.";
/// Error text for a model that does not answer; the log has the reason.
const FAILED: &str = "Generation failed";
/// Why a skill runs without its knowledge base.
const NO_RETRIEVAL: &str = "There is no retrieval here; the skill runs without its knowledge base";

/// What a SKILL.md says about the call of the model.
#[derive(Debug, Clone, PartialEq)]
pub struct RunSettings {
    /// `model.name`, or `model` where it is a string, as HUSK writes it.
    pub model: Option<String>,
    /// 0 to 2; `None`: the provider's default.
    pub temperature: Option<f64>,
    /// `None`: the provider's default.
    pub max_tokens: Option<u64>,
    /// The knowledge base that it would search.
    pub knowledge_base: Option<String>,
}

impl RunSettings {
    /// Reads a SKILL.md. Settings that are out of range count as not written: a load warns about them.
    pub fn of(document: &str) -> Self {
        let members = parse(document).map(|parsed| parsed.members).unwrap_or_default();
        let text = |value: Option<&Value>| {
            value
                .and_then(Value::as_str)
                .filter(|text| !text.is_empty())
                .map(str::to_owned)
        };
        let knowledge_base = text(members.get("knowledge_base"));
        match members.get("model") {
            Some(Value::String(model)) => Self {
                model: Some(model.clone()).filter(|model| !model.is_empty()),
                temperature: None,
                max_tokens: members
                    .get("max_tokens")
                    .and_then(|value| max_tokens(value).ok().flatten()),
                knowledge_base,
            },
            Some(Value::Object(model)) if !model.is_empty() => {
                let config = model_config(model, |_, _, _| {});
                Self {
                    model: text(model.get("name")),
                    temperature: config.temperature,
                    max_tokens: config.max_tokens,
                    knowledge_base,
                }
            }
            _ => Self {
                model: None,
                temperature: Some(DEFAULT_TEMPERATURE),
                max_tokens: None,
                knowledge_base,
            },
        }
    }
}

/// The inputs in the body of a request. Errors: the field that is wrong.
pub fn parse_run_body(body: Value) -> Result<BTreeMap<String, String>, ApiError> {
    let refused = |field: &str, message: &str| ApiError::new(Status::Invalid, field, message);
    let Value::Object(mut body) = body else {
        return Err(refused("body", "the body must be a JSON object"));
    };
    let inputs = match body.remove("inputs") {
        None => return Ok(BTreeMap::new()),
        Some(Value::Object(inputs)) => inputs,
        Some(_) => return Err(refused("inputs", "inputs must be an object of names and texts")),
    };
    inputs
        .into_iter()
        .map(|(name, value)| match value {
            Value::String(text) => Ok((name, text)),
            _ => Err(refused(&format!("inputs.{name}"), "the value of an input must be text")),
        })
        .collect()
}

/// An event of the stream.
#[derive(Debug, Clone, PartialEq)]
pub struct RunEvent {
    /// `thought`, `token`, `error` or `done`.
    pub name: &'static str,
    /// One JSON object.
    pub data: Value,
}

/// How the call of a model ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunEnd {
    /// With an answer.
    Answered,
    /// Without one, or in the middle of it.
    Failed,
}

/// The events before the model is called, of inputs that were checked. After those of a missing input there are no others.
pub fn begin_run(checked: Result<(), MissingInput>, knowledge_base: Option<&str>) -> Vec<RunEvent> {
    let mut events = vec![thought("validation", "start", &[])];
    if let Err(missing) = checked {
        let message = missing.to_string();
        events.push(thought("validation", "error", &[("error", &message)]));
        events.push(done("error", &message));
        return events;
    }
    events.extend([
        thought("validation", "complete", &[("message", "All required inputs provided")]),
        thought("substitution", "start", &[]),
        thought("substitution", "complete", &[("message", "Variables substituted")]),
    ]);
    if let Some(base) = knowledge_base {
        events.push(thought("retrieval", "start", &[("kb_id", base)]));
        events.push(thought(
            "retrieval",
            "error",
            &[("kb_id", base), ("error", NO_RETRIEVAL)],
        ));
    }
    events.push(thought("generation", "start", &[]));
    events
}

/// A piece of the answer.
pub fn run_token(content: &str) -> RunEvent {
    RunEvent {
        name: "token",
        data: json!({ "content": content }),
    }
}

/// The events after the last piece.
pub fn end_run(end: RunEnd) -> Vec<RunEvent> {
    match end {
        RunEnd::Answered => vec![done("success", "Skill execution completed successfully")],
        RunEnd::Failed => vec![
            RunEvent {
                name: "error",
                data: json!({ "message": FAILED }),
            },
            done("error", FAILED),
        ],
    }
}

fn thought(kind: &str, status: &str, more: &[(&str, &str)]) -> RunEvent {
    let members = [("type", kind), ("status", status)]
        .into_iter()
        .chain(more.iter().copied());
    let members: Map<String, Value> = members.map(|(name, value)| (name.to_owned(), value.into())).collect();
    RunEvent {
        name: "thought",
        data: members.into(),
    }
}

fn done(status: &str, message: &str) -> RunEvent {
    RunEvent {
        name: "done",
        data: json!({ "status": status, "message": message }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_both_dialects_are_read() {
        let of = |lines: &str| {
            let settings = RunSettings::of(&format!("---\nname: a\n{lines}\n---\nB"));
            (settings.model, settings.temperature, settings.max_tokens)
        };
        let name = |name: &str| Some(name.to_owned());
        for (lines, expected) in [
            ("license: MIT", (None, Some(0.7), None)),
            ("model: {}", (None, Some(0.7), None)),
            ("model: {temperature: 0.2, max_tokens: 9}", (None, Some(0.2), Some(9))),
            ("model: {name: m}", (name("m"), Some(0.7), Some(2_000))),
            (
                "model: {name: m, temperature: null, max_tokens: null}",
                (name("m"), None, None),
            ),
            ("model: {temperature: 3}", (None, None, Some(2_000))),
            ("model: m\nmax_tokens: 512", (name("m"), None, Some(512))),
            ("model: ''", (None, None, None)),
        ] {
            assert_eq!(of(lines), expected, "{lines}");
        }
    }

    #[test]
    fn inputs_are_texts_by_name() {
        let parsed = |body: Value| parse_run_body(body).map_err(|error| error.field);
        assert_eq!(parsed(json!({})), Ok(BTreeMap::new()));
        let one = BTreeMap::from([("a".to_owned(), "5".to_owned())]);
        assert_eq!(parsed(json!({"inputs": {"a": "5"}})), Ok(one));
        for (body, field) in [
            (json!([]), "body"),
            (json!({"inputs": []}), "inputs"),
            (json!({"inputs": null}), "inputs"),
            (json!({"inputs": {"a": 5}}), "inputs.a"),
        ] {
            assert_eq!(parsed(body), Err(field.to_owned()), "{field}");
        }
    }

    #[test]
    fn a_knowledge_base_is_said_to_be_left_out_before_the_model_is_called() {
        let events = begin_run(Ok(()), Some("kb"));
        let kinds: Vec<(&str, &str)> = events
            .iter()
            .map(|event| {
                (
                    event.data["type"].as_str().unwrap(),
                    event.data["status"].as_str().unwrap(),
                )
            })
            .collect();
        assert_eq!(
            kinds[4..],
            [("retrieval", "start"), ("retrieval", "error"), ("generation", "start")]
        );
    }
}
