//! The registry of a cluster: the Skills APIs of `crates/registry` over Skill objects.
//!
//! ```text
//! server (TLS) ─▶ request ─▶ account_auth (who) ─▶ knack_registry ─▶ caller_store (may: RBAC) ─▶ cluster ─▶ index (reads)
//!                                                                                               └▶ skills, content (writes)
//! ```
//!
//! It writes Skills that were uploaded here, what belongs to them, and nothing else. [`objects`], [`index`], [`registry_object`], [`kept_versions`],
//! [`managed`] and the decision in [`sweep`] are functions of values.

mod caller;
mod caller_store;
mod catalogs;
mod cluster;
mod content;
mod failure;
mod files;
mod history;
mod index;
mod kept_versions;
mod managed;
mod metrics;
mod objects;
mod offered;
mod refusal;
mod registry_object;
mod request;
mod server;
mod shares;
mod skills;
mod state;
mod sweep;
#[cfg(test)]
mod tests;
mod write_outcome;

pub use files::FilesOptions;
pub use history::HistoryOptions;
pub use kept_versions::{KeptVersion, kept_versions};
pub use server::{Registry, run};
pub use state::RegistrySettings;
