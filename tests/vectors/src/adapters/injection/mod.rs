//! Adapters of `injection.json`: what is put into requests.

pub(super) mod litellm;
pub(super) mod tools;

use serde_json::Value;

use super::omniroute::text;
use crate::matching;
use crate::registry::{Compare, Op};

/// The ops of this file.
pub(crate) const OPS: &[Op] = &[
    Op::new("injection", "inject_tools", tools::inject_tools).compared(Compare::Custom(tools::compare_tools)),
    Op::new("injection", "encode_tool_name", tools::encode).compared(Compare::Custom(tools::compare_name)),
    Op::new("injection", "decode_tool_name", tools::decode).compared(Compare::Named),
    Op::new("injection", "normalize_tool_schema", tools::normalize),
    Op::new("injection", "litellm_skill_content", litellm::skill_content).compared(Compare::Trimmed),
    Op::new("injection", "litellm_zip_files", litellm::zip_files),
    Op::new("injection", "litellm_tool", litellm::tool),
    Op::new("injection", "litellm_inject_prompt", litellm::inject_prompt).compared(Compare::Custom(same_request)),
    Op::new("injection", "litellm_pre_call", litellm::pre_call).compared(Compare::Custom(litellm::compare_request)),
];

/// Compares requests whole, but for blanks at both ends of system texts.
fn same_request(expected: &Value, actual: &Value) -> Result<(), String> {
    whole(&trimmed(expected), &trimmed(actual))
}

/// A request whose system texts, at the top and in messages, have no blanks at their ends.
fn trimmed(request: &Value) -> Value {
    let mut request = request.clone();
    if let Some(system) = request.get_mut("system") {
        trim(system);
    }
    let messages = request.get_mut("messages").and_then(Value::as_array_mut);
    let messages = messages.into_iter().flatten();
    for message in messages.filter(|message| text(message, "role") == "system") {
        if let Some(content) = message.get_mut("content") {
            trim(content);
        }
    }
    request
}

/// A text, or the texts of blocks.
fn trim(content: &mut Value) {
    match content {
        Value::String(text) => *text = text.trim().to_owned(),
        Value::Array(blocks) => blocks
            .iter_mut()
            .filter_map(|block| block.get_mut("text"))
            .for_each(trim),
        _ => {}
    }
}

/// Compares whole.
fn whole(expected: &Value, actual: &Value) -> Result<(), String> {
    matching::check(Compare::Whole, expected, &Ok(actual.clone()))
}
