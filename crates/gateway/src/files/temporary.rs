//! Temporary folders of this process. What killed processes have left is removed by the next one.
//!
//! ```text
//! knack-files-XXXXXX/lock   held by the living process; it has this name only once it is held
//! ```

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The begin of the names of Knack's folders.
const PREFIX: &str = "knack-files-";
/// The lock of the process that owns a folder.
const LOCK: &str = "lock";
/// The folder's name until its lock is held, so that no other process takes it for an abandoned one.
const LOCK_BEFORE: &str = "lock.new";
/// Folders that one start checks: a machine with more of them has another problem, and a start must not take long.
const CHECKED_MAX: usize = 1024;

/// A fresh temporary folder, removed with it.
#[derive(Debug)]
pub(crate) struct Temporary {
    folder: tempfile::TempDir,
    _lock: File,
}

impl Temporary {
    /// Makes one, and removes those of processes that were killed.
    pub(crate) fn make() -> io::Result<Self> {
        Self::make_below(&std::env::temp_dir())
    }

    fn make_below(parent: &Path) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
        let lock = File::create(folder.path().join(LOCK_BEFORE))?;
        lock.try_lock()?;
        fs::rename(folder.path().join(LOCK_BEFORE), folder.path().join(LOCK))?;
        let user = fs::symlink_metadata(folder.path())?.uid();
        for stale in stale(parent, user) {
            if let Err(error) = fs::remove_dir_all(&stale) {
                tracing::debug!(%error, folder = %stale.display(), "a folder of a killed process could not be removed");
            }
        }
        Ok(Self { folder, _lock: lock })
    }

    /// The folder's path.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Temporary folders of gateways of this user whose lock is not held. Folders without a lock file stay: they belong to a process
/// that is starting, or to an older version that may still run.
fn stale(parent: &Path, user: u32) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(parent) else {
        return Vec::new();
    };
    let ours = entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    let is_of_user = |path: &PathBuf| fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir() && meta.uid() == user);
    let free = |path: &PathBuf| File::open(path.join(LOCK)).is_ok_and(|lock| lock.try_lock().is_ok());
    ours.take(CHECKED_MAX)
        .map(|entry| entry.path())
        .filter(is_of_user)
        .filter(free)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_killed_processes_are_removed_and_those_of_the_living_and_of_others_stay() {
        let parent = tempfile::tempdir().unwrap();
        let folder = |name: &str, lock: Option<&str>| {
            let path = parent.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::write(path.join("1"), "content").unwrap();
            if let Some(lock) = lock {
                fs::write(path.join(lock), "").unwrap();
            }
            path
        };
        let living = Temporary::make_below(parent.path()).unwrap();
        let killed = folder("knack-files-killed", Some(LOCK));
        let begins = folder("knack-files-begins", Some(LOCK_BEFORE));
        let older = folder("knack-files-older", None);
        let other = folder("other-files", Some(LOCK));
        let elsewhere = folder("elsewhere", Some(LOCK));
        let link = parent.path().join("knack-files-link");
        std::os::unix::fs::symlink(&elsewhere, &link).unwrap();
        let next = Temporary::make_below(parent.path()).unwrap();
        assert!(!killed.exists(), "nobody holds it");
        for stays in [living.path(), next.path(), &begins, &older, &other, &elsewhere, &link] {
            assert!(stays.exists(), "{}", stays.display());
        }
        let path = living.path().to_owned();
        drop(living);
        assert!(!path.exists(), "an orderly end removes its own");
    }
}
