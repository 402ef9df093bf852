//! A bounded walk over a directory in path order that follows nothing.

use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Dir, FileType, Mode, Stat};

use super::folders::DIRECTORY;

/// Deepest directory that is entered. Each level holds one descriptor.
pub(crate) const MAX_DEPTH: usize = 32;
/// Entries that one walk reads. 100,000 files are collected completely; for more, the result says so.
pub(crate) const MAX_ENTRIES: u64 = 250_000;

/// An entry that the walk visits.
#[derive(Debug)]
pub(crate) enum WalkEntry<'a> {
    /// Something that is not a directory, with its metadata.
    Leaf {
        /// The directory that holds it.
        parent: &'a OwnedFd,
        /// The name in that directory.
        name: &'a CStr,
        /// Metadata of the entry itself, not of what a link points to.
        stat: &'a Stat,
    },
    /// A directory at [`MAX_DEPTH`], not entered.
    TooDeep,
    /// An entry whose metadata or content cannot be read.
    Unreadable(rustix::io::Errno),
    /// The walk ended at [`MAX_ENTRIES`].
    TooMany,
}

/// Whether to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WalkStep {
    Continue,
    Stop,
}

/// Calls `visit` with the path (relative, raw bytes) of every entry that is not a directory, in path order.
///
/// The entry `skip` of the top directory is passed over. Errors: the top directory cannot be read.
pub(crate) fn walk(
    top: OwnedFd,
    skip: &[&CStr],
    visit: &mut dyn FnMut(&[u8], WalkEntry<'_>) -> WalkStep,
) -> rustix::io::Result<()> {
    let mut left = MAX_ENTRIES;
    let mut stack = vec![Level::read(top, 0, &mut left)?];
    let mut path: Vec<u8> = Vec::new();
    while let Some(depth) = stack.len().checked_sub(1) {
        let Some(level) = stack.last_mut() else { break };
        path.truncate(level.length);
        let Some(name) = level.names.pop() else {
            stack.pop();
            continue;
        };
        if depth == 0 && skip.contains(&name.as_c_str()) {
            continue;
        }
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name.to_bytes());
        let stat = match rustix::fs::statat(&level.directory, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(error) => {
                if visit(&path, WalkEntry::Unreadable(error)) == WalkStep::Stop {
                    return Ok(());
                }
                continue;
            }
        };
        let step = if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            let leaf = WalkEntry::Leaf {
                parent: &level.directory,
                name: &name,
                stat: &stat,
            };
            visit(&path, leaf)
        } else if depth + 1 >= MAX_DEPTH {
            visit(&path, WalkEntry::TooDeep)
        } else {
            let opened = rustix::fs::openat(&level.directory, &name, DIRECTORY, Mode::empty());
            match opened.and_then(|directory| Level::read(directory, path.len(), &mut left)) {
                Ok(level) => {
                    stack.push(level);
                    WalkStep::Continue
                }
                Err(error) => visit(&path, WalkEntry::Unreadable(error)),
            }
        };
        if step == WalkStep::Stop {
            return Ok(());
        }
    }
    if left == 0 {
        visit(b"", WalkEntry::TooMany);
    }
    Ok(())
}

struct Level {
    directory: OwnedFd,
    /// Sorted descending, so that `pop` yields them in order.
    names: Vec<CString>,
    /// Length of the path of this directory.
    length: usize,
}

impl Level {
    fn read(directory: OwnedFd, length: usize, left: &mut u64) -> rustix::io::Result<Self> {
        Ok(Self {
            names: names(&directory, left)?,
            directory,
            length,
        })
    }
}

/// The names in a directory, at most `left` of them, which is lowered.
fn names(directory: &OwnedFd, left: &mut u64) -> rustix::io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        if *left == 0 {
            break;
        }
        *left -= 1;
        names.push(name.to_owned());
    }
    names.sort_unstable_by(|left, right| right.cmp(left));
    Ok(names)
}
