//! The text that a chat shows for a value that a decorated function returns in its own process. The product prints values in a
//! sandbox (`knack_skill`'s `functions/harness.py`) and has no panels.

use serde_json::{Map, Value};

/// Marker of a value that opens a panel.
const ARTIFACT: &str = "__artifact__";
/// Marker of a value that changes an open panel.
const ARTIFACT_UPDATE: &str = "__artifact_update__";
/// Marker of a value that tells how a plan of tasks gets on.
const PROGRESS: &str = "__workspace_progress__";

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

/// Texts as they are, objects as JSON, objects with the marker of a panel (also written as JSON text) as panels, and those with
/// the marker of progress as what goes on. A marker counts where it is true.
pub(crate) fn shown(value: &Value) -> ShownResult {
    let parsed = value.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
    let object = value.as_object().or_else(|| parsed.as_ref().and_then(Value::as_object));
    let marked = |marker: &str| object.filter(|members| members.get(marker).is_some_and(is_truthy));
    if let Some(members) = marked(ARTIFACT) {
        let members = filled(members, ARTIFACT, &artifact_defaults());
        let text = format!("[Artifact: {}]", member_text(&members, "title"));
        return ShownResult::Artifact { members, text };
    }
    if let Some(members) = marked(ARTIFACT_UPDATE) {
        let members = filled(members, ARTIFACT_UPDATE, &[("id", Value::from(""))]);
        let text = format!("[Updated artifact: {}]", member_text(&members, "id"));
        return ShownResult::Update { members, text };
    }
    if let Some(members) = marked(PROGRESS) {
        return ShownResult::Text(format!("[Progress: {}]", member_text(members, "action")));
    }
    ShownResult::Text(value.as_str().map_or_else(|| spaced_json(value), ToOwned::to_owned))
}

/// What `CachiBot` shows where an artifact does not say it.
fn artifact_defaults() -> [(&'static str, Value); 4] {
    [
        ("type", "code".into()),
        ("title", "Untitled".into()),
        ("content", "".into()),
        ("version", 1.into()),
    ]
}

/// The members without the marker, and the defaults of those that are not there.
fn filled(members: &Map<String, Value>, marker: &str, defaults: &[(&str, Value)]) -> Map<String, Value> {
    let mut members = members.clone();
    members.shift_remove(marker);
    for (name, default) in defaults {
        members.entry(*name).or_insert_with(|| default.clone());
    }
    members
}

/// A member as text: what is no text as JSON.
fn member_text(members: &Map<String, Value>, name: &str) -> String {
    match members.get(name) {
        Some(Value::String(text)) => text.clone(),
        Some(other) => spaced_json(other),
        None => String::new(),
    }
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_panel_has_the_members_that_its_function_left_out() {
        for (value, expected, shown_as) in [
            (
                json!({"__artifact__": true}),
                json!({"type": "code", "title": "Untitled", "content": "", "version": 1}),
                "[Artifact: Untitled]",
            ),
            (
                json!({"__artifact__": true, "title": "T", "type": "html", "id": "x"}),
                json!({"type": "html", "title": "T", "content": "", "version": 1, "id": "x"}),
                "[Artifact: T]",
            ),
            (
                json!({"__artifact__": true, "title": 5, "version": 2}),
                json!({"type": "code", "title": 5, "content": "", "version": 2}),
                "[Artifact: 5]",
            ),
        ] {
            let expected = ShownResult::Artifact {
                members: expected.as_object().unwrap().clone(),
                text: shown_as.to_owned(),
            };
            assert_eq!(shown(&value), expected, "{value}");
        }
        let expected = ShownResult::Update {
            members: Map::from_iter([("id".to_owned(), "".into())]),
            text: "[Updated artifact: ]".to_owned(),
        };
        assert_eq!(shown(&json!({"__artifact_update__": true})), expected);
    }

    #[test]
    fn progress_is_told_by_its_action_behind_the_markers_of_panels() {
        let text = |text: &str| ShownResult::Text(text.to_owned());
        for (value, expected) in [
            (
                json!({"__workspace_progress__": true, "action": "start"}),
                "[Progress: start]",
            ),
            (json!({"__workspace_progress__": 1}), "[Progress: ]"),
            (
                json!("{\"__workspace_progress__\": true, \"action\": \"a\"}"),
                "[Progress: a]",
            ),
            (
                json!({"__workspace_progress__": ""}),
                "{\"__workspace_progress__\": \"\"}",
            ),
        ] {
            assert_eq!(shown(&value), text(expected), "{value}");
        }
        let both = json!({"__artifact_update__": true, "__workspace_progress__": true});
        assert!(matches!(shown(&both), ShownResult::Update { .. }));
    }
}
