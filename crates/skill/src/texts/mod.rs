//! Every text of Knack's that a model reads, and nothing else (docs/design/conversation.md#system-text).
//!
//! A change here voids users' prompt caches, so each text has a golden in `texts/tests.rs` and a changed one gets a CHANGELOG line.
//! `declared` has the texts of requests, `results` and `functions` the answers to calls.

mod declared;
mod functions;
mod refused;
mod results;
#[cfg(test)]
mod tests;

pub use declared::{
    LITELLM_CODE_TOOL, LOAD_SKILL, RUN_CODE, RUN_SKILL_TOOL, attached_files_line, bodies_block, body_section,
    body_too_large, call_with_inputs, files_line, generic_tools_reserved, inputs_wanted, listing_block, listing_line,
    listing_more, litellm_code_description, litellm_code_schema, litellm_section, load_skill_description,
    load_skill_schema, load_with_inputs, more_files, run_code_description, run_code_schema, run_skill_tool_description,
    run_skill_tool_schema, with_sections,
};
pub use functions::{function_error, function_result};
pub use refused::refused_by_sandbox;
pub use results::{
    CALL_NOT_RUN, CALL_UNRESOLVED, LAST_CALL, LIMIT_REACHED, MAX_RESULT_BYTES, MODEL_CODE_DENIED, NO_LONGER_AVAILABLE,
    SKILL_CHANGED, above_max_risk, argument_refused, arguments_mismatch, arguments_not_json, code_result, cut,
    declared_result, file_binary, file_too_large, file_unknown, inputs_missing, inputs_too_long, litellm_result,
    loaded, missing_module, no_skill, no_tool, not_configured, not_executable, one_program, open_command_denied,
    open_command_with_grants, seen_result, shown_stderr, too_many_calls, unknown_tool, uploaded_input,
};

/// Estimates tokens as everywhere in Knack: bytes divided by 4, rounded up.
pub fn tokens(bytes: usize) -> usize {
    bytes.div_ceil(4)
}
