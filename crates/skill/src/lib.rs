//! knack-skill: skills as values. Pure: no I/O, no clock, no async, no Kubernetes.

pub mod autoscore;
pub mod call;
pub mod catalog;
pub mod model;
pub mod plan;
