//! The state that a history and its writer thread share.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustix::fs::OFlags;

use super::execution::Execution;
use super::holders::Holders;
use super::index::{DiskLine, Index, Location};
use super::lines::path;
use super::settings::HistorySettings;
use crate::disk::Disk;
use crate::model::now;
use crate::no_link;

/// The shared state.
pub(super) struct Inner {
    pub(super) folder: PathBuf,
    pub(super) disk: Box<dyn Disk>,
    pub(super) settings: HistorySettings,
    pub(super) index: Mutex<Index>,
    /// Locked before the index. Held between the look-up of an id's owner and the note, so that the id does not get another owner
    /// meanwhile.
    pub(super) holders: Mutex<Holders>,
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

    pub(super) fn holders(&self) -> MutexGuard<'_, Holders> {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes executions beyond the bounds; a run that is claimed stays until it has ended or its holder is silent.
    pub(super) fn bound(&self) {
        self.bound_to(self.settings.most_kept_bytes());
    }

    /// Removes executions beyond the bounds, with another bound of bytes.
    pub(super) fn bound_to(&self, most_kept_bytes: u64) {
        let (holders, now) = (self.holders(), Instant::now());
        let is_held = |id: &str| holders.of(id, now).is_some();
        let most = (self.settings.most, most_kept_bytes);
        self.index().bound(most, self.since(), &is_held);
    }

    /// Unix time in microseconds; executions from before are not kept.
    pub(super) fn since(&self) -> i64 {
        now().saturating_sub(i64::try_from(self.settings.age.as_micros()).unwrap_or(i64::MAX))
    }

    /// Reads an execution. `None`: it was removed as too old since the look-up, or its line cannot be read, which is no reason to
    /// refuse the others.
    pub(super) fn read(&self, id: &str, location: Location) -> io::Result<Option<Execution>> {
        let line = match location {
            Location::Memory(execution) => return Ok(Some((*execution).clone())),
            Location::Disk(line) => line,
        };
        if let Some(execution) = self.read_line(line)? {
            return Ok(Some(execution));
        }
        // Its file was removed since the look-up, and it was copied before.
        let location = self.index().state(id).map(|(_, location)| location);
        match location {
            Some(Location::Memory(execution)) => Ok(Some((*execution).clone())),
            Some(Location::Disk(copy)) if copy != line => self.read_line(copy),
            _ => Ok(None),
        }
    }

    fn read_line(&self, DiskLine { file, offset, length }: DiskLine) -> io::Result<Option<Execution>> {
        let file = match no_link::open(&path(&self.folder, file), OFlags::RDONLY) {
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
