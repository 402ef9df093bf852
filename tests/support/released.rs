//! The program whose times and memory are measured.

use std::path::PathBuf;

/// The program of the release, if the tests were given one: what is measured is what is installed.
pub(crate) fn knack() -> PathBuf {
    std::env::var_os("KNACK_PROGRAM").map_or_else(|| env!("CARGO_BIN_EXE_knack").into(), PathBuf::from)
}
