//! Reconciles a SkillRuntime: the NetworkPolicy and ResourceQuota of its sandboxes, and its status.

mod evaluation;
#[cfg(test)]
mod evaluation_tests;
mod guard;
mod listing;
mod quota;
mod reconcile;
mod register;
mod status;
mod summary;

pub(super) use evaluation::Evaluations;
pub(super) use reconcile::{failed, forget, reconcile};
