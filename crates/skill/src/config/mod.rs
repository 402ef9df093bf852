//! Values of the configuration parameters that a function of a skill declares (docs/skills.md#configuration-of-a-function).
//!
//! ```text
//! config_params=[..] of the function ─▶ ConfigParam ┐
//! config of a pin, then --set        ─▶ ConfigEntry ┴▶ resolve ─▶ ToolConfig ─▶ environment of the run
//!                                                          └▶ why the tool is not offered
//! ```
//!
//! Controller, hub, `knack dev` and the command line ask the same functions. Values go to declared tools only; those from
//! Secrets are names here, and come into the run by variables that the cluster fills.

mod declared;
mod entry;
mod param;
mod resolve;
mod value;

pub use declared::MAX_PARAMS;
pub(crate) use declared::{notes, refusal};
pub use entry::{ConfigEntry, ConfigSource, ConfiguredSkill, SkillConfig, entries_for, overlay, variable};
pub use param::ConfigParam;
pub use resolve::{CONFIG_VARIABLE, ToolConfig, elsewhere, plain_secrets, problems, resolve, undeclared};
pub use value::{check, read};
