//! A SkillRuntime to its fence (NetworkPolicy) and status.

mod fence;
mod reconcile;
mod status;

pub(super) use reconcile::{failed, forget, reconcile};
