//! The hub: serves gateways. Catalog streams, content by digest, executions; it owns the warm pods.
//!
//! ```text
//! watch ─▶ cluster_state (skills, runtimes, namespaces, fences) ─▶ view (one runtime, one kind of caller) ─▶ routes::catalog ─▶ gateway
//!            └▶ artifacts (ConfigMaps, verified, bounded cache) ────────────┘                routes::content
//! gateway ─▶ server (TLS) ─▶ auth::token (who) ─▶ auth::access (may) ─▶ routes::executions ─▶ executors ─▶ JobExecutor
//!                                                                     └▶ routes::shared_values ─▶ shared_values (what replicas of a gateway share)
//! ```
//!
//! The port that parses tenants' bodies does not hold the reconciler's rights: it reads Skills and artifacts, asks the
//! API server who a caller is and what it may do, and writes only in runtime namespaces. [`cluster_state`], [`catalog_view`],
//! [`admission`] and the decisions in [`auth`] are functions of values.

pub mod admission;
mod artifact_reads;
pub mod artifacts;
pub mod auth;
pub(crate) mod body;
pub mod catalog_view;
pub mod catalog_views;
pub mod change_log;
pub mod cluster_state;
pub(crate) mod decoded;
pub mod executors;
pub mod fences;
mod identity;
mod judged;
pub mod metrics;
mod peers;
mod reported_uses;
pub mod routes;
pub mod runtime_line;
pub mod served_revision;
pub mod server;
pub mod settings;
pub mod shared_values;
mod skill_metrics;
pub mod start;
pub mod summaries;
mod trace;
pub mod watch;

pub use server::run;
pub use settings::HubSettings;
