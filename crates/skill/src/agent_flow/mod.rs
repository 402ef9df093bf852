//! The Agent Flow Lite dialect: one SKILL.md as a prompt template with inputs and model settings, and the decisions of its
//! create, read, update, list and run operations. See docs/design/dialects.md#agent-flow-lite.

mod document;
mod operations;
mod run;

pub use document::{AgentFlowSkill, Frontmatter, MAX_CONTENT_BYTES, ModelConfig, check_size, parse, read};
pub use operations::{
    ApiError, Status, check_name, check_placeholders, create, get, not_found, parse_create_body, update,
};
pub use run::{RUN_SYSTEM, RunEnd, RunEvent, RunSettings, begin_run, end_run, parse_run_body, run_token};
