//! Executions at a hub: the executor of a gateway in a cluster, and the words both sides use for values of execution.
//!
//! ```text
//! execute ─▶ POST /v1/executions ─▶ frames ─▶ result        421: ask the owner it names
//!              ▲        │                                   503, broken stream, no connection: the same id again,
//!              └────────┴── same id, until the deadline     which runs once at most, wherever it is asked
//! ```
//!
//! Skill files are named by digest and never sent. A cancelled or dropped execution is deleted at the hub.

mod error;
mod executor;
mod frames;
mod request;

pub use error::{error_of_problem, problem_of_error};
pub use executor::{Progress, RemoteExecutor};
pub use frames::{Collected, Collector, result_frames, view_of_record};
pub use request::{limits_from, post_of_request};
