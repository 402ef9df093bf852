//! Adapters of `injection.json`: what is put into requests.

mod litellm;
mod tools;

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
    Op::new("injection", "litellm_inject_prompt", litellm::inject_prompt),
    Op::new("injection", "litellm_pre_call", litellm::pre_call).compared(Compare::Custom(litellm::compare_request)),
];

/// Compares whole.
fn whole(expected: &serde_json::Value, actual: &serde_json::Value) -> Result<(), String> {
    matching::check(Compare::Whole, expected, &Ok(actual.clone()))
}
