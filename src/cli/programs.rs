//! Programs of this machine, as runs would find them.

use std::path::PathBuf;

use knack_execution::interpreter::{ProgramLookup, find_program};
use knack_packages::programs::ProgramState;

/// Where a program is.
pub(super) fn lookup(name: &str) -> ProgramLookup {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path: Vec<PathBuf> = std::env::split_paths(&path)
        .filter(|folder| folder.is_absolute())
        .collect();
    find_program(name, &path)
}

/// Whether a program is on the path, as a judgement.
pub(super) fn state(name: &str) -> ProgramState {
    match lookup(name) {
        ProgramLookup::Here(_) => ProgramState::Here,
        ProgramLookup::Closed(path) => {
            ProgramState::Closed(format!("it is {}, which runs cannot find or execute", path.display()))
        }
        ProgramLookup::Absent => ProgramState::Absent,
    }
}
