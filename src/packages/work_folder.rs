//! Folders in which installers choose versions.
//!
//! uv and npm take settings (indexes, proxies, constraints) from the folder that they work in and from every folder above it, whoever
//! owns it. So they work below the store, where only this user can write, and never in a folder for temporary files, in which everybody
//! may; and their search ends in the folder itself ([`Uv::run`](super::uv::Uv::run), `node/npm.rs`).

use std::fs::File;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;

use super::build_error::BuildError;
use super::store::{Store, WORK_PREFIX};

/// An empty folder below the store, which only this user can enter; removed when it is dropped.
#[derive(Debug)]
pub(super) struct WorkFolder {
    folder: TempDir,
    /// Locked, so that no prune takes it for a left-over.
    _in_use: File,
}

impl WorkFolder {
    /// Makes one. Blocks.
    pub(super) fn below(store: &Store) -> Result<Self, BuildError> {
        let disk = |error: std::io::Error| BuildError::of_disk("the store", &error);
        let made = tempfile::Builder::new().prefix(WORK_PREFIX).tempdir_in(store.root());
        let folder = made.map_err(disk)?;
        let in_use = File::open(folder.path()).map_err(disk)?;
        flock(&in_use, FlockOperation::LockShared).map_err(|error| disk(error.into()))?;
        Ok(Self {
            folder,
            _in_use: in_use,
        })
    }

    /// The path of the folder.
    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }
}
