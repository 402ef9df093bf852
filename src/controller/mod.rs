//! `knack controller`: Skills and SkillRuntimes into ConfigMaps, policies and status.
//!
//! ```text
//! watch ─▶ World (slim objects in memory) ─▶ skill/:   resolve ─▶ judge ─▶ build ─▶ deliver ─▶ status ─▶ prune
//!                                          └▶ runtime/: select ─▶ fence ─▶ status
//! ```
//! Decisions (`conditions`, `skill::status`, `skill::prune`, `runtime::status`, `runtime::fence`, and the modules `selection`,
//! `artifact`, `sources`) are functions of values; `context` holds what talks to the API server.

mod account;
mod conditions;
mod context;
mod dirt;
mod error;
mod events;
mod http;
mod index;
mod metrics;
mod process;
mod reason;
mod refusal;
mod rivals;
mod runtime;
mod settings;
mod skill;
mod streams;
mod undecodable;
mod world;

pub use error::ControllerError;
pub use process::run;
pub use settings::ControllerSettings;
