//! Executions as Jobs, on a real cluster.

mod runs;
mod support;
