//! Executions at a hub: the executor of a gateway in a cluster.
//!
//! ```text
//! execute ─▶ POST /v1/executions ─▶ frames ─▶ result        421: ask the owner it names
//!              ▲        │                                   503, broken stream, no connection: the same id again,
//!              └────────┴── same id, until the deadline     which runs once at most, wherever it is asked
//! ```
//!
//! Skill files are named by digest and never sent. A cancelled or dropped execution is deleted at the hub.

mod executor;
mod shown;

pub use executor::{RemoteExecutor, jitter};
pub use shown::Progress;
