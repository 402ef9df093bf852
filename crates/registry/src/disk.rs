//! The steps on a disk that a store is made of. Each is on the disk when it returns, and follows no link.

use std::fmt::Debug;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, fsync, mkdirat, renameat, unlinkat};

use crate::no_link::{self, kind, listed, parent};

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
        let (within, name) = parent(path)?;
        mkdirat(within, name, Mode::RWXU)?;
        sync_parent(path)
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = no_link::open(path, OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        sync_parent(path)
    }

    fn append(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let (within, name) = parent(path)?;
        let is_new = kind(within.as_fd(), name).is_err();
        let mut file = no_link::open(path, OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND)?;
        file.write_all(bytes)?;
        file.sync_data()?;
        if is_new { sync_parent(path) } else { Ok(()) }
    }

    fn cut(&self, path: &Path, length: u64) -> io::Result<()> {
        let file = no_link::open(path, OFlags::WRONLY)?;
        file.set_len(length)?;
        file.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let ((before, old), (after, new)) = (parent(from)?, parent(to)?);
        renameat(before, old, after, new)?;
        sync_parent(to)?;
        if from.parent() == to.parent() {
            return Ok(());
        }
        sync_parent(from)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let (within, name) = parent(path)?;
        if kind(within.as_fd(), name)? == FileType::Directory {
            // It follows no link that is in the folder, or takes its place.
            return fs::remove_dir_all(path);
        }
        Ok(unlinkat(within, name, AtFlags::empty())?)
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
    let lock = no_link::open(path, OFlags::WRONLY | OFlags::CREATE)?;
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
        Some(parent) => Ok(fsync(listed(parent)?)?),
        None => Ok(()),
    }
}
