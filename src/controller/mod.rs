//! `knack controller`: Skills and SkillRuntimes into ConfigMaps, policies and status.
//!
//! ```text
//! watch ─▶ Cluster state (slim objects in memory) ─▶ skill/:   resolve ─▶ judge ─▶ build ─▶ deliver ─▶ status ─▶ prune
//!                                          └▶ runtime/: select ─▶ fence ─▶ status
//! ```
//! Decisions (`conditions`, `skill::status`, `skill::prune`, `runtime::status`, `runtime::fence`, and the modules `selection`,
//! `artifact`, `sources`) are functions of values; `context` holds what talks to the API server.

mod account;
mod authorities;
mod cluster_state;
mod conditions;
mod context;
mod definitions;
mod desired;
mod environments;
mod error;
mod events;
#[cfg(test)]
mod fixture;
mod http;
mod key_index;
#[cfg(test)]
mod large_skills_tests;
mod last_uses;
mod leader_tasks;
mod memory;
mod metrics;
mod object_counts;
mod other_releases;
mod pace;
mod pending_changes;
mod process;
#[cfg(test)]
mod process_tests;
mod reason;
mod reconciled;
mod refusal;
mod runtime;
mod scope_controllers;
mod scope_watches;
mod settings;
mod sidecar_trust;
mod sidecars;
mod skill;
#[cfg(test)]
mod slow_archives_tests;
mod streams;
mod trust_bundle;
mod undecodable;
#[cfg(test)]
mod upload_tests;
mod use_events;
mod webhook;

pub use error::ControllerError;
pub use process::run;
pub use settings::{ControllerSettings, WebhookSettings};
