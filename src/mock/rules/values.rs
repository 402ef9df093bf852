//! Small readings of JSON values that several rules share.

use serde_json::Value;

use super::Subject;

/// The elements of `messages` with their index; none if it is no array.
pub(super) fn messages<'a>(subject: &Subject<'a>) -> impl Iterator<Item = (usize, &'a Value)> + use<'a> {
    subject.body["messages"].as_array().into_iter().flatten().enumerate()
}

/// The elements of `tools` with their index; none if it is no array.
pub(super) fn tools<'a>(subject: &Subject<'a>) -> impl Iterator<Item = (usize, &'a Value)> + use<'a> {
    subject.body["tools"].as_array().into_iter().flatten().enumerate()
}

/// The role of a message.
pub(super) fn role(message: &Value) -> &str {
    message["role"].as_str().unwrap_or_default()
}

/// The elements of an array; none for anything else.
pub(super) fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Whether a name is made of letters, digits, `_` and `-` and has 1 to `max` bytes.
pub(super) fn is_tool_name(name: &str, max: usize) -> bool {
    (1..=max).contains(&name.len()) && is_id(name)
}

/// Whether an id is made of letters, digits, `_` and `-`.
pub(super) fn is_id(id: &str) -> bool {
    !id.is_empty()
        && id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}

/// The first text that occurs twice.
pub(super) fn first_double<'a>(texts: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let mut seen = std::collections::BTreeSet::new();
    texts.into_iter().find(|text| !seen.insert(*text))
}

/// Whether a member is present and not `null`.
pub(super) fn is_given(value: &Value) -> bool {
    !value.is_null()
}
