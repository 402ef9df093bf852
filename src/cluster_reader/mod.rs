//! What a process knows of a cluster: watches, and the state that they feed.
//!
//! ```text
//! API server ─▶ watch ─▶ decoded ─▶ cluster_state (skills, runtimes, namespaces, fences) ─▶ change_log ─▶ hub, builds
//!                 └▶ registry, which has an index of its own
//! ```

pub mod change_log;
pub mod cluster_state;
pub(crate) mod decoded;
pub mod fences;
pub mod watch;
