//! Removes what a run left, whatever it made of it: folders that nobody may enter, paths longer than the kernel takes,
//! chains of thousands of folders.
//!
//! Every step is relative to the descriptor of the folder above, so no path is long, and no link is followed. What is
//! too deep moves up to the top, so few descriptors are open.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, chmod, openat, renameat, unlinkat};
use rustix::io::{Errno, Result};

/// Folders that are open at once, of one tree. Nothing honest is as deep.
const MAX_OPEN: usize = 64;

/// Removes a tree. What cannot be removed stays for the next start.
pub(super) fn remove_tree(path: &Path) {
    match remove(path) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => {
            let error = std::io::Error::from(error);
            tracing::warn!(%error, "a run directory could not be removed");
        }
    }
}

fn remove(path: &Path) -> Result<()> {
    let top = open_folder(CWD, path)?;
    let emptied = empty(&top);
    unlinkat(CWD, path, AtFlags::REMOVEDIR).map_err(|error| emptied.err().unwrap_or(error))
}

/// A folder that is being emptied.
struct Level {
    list: Dir,
    /// Its name in the level before.
    name: CString,
}

impl Level {
    fn new(folder: OwnedFd, name: CString) -> Result<Self> {
        Ok(Self {
            list: Dir::new(folder)?,
            name,
        })
    }
}

/// Removes everything in `top`. Goes on after what cannot be removed; the first error is returned.
fn empty(top: &OwnedFd) -> Result<()> {
    let mut levels = vec![Level::new(open_folder(top, c".")?, CString::default())?];
    let (mut has_moved, mut outcome) = (false, Ok(()));
    loop {
        let depth = levels.len();
        let Some(level) = levels.last_mut() else { return outcome };
        let step = match level.list.read() {
            Some(Ok(entry)) if matches!(entry.file_name().to_bytes(), b"." | b"..") => Ok(()),
            Some(Ok(entry)) => take_out(
                top,
                &mut levels,
                entry.file_name(),
                entry.file_type(),
                depth >= MAX_OPEN,
            )
            .map(|moved| has_moved |= moved),
            // What has moved up is in the list now.
            None if depth == 1 && has_moved => {
                has_moved = false;
                level.list.rewind();
                Ok(())
            }
            None => leave(&mut levels),
            Some(Err(error)) => leave(&mut levels).and(Err(error)),
        };
        outcome = outcome.and(step);
    }
}

/// Removes an entry of the last level, or enters it if it is a folder. Returns whether it was moved to the top instead.
fn take_out(top: &OwnedFd, levels: &mut Vec<Level>, name: &CStr, kind: FileType, is_deep: bool) -> Result<bool> {
    let Some(level) = levels.last() else { return Ok(false) };
    let parent = level.list.fd()?;
    if kind != FileType::Directory {
        match unlinkat(parent, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return Ok(false),
            // A file system that does not tell what is a folder.
            Err(Errno::ISDIR) => {}
            Err(error) => return Err(error),
        }
    }
    // Opened before it is moved, too: without the right to write to it the kernel does not change its `..`.
    let folder = open_folder(parent, name)?;
    if is_deep {
        renameat(parent, name, top, uuid::Uuid::new_v4().to_string())?;
    } else {
        let level = Level::new(folder, name.to_owned())?;
        levels.push(level);
    }
    Ok(is_deep)
}

/// Removes the last level from the one before. The top stays.
fn leave(levels: &mut Vec<Level>) -> Result<()> {
    let (Some(emptied), Some(parent)) = (levels.pop(), levels.last()) else {
        return Ok(());
    };
    unlinkat(parent.list.fd()?, &emptied.name, AtFlags::REMOVEDIR)
}

/// Opens a folder, which its owner may list and change from then on.
fn open_folder(parent: impl AsFd, name: impl rustix::path::Arg) -> Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let place = openat(parent, name, flags | OFlags::PATH, Mode::empty())?;
    // By its descriptor: a name could be that of a link by now. It fails for folders of others, which root opens anyway.
    let _ = chmod(format!("/proc/self/fd/{}", place.as_raw_fd()), Mode::RWXU);
    openat(&place, c".", flags, Mode::empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::mkdirat;

    /// A chain of folders; each is opened from the one above, so that no path is long.
    fn chain(top: &Path, name: &str, length: usize) -> OwnedFd {
        let open = |parent: &OwnedFd| {
            mkdirat(parent, name, Mode::RWXU).unwrap();
            openat(parent, name, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap()
        };
        let top: OwnedFd = std::fs::File::open(top).unwrap().into();
        (0..length).fold(top, |folder, _| open(&folder))
    }

    #[test]
    fn a_tree_is_removed_however_deep_it_is_and_whatever_its_modes_are() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("run");
        std::fs::create_dir_all(path.join("work")).unwrap();
        std::os::unix::fs::symlink("/etc", path.join("work/link")).unwrap();
        // Paths of 5,100 bytes, more than the kernel takes at once.
        let end = chain(&path, &"n".repeat(255), 20);
        mkdirat(&end, "closed", Mode::RWXU).unwrap();
        mkdirat(&end, "closed/inside", Mode::RWXU).unwrap();
        rustix::fs::chmodat(&end, "closed", Mode::empty(), AtFlags::empty()).unwrap();
        // More levels than a process may have descriptors, each of them closed in the end.
        let last = chain(&path.join("work"), "d", 3000);
        std::os::unix::fs::symlink("/etc/passwd", path.join("work/d/link")).unwrap();
        rustix::fs::fchmod(&last, Mode::empty()).unwrap();
        rustix::fs::chmod(path.join("work"), Mode::empty()).unwrap();
        drop((end, last));
        remove_tree(&path);
        assert!(!path.exists());
        assert!(Path::new("/etc/passwd").exists());
        // What is not there is no error.
        assert_eq!(remove(&path), Err(Errno::NOENT));
    }
}
