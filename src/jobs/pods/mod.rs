//! Sandbox pods: what they are made of, how one is started and attached to, and those that are held ready.

mod active_runs;
mod attach;
mod attach_pace;
pub(super) mod handshake;
pub(super) mod kinds;
pub(super) mod launch;
pub(super) mod pod_index;
pub(super) mod pod_requirements;
pub(super) mod pool;
pub(super) mod sandboxes_ready;
pub(super) mod spec;
pub(super) mod start;
mod start_failures;
