//! A SkillRuntime to what stands around its sandboxes (NetworkPolicy, ResourceQuota) and to its status.

mod fence;
mod guard;
mod listing;
mod quota;
mod reconcile;
mod register;
mod status;

pub(super) use reconcile::{failed, forget, reconcile};
