//! Executions as Jobs, on a real cluster.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test that cannot go on ends by panicking; figures are printed"
)]

mod chains;
mod failures;
mod isolation;
mod liar;
mod locks;
mod restarted;
mod runs;
mod strangers;
mod support;
