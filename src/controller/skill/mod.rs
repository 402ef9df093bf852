//! A Skill to its artifact and status.
//!
//! ```text
//! resolve(client) ─▶ Files ─▶ judge(pure) ─▶ ValidatedSkill ─▶ deliver(client) ─▶ Delivery ─▶ status(pure) ─▶ write, prune
//! ```
//! Each step takes the result of the one before it, so none can be left out. After `judge` no step has the `Skill`: what was
//! judged comes with the `ValidatedSkill`, which only `judge` makes, and the rest with the `Outline`, which
//! has no source. What is written is a `Desired` with its owners, which becomes an `Applied`. `chosen` takes the same steps for the
//! versions of an uploaded skill that pins choose.

mod archive_permits;
mod deliver;
mod judge;
mod outline;
mod pinned_versions;
mod prune;
mod reconcile;
mod resolve;
mod status;
mod verdicts;

pub(super) use archive_permits::ArchivePermits;
pub(super) use reconcile::{failed, reconcile};
pub(super) use status::requested_at;
pub(super) use verdicts::packages_status;
