//! Reconciles a SkillRuntime: the NetworkPolicy and ResourceQuota of its sandboxes, and its status.

mod fence;
mod guard;
mod kept;
#[cfg(test)]
mod kept_tests;
mod listing;
mod quota;
mod reconcile;
mod register;
mod status;
mod summary;

pub(super) use kept::Looks;
pub(super) use reconcile::{failed, forget, reconcile};
