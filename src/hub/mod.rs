//! The hub: serves gateways. Catalog streams, content by digest, executions; it owns the warm pods.
//!
//! ```text
//! cluster_reader (skills, runtimes, namespaces, fences) ─▶ view (one runtime, one kind of caller) ─▶ routes::catalog ─▶ gateway
//!   └▶ artifacts (ConfigMaps, verified, bounded cache) ──────┘                                       routes::content
//! gateway ─▶ server (TLS) ─▶ account_auth (who) ─▶ access (may) ─▶ routes::executions ─▶ executors ─▶ JobExecutor
//!                                                               └▶ routes::shared_values ─▶ shared_values (what replicas of a gateway share)
//! ```
//!
//! The port that parses tenants' bodies does not hold the reconciler's rights: it reads Skills and artifacts, asks the
//! API server who a caller is and what it may do, and writes only in runtime namespaces. [`catalog_view`] and
//! [`admission`] are functions of values.

pub mod access;
pub mod admission;
mod artifact_reads;
pub mod artifacts;
pub mod catalog_view;
pub mod catalog_views;
pub mod executors;
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

pub use server::run;
pub use settings::HubSettings;
