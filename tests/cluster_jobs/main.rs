//! Executions as Jobs, on a real cluster.

mod failures;
mod isolation;
mod recovery;
mod runs;
mod support;
