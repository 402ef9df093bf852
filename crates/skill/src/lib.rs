//! knack-skill: skills as values. Pure: no I/O, no clock, no async, no Kubernetes.

pub mod model;
