//! Skills as values. Pure: no I/O, no clock, no async, no Kubernetes.
//!
//! ```text
//! files ─▶ load (dialects, validation) ─▶ Skill ─▶ catalog ─▶ plan (select, texts, tools) ─▶ injection of a request
//!                                                    │
//!                 a model's tool call ─▶ call (resolve) ─▶ RunSpec ─▶ executor ─▶ Outcome ─▶ call (render) ─▶ text
//! ```
//!
//! HUSK, Agent Flow Lite, LiteLLM, OmniRoute and Tukuy are other systems, whose skills and clients work here; docs/design/dialects.md#dialects
//! says what was taken from each.
//!
//! The path of a skill:
//!
//! - [`load()`]: a folder as one valid skill, with all problems; [`problem`], [`finding`]: those problems
//! - [`model`]: one skill as a value, independent of its dialect
//! - [`catalog`]: all skills of a runtime, compiled once per change; [`search`], [`autoscore`]: its indexes
//! - [`plan`]: which skills one request gets, with their texts and tools
//! - [`call`]: a model's tool call as a text or a run, and the outcome of the run as a text
//! - [`texts`]: every text of Knack's that a model reads
//!
//! Parts of a SKILL.md:
//!
//! - [`tree`]: the files of a skill, and their digest; [`digest`]: digests as text
//! - [`frontmatter`], [`yaml`]: the YAML of a SKILL.md, within bounds
//! - [`names`], [`ids`], [`semver`]: what names a skill and its versions
//! - [`inputs`], [`template`], [`at_skill`]: inputs of a template, what fills them, and `@name text`
//!
//! Declared tools:
//!
//! - [`tools`], [`schema`], [`risk`]: their declarations, the schema of arguments, the level of risk
//! - [`functions`], [`config`]: Python functions as tools, and the values of their configuration parameters
//! - [`argv`], [`open_command`], [`tool_env`], [`tool_result`]: command lines, commands whose program the arguments choose, environment,
//!   and what the model reads of a result
//! - [`wire_name`]: names that every provider accepts
//!
//! Dialects:
//!
//! - [`agentskills`]: as the reference validator of agentskills.io reads a SKILL.md
//! - [`agent_flow`]: Agent Flow Lite: a template with inputs, and the operations of its API
//! - [`husk`]: HUSK: what its manifest of a served skill demands
//! - [`litellm`]: LiteLLM: skills that are named by an id
//! - [`registration`]: OmniRoute: records of a registry
//!
//! Feature `fixture`: skills for tests.

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
pub mod foreign;
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
mod provider_schema;
pub mod registration;
pub mod risk;
pub mod schema;
mod schema_problem;
pub mod schema_text;
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
