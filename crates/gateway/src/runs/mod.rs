//! What runs code of skills: calls of models, of programs and of users, what they may do, and their history.

pub mod ad_hoc;
pub(crate) mod attached_skills;
pub(crate) mod claims;
pub mod code_tools;
pub mod direct;
pub mod execution_reporter;
pub mod grants;
pub mod run_history;
pub mod run_lines;
pub(crate) mod run_route;
pub mod skill_runs;
pub(crate) mod tools;
