//! Counts the files of the work directory, on machines where nothing else bounds them.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Dir, FileType, Mode, Stat};

use super::folders::{DIRECTORY, RunFolders};

/// The deepest directory that is read; each level holds one descriptor. Nothing honest is a tenth as deep.
const MAX_DEPTH: usize = 128;

/// The counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// Everything, directories too.
    pub(crate) files: u64,
    /// Blocks on disk, in bytes; holes in sparse files count nothing.
    pub(crate) bytes: u64,
    /// There is something that cannot be read: too deep, or its owner has hidden it.
    pub(crate) is_hidden: bool,
}

impl Count {
    /// Whether it is more than allowed. A hidden part counts as too much.
    pub(crate) fn is_over(&self, max_files: u64, max_bytes: u64) -> bool {
        self.files > max_files || self.bytes > max_bytes || self.is_hidden
    }

    fn add(&mut self, stat: &Stat) {
        self.files += 1;
        self.bytes = self.bytes.saturating_add(blocks(stat));
    }
}

/// The bytes of a file on disk.
pub(crate) fn blocks(stat: &Stat) -> u64 {
    u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512)
}

/// Counts the work directory, until one of the limits is passed: so the limits bound what a count costs.
pub(crate) fn count(folders: &RunFolders, max_files: u64, max_bytes: u64) -> Count {
    let mut total = Count::default();
    let Some(top) = folders.open_work().ok().and_then(|top| Dir::new(top).ok()) else {
        total.is_hidden = true;
        return total;
    };
    let mut stack = vec![top];
    while let Some(directory) = stack.last_mut() {
        let Some(entry) = directory.read() else {
            stack.pop();
            continue;
        };
        let Ok(entry) = entry else {
            total.is_hidden = true;
            return total;
        };
        if matches!(entry.file_name().to_bytes(), b"." | b"..") {
            continue;
        }
        match open_entry(directory, entry.file_name()) {
            // It was removed during the count.
            Err(rustix::io::Errno::NOENT) => {}
            Err(_) => total.is_hidden = true,
            Ok((stat, inside)) => {
                total.add(&stat);
                if let Some(inside) = inside {
                    total.is_hidden |= stack.len() >= MAX_DEPTH;
                    stack.push(inside);
                }
            }
        }
        if total.is_over(max_files, max_bytes) {
            break;
        }
    }
    total
}

/// The metadata of an entry and, of a directory, its list. Links are not followed.
fn open_entry(parent: &Dir, name: &std::ffi::CStr) -> rustix::io::Result<(Stat, Option<Dir>)> {
    let parent = parent.fd()?;
    let stat = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return Ok((stat, None));
    }
    let opened: OwnedFd = rustix::fs::openat(parent, name, DIRECTORY, Mode::empty())?;
    Ok((stat, Some(Dir::new(opened)?)))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn folders() -> (tempfile::TempDir, RunFolders) {
        let directory = tempfile::tempdir().unwrap();
        let folders = RunFolders::make(directory.path().to_str().unwrap(), None, None).unwrap();
        (directory, folders)
    }

    #[test]
    fn directories_and_what_is_deep_in_them_count() {
        let (_directory, folders) = folders();
        // The link to the skills, the home and the temporary directory.
        assert_eq!(count(&folders, 100, u64::MAX).files, 3);
        let deep = folders.work_path.join(["d"; 100].join("/"));
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("f"), vec![1; 1 << 20]).unwrap();
        let seen = count(&folders, 1000, u64::MAX);
        assert_eq!((seen.files, seen.is_hidden), (104, false));
        assert!(seen.bytes >= 1 << 20, "{seen:?}");
        assert!(count(&folders, 50, u64::MAX).is_over(50, u64::MAX));
        assert!(count(&folders, 1000, 1 << 19).is_over(1000, 1 << 19));
    }

    #[test]
    fn what_cannot_be_read_is_over_any_limit() {
        let (_directory, folders) = folders();
        fs::create_dir_all(folders.work_path.join(["d"; MAX_DEPTH + 1].join("/"))).unwrap();
        assert!(count(&folders, 1000, u64::MAX).is_over(1000, u64::MAX));
        let (_directory, folders) = self::folders();
        let hidden = folders.work_path.join("hidden");
        fs::create_dir(&hidden).unwrap();
        fs::set_permissions(&hidden, fs::Permissions::from_mode(0o300)).unwrap();
        // Root can read everything.
        assert_eq!(
            count(&folders, 10, u64::MAX).is_hidden,
            !rustix::process::geteuid().is_root()
        );
    }

    #[test]
    fn a_count_ends_at_the_limit() {
        let (_directory, folders) = folders();
        for index in 0..500 {
            fs::create_dir(folders.work_path.join(index.to_string())).unwrap();
        }
        assert_eq!(count(&folders, 10, u64::MAX).files, 11);
    }
}
