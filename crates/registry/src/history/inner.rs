//! The state that a history and its writer thread share.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::execution::Execution;
use super::index::{Index, Location};
use super::lines::path;
use super::settings::HistorySettings;
use crate::disk::Disk;

/// The shared state.
pub(super) struct Inner {
    pub(super) folder: PathBuf,
    pub(super) disk: Box<dyn Disk>,
    pub(super) settings: HistorySettings,
    pub(super) index: Mutex<Index>,
    pub(super) queued: AtomicUsize,
    pub(super) dropped: AtomicU64,
    pub(super) notify: fn(&str),
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("FolderHistory")
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}

impl Inner {
    pub(super) fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Unix time in microseconds; executions from before are not kept.
    pub(super) fn since(&self) -> i64 {
        now().saturating_sub(i64::try_from(self.settings.age.as_micros()).unwrap_or(i64::MAX))
    }

    /// Reads an execution. `None`: it was removed as too old since the look-up, or its line cannot be read, which is no reason to
    /// refuse the others.
    pub(super) fn read(&self, place: Location) -> io::Result<Option<Execution>> {
        let (file, offset, length) = match place {
            Location::Memory(execution) => return Ok(Some((*execution).clone())),
            Location::Disk { file, offset, length } => (file, offset, length),
        };
        let file = match File::open(path(&self.folder, file)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut bytes = vec![0; length as usize];
        file.read_exact_at(&mut bytes, offset)?;
        let read = serde_json::from_slice(&bytes);
        Ok(read
            .inspect_err(|error| tracing::error!(%error, "a line of the history of executions cannot be read"))
            .ok())
    }
}

/// Unix time in microseconds.
pub(super) fn now() -> i64 {
    jiff::Timestamp::now().as_microsecond()
}
