//! Behaviour of the older systems that no program of the product has, as functions over values: so their cases stay readable and
//! hold. `tools/reached.py vectors` counts ops whose adapter calls one as `value only`.

pub(crate) mod agent_flow;
pub(crate) mod agentskills;
pub(crate) mod autoscore;
pub(crate) mod extract;
pub(crate) mod husk_folder;
pub(crate) mod husk_manifest;
pub(crate) mod litellm_archive;
#[cfg(feature = "pyschema")]
pub(crate) mod result;
pub(crate) mod tool_env;
pub(crate) mod workflow;
