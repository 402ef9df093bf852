//! Reconciles a SkillRuntime: the NetworkPolicy and ResourceQuota of its sandboxes, and its status.

mod fence;
mod guard;
mod listing;
mod quota;
mod reconcile;
mod register;
mod status;

pub(super) use reconcile::{failed, forget, reconcile};
