//! The locks of a run and their order.

mod allowlist;
mod apply;
mod bpf;
mod filter;
mod limits;
mod paths;

pub(crate) use apply::{Recipe, check_identity, drop_to};
pub(crate) use limits::{Effective, START_CPU, lower_limits};
pub(crate) use paths::PathRules;
