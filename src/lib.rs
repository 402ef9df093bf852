//! Knack.

pub mod execution;
