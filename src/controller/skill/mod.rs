//! A Skill to its artifact and status.
//!
//! ```text
//! resolve(client) -> Files ─▶ judge(pure) -> Judged ─▶ build(pure) -> Artifact ─▶ deliver(client) -> Delivered ─▶ status(pure)
//! ```
//! Each step takes what the one before it made, so none can be left out; after `judge` nobody reads the raw source.

mod deliver;
mod judge;
mod prune;
mod reconcile;
mod resolve;
mod status;
mod verdicts;

pub(super) use reconcile::{failed, reconcile};
pub(super) use status::DESCRIPTION_MAX;
