//! The steps on a disk that a store is made of. Each is on the disk when it returns.

use std::fmt::Debug;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::thread;
use std::time::Duration;

/// Tries, a pause apart, to have a folder alone: a process that is replaced may still end, and a reader holds the lock
/// for a moment.
const LOCK_TRIES: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(100);

/// The steps on a disk that a store is made of; a test fails them one by one.
pub trait Disk: Debug + Send + Sync + 'static {
    /// A folder, for its user only.
    fn create_folder(&self, path: &Path) -> io::Result<()>;
    /// A whole file, replacing one of that name. Ended in between it may be there in part.
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;
    /// Puts bytes at the end of a file, which is made if it is not there. Ended in between they may be there in part.
    fn append(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;
    /// Shortens a file.
    fn cut(&self, path: &Path, length: u64) -> io::Result<()>;
    /// Moves a file or folder in one step; a file of that name is replaced.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file, or a folder with all that is in it. Ended in between a part may be left.
    fn remove(&self, path: &Path) -> io::Result<()>;
}

/// The disk of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        fs::DirBuilder::new().mode(0o700).create(path)?;
        sync_parent(path)
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(path)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        sync_parent(path)
    }

    fn append(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let is_new = !path.exists();
        let mut file = fs::OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(path)?;
        file.write_all(bytes)?;
        file.sync_data()?;
        if is_new { sync_parent(path) } else { Ok(()) }
    }

    fn cut(&self, path: &Path, length: u64) -> io::Result<()> {
        let file = fs::OpenOptions::new().write(true).open(path)?;
        file.set_len(length)?;
        file.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)?;
        sync_parent(to)?;
        if from.parent() == to.parent() {
            return Ok(());
        }
        sync_parent(from)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        if fs::symlink_metadata(path)?.is_dir() {
            fs::remove_dir_all(path)
        } else {
            fs::remove_file(path)
        }
    }
}

/// Whether a step failed since there is no room on the volume, for this user at least.
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Takes a lock file, which is made if it is not there, for as long as the value lives. Waits for who has it for some two seconds,
/// so it is for the start, before anything is served. Errors: another process still has it (`does` says what it does in the
/// folder), or the disk fails.
pub fn lock_alone(path: &Path, does: &str) -> io::Result<File> {
    let lock = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)?;
    for _ in 0..LOCK_TRIES {
        match lock.try_lock() {
            Ok(()) => return Ok(lock),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
        #[expect(clippy::disallowed_methods, reason = "at the start, before anything is served")]
        thread::sleep(LOCK_PAUSE);
    }
    Err(io::Error::other(format!(
        "another process {does}; stop it, or name another folder"
    )))
}

/// A name is on the disk once its folder is.
fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}
