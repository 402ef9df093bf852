//! A Skill to its artifact and status.
//!
//! ```text
//! resolve(client) -> Files ─▶ judge(pure) -> Judged ─▶ build(pure) -> Artifact ─▶ deliver(client) -> Delivered ─▶ status(pure)
//! ```
//! Each step takes the result of the one before it, so none can be left out; after `judge` no step reads the raw
//! source.

mod archive_turns;
mod deliver;
mod judge;
mod prune;
mod reconcile;
mod resolve;
mod status;
mod verdicts;

pub(super) use archive_turns::ArchiveTurns;
pub(super) use reconcile::{failed, reconcile};
