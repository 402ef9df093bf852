//! The text that a chat shows for a value that a decorated function returns in its own process. The product prints values in a
//! sandbox (`knack_skill`'s `functions/harness.py`) and has no panels.

use serde_json::{Map, Value};

/// Marker of a value that opens a panel.
const ARTIFACT: &str = "__artifact__";
/// Marker of a value that changes an open panel.
const ARTIFACT_UPDATE: &str = "__artifact_update__";

/// A returned value, as it is shown.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ShownResult {
    /// The text of the tool's result.
    Text(String),
    /// A panel with these members, and the text that replaces it.
    Artifact {
        /// Members without the marker.
        members: Map<String, Value>,
        /// Text of the tool's result.
        text: String,
    },
    /// A change to a panel, and the text that replaces it.
    Update {
        /// Members without the marker.
        members: Map<String, Value>,
        /// Text of the tool's result.
        text: String,
    },
}

/// Texts as they are, objects as JSON, and objects with a true marker (also written as JSON text) as panels.
pub(crate) fn shown(value: &Value) -> ShownResult {
    let parsed = value.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
    let object = value.as_object().or_else(|| parsed.as_ref().and_then(Value::as_object));
    let marked = |marker: &str| object.filter(|members| members.get(marker).is_some_and(is_truthy));
    if let Some(members) = marked(ARTIFACT) {
        let text = format!("[Artifact: {}]", text_member(members, "title"));
        return ShownResult::Artifact {
            members: without(members, ARTIFACT),
            text,
        };
    }
    if let Some(members) = marked(ARTIFACT_UPDATE) {
        let text = format!("[Updated artifact: {}]", text_member(members, "id"));
        return ShownResult::Update {
            members: without(members, ARTIFACT_UPDATE),
            text,
        };
    }
    ShownResult::Text(value.as_str().map_or_else(|| spaced_json(value), ToOwned::to_owned))
}

fn without(members: &Map<String, Value>, marker: &str) -> Map<String, Value> {
    let mut rest = members.clone();
    rest.shift_remove(marker);
    rest
}

fn text_member<'v>(members: &'v Map<String, Value>, name: &str) -> &'v str {
    members.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Truth as Python has it: empty and zero are false.
fn is_truthy(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(truth) => *truth,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(values) => !values.is_empty(),
        Value::Object(members) => !members.is_empty(),
    }
}

/// JSON with a blank after each comma and colon, the form that Python's library writes.
fn spaced_json(value: &Value) -> String {
    match value {
        Value::Array(values) => {
            let inner: Vec<String> = values.iter().map(spaced_json).collect();
            format!("[{}]", inner.join(", "))
        }
        Value::Object(members) => {
            let inner: Vec<String> = members
                .iter()
                .map(|(name, value)| format!("{}: {}", Value::from(name.as_str()), spaced_json(value)))
                .collect();
            format!("{{{}}}", inner.join(", "))
        }
        plain => plain.to_string(),
    }
}
