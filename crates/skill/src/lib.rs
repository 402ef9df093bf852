//! knack-skill: skills as values. Pure: no I/O, no clock, no async, no Kubernetes.

pub mod agent_flow;
pub mod agentskills;
pub mod argv;
pub mod at_skill;
pub mod autoscore;
pub mod call;
pub mod catalog;
pub mod config;
pub mod digest;
pub mod finding;
#[cfg(any(test, feature = "fixture"))]
pub mod fixture;
pub mod frontmatter;
pub mod functions;
pub mod husk;
pub mod ids;
pub mod inputs;
pub mod litellm;
pub mod load;
pub mod model;
pub mod names;
pub mod open_command;
mod placeholder;
pub mod plan;
pub mod problem;
pub mod registration;
pub mod risk;
pub mod schema;
mod schema_problem;
pub mod search;
pub mod semver;
pub mod template;
pub mod texts;
pub mod tool_env;
pub mod tool_result;
pub mod tools;
pub mod tree;
pub mod wire_name;
pub mod yaml;

pub use load::{LoadInput, LoadResult, SpecOverrides, load, load_with};
