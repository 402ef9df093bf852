//! Small readings of JSON values that several rules share.

use serde_json::Value;

use super::RuleInput;

/// The elements of `messages` with their index; none if it is no array.
pub(super) fn messages<'a>(rule_input: &RuleInput<'a>) -> impl Iterator<Item = (usize, &'a Value)> + use<'a> {
    rule_input.body["messages"].as_array().into_iter().flatten().enumerate()
}

/// The elements of `tools` with their index; none if it is no array.
pub(super) fn tools<'a>(rule_input: &RuleInput<'a>) -> impl Iterator<Item = (usize, &'a Value)> + use<'a> {
    rule_input.body["tools"].as_array().into_iter().flatten().enumerate()
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

/// Messages of one role in a row, which the Messages API reads as one.
#[derive(Debug)]
pub(super) struct Run<'a> {
    /// Index of the first message of the run.
    pub(super) index: usize,
    pub(super) role: &'a str,
    /// Blocks in order; a string content counts as one block of type `text` with that string.
    pub(super) blocks: Vec<&'a Value>,
}

impl<'a> Run<'a> {
    /// The blocks of a type.
    pub(super) fn of(&self, kind: &str) -> impl Iterator<Item = &'a Value> {
        self.blocks
            .iter()
            .copied()
            .filter(move |block| block_type(block) == kind)
    }
}

/// The type of a block; a plain string is text.
pub(super) fn block_type(block: &Value) -> &str {
    if block.is_string() {
        "text"
    } else {
        block["type"].as_str().unwrap_or_default()
    }
}

/// The messages, with those of one role in a row put together.
pub(super) fn runs<'a>(rule_input: &RuleInput<'a>) -> Vec<Run<'a>> {
    let mut runs: Vec<Run<'a>> = Vec::new();
    for (index, message) in messages(rule_input) {
        let content = &message["content"];
        let blocks = match content {
            Value::Array(blocks) => blocks.iter().collect(),
            Value::Null => Vec::new(),
            other => vec![other],
        };
        match runs.last_mut() {
            Some(last) if last.role == role(message) => last.blocks.extend(blocks),
            _ => runs.push(Run {
                index,
                role: role(message),
                blocks,
            }),
        }
    }
    runs
}
