//! Knack.
