//! Writing staged files, before any code of the run exists.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::{Gid, Mode, OFlags, Uid};
use sha2::{Digest as _, Sha256};

use super::folders::{DIRECTORY, HOME, RunFolders, TEMPORARY};
use crate::protocol::{Area, Identity, StagedFile};

/// Longest staged path in bytes; a quarter of the kernel's PATH_MAX, so the run can still put a prefix before it.
pub(crate) const MAX_PATH_BYTES: usize = 1024;
/// Deepest staged path; as deep as the walk that collects.
const MAX_PARTS: usize = super::walk::MAX_DEPTH;

/// The staged files of the work directory: path to length and running hash.
#[derive(Debug, Default)]
pub(crate) struct Staged(BTreeMap<String, (u64, Sha256)>);

impl Staged {
    /// The length and SHA-256 of a staged file.
    pub(crate) fn get(&self, path: &str) -> Option<(u64, [u8; 32])> {
        self.0
            .get(path)
            .map(|(length, hash)| (*length, hash.clone().finalize().into()))
    }

    fn add(&mut self, file: &StagedFile) {
        let entry = self.0.entry(file.path.clone()).or_default();
        if !file.append {
            *entry = (0, Sha256::new());
        }
        entry.0 += file.data.0.len() as u64;
        entry.1.update(&file.data.0);
    }
}

/// Writes one file or piece and notes it.
///
/// Errors: the path leaves its area or is no path, or the file cannot be written; in one line with the path.
pub(crate) fn stage(folders: &RunFolders, area: Area, file: &StagedFile, staged: &mut Staged) -> Result<(), String> {
    let parts = parts(&file.path).map_err(|what| format!("file {:?}: {what}", file.path))?;
    if area == Area::Work && [HOME, TEMPORARY].contains(&parts[0]) {
        return Err(format!("file {:?}: {} is empty when a run begins", file.path, parts[0]));
    }
    let (root, owner) = match area {
        Area::Work => (&folders.work, folders.owner),
        Area::Skills => (&folders.skills, None),
    };
    write(root, owner, &parts, file).map_err(|error| format!("file {:?}: {error}", file.path))?;
    if area == Area::Work {
        staged.add(file);
    }
    Ok(())
}

/// Splits a staged path.
///
/// Errors: what is wrong with it, in words.
fn parts(path: &str) -> Result<Vec<&str>, &'static str> {
    if path.is_empty() || path.len() > MAX_PATH_BYTES {
        return Err("the path must have 1 to 1,024 bytes");
    }
    let parts: Vec<&str> = path.split('/').collect();
    if parts.len() > MAX_PARTS {
        return Err("the path has more than 32 parts");
    }
    if parts
        .iter()
        .any(|part| matches!(*part, "" | "." | "..") || part.contains('\0'))
    {
        return Err("the path must be relative and have no empty, '.' or '..' part and no NUL");
    }
    Ok(parts)
}

fn write(root: &OwnedFd, owner: Option<Identity>, parts: &[&str], file: &StagedFile) -> std::io::Result<()> {
    let (name, directories) = parts.split_last().ok_or(std::io::ErrorKind::InvalidInput)?;
    let mut current: Option<OwnedFd> = None;
    for directory in directories {
        let parent = current.as_ref().unwrap_or(root);
        let made = rustix::fs::mkdirat(parent, *directory, Mode::from_raw_mode(0o755));
        let opened = rustix::fs::openat(parent, *directory, DIRECTORY, Mode::empty())?;
        if made.is_ok() {
            give(&opened, owner)?;
        }
        current = Some(opened);
    }
    let parent = current.as_ref().unwrap_or(root);
    let start = if file.append {
        OFlags::APPEND
    } else {
        OFlags::CREATE | OFlags::TRUNC
    };
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | start;
    let opened = rustix::fs::openat(parent, *name, flags, Mode::from_raw_mode(0o644))?;
    if !file.append {
        // The mode is set and not only asked for: the umask and an older file do not matter.
        rustix::fs::fchmod(
            &opened,
            Mode::from_raw_mode(if file.executable { 0o755 } else { 0o644 }),
        )?;
        give(&opened, owner)?;
    }
    File::from(opened).write_all(&file.data.0)
}

fn give(opened: &OwnedFd, owner: Option<Identity>) -> std::io::Result<()> {
    if let Some(owner) = owner {
        rustix::fs::fchown(
            opened.as_fd(),
            Some(Uid::from_raw(owner.uid)),
            Some(Gid::from_raw(owner.gid)),
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_inside() {
        for good in ["a", "a/b.txt", "...", "a/..b", "ä/ö"] {
            assert!(parts(good).is_ok(), "{good}");
        }
        let long = "x".repeat(1025);
        let deep = ["d"; 33].join("/");
        for bad in [
            "", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "./a", "a\0b", &long, &deep,
        ] {
            assert!(parts(bad).is_err(), "{bad:?}");
        }
    }
}
