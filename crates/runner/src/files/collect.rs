//! Collecting the results, after every process of the run is gone.

use std::ffi::CStr;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;

use rustix::fs::{FileType, Mode, OFlags, Stat};
use sha2::{Digest as _, Sha256};

use super::folders::{HOME, RunFolders, TEMPORARY};
use super::stage::Staged;
use super::walk::{MAX_DEPTH, MAX_ENTRIES, WalkEntry, WalkStep, walk};
use crate::protocol::FileErrorKind;

/// Errors reported one by one; the rest is one summary. 100 names are more than a model reads.
const MAX_ERRORS: u64 = 100;

/// One thing that is found.
#[derive(Debug)]
pub(crate) enum CollectedEntry<'a> {
    /// A new or changed file, whole.
    File {
        path: &'a str,
        mode: u32,
        sha256: [u8; 32],
        bytes: Vec<u8>,
    },
    /// Something not collected.
    Error {
        path: String,
        kind: FileErrorKind,
        message: String,
    },
}

/// Where the found goes.
pub(crate) trait Sink {
    /// Whether a file of this path and size can be taken, before it is read.
    ///
    /// Errors: why not.
    fn judge(&self, path: &str, size: u64) -> Result<(), UncollectedFile>;

    /// Takes one thing.
    fn take(&mut self, found: CollectedEntry<'_>);
}

/// Why something of a run is not collected.
#[derive(Debug)]
pub(crate) struct UncollectedFile {
    pub kind: FileErrorKind,
    pub message: String,
}

impl UncollectedFile {
    /// Not collected for a reason of this kind.
    pub(crate) fn new(kind: FileErrorKind, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { kind, message }
    }

    /// Its content or its entry cannot be read.
    fn unreadable(error: impl Into<std::io::Error>) -> Self {
        Self::new(FileErrorKind::Unreadable, error.into().to_string())
    }
}

struct Budget {
    /// Bytes that all files of the run may have.
    limit: u64,
    bytes: u64,
    files: u64,
    errors: u64,
}

/// Walks the work directory in path order and hands on every new or changed file, up to the limits, and everything that
/// is not collected.
///
/// Memory: one file at a time, at most `result_bytes`. Entries that are unchanged since staging are silent.
pub(crate) fn collect(
    folders: &RunFolders,
    staged: &Staged,
    result_bytes: u64,
    result_files: u64,
    sink: &mut dyn Sink,
) {
    let mut budget = Budget {
        limit: result_bytes,
        bytes: result_bytes,
        files: result_files,
        errors: 0,
    };
    let (mut over_count, mut more_errors) = (0_u64, 0_u64);
    let mut visit = |path: &[u8], entry: WalkEntry<'_>| {
        let outcome = match entry {
            WalkEntry::Leaf { parent, name, stat } => one(parent, name, stat, path, staged, &mut budget, sink),
            WalkEntry::TooDeep => Err(UncollectedFile::new(
                FileErrorKind::TooDeep,
                format!("deeper than {MAX_DEPTH} directories"),
            )),
            WalkEntry::Unreadable(error) => Err(UncollectedFile::unreadable(error)),
            WalkEntry::TooMany => Err(UncollectedFile::new(
                FileErrorKind::TooMany,
                format!("more than {MAX_ENTRIES} entries; the rest was not looked at"),
            )),
        };
        match outcome {
            Ok(()) => {}
            // Files over the count are reported in one summary.
            Err(why) if matches!(why.kind, FileErrorKind::TooMany) && !path.is_empty() => over_count += 1,
            Err(_) if budget.errors >= MAX_ERRORS => more_errors += 1,
            Err(UncollectedFile { kind, message }) => {
                budget.errors += 1;
                sink.take(CollectedEntry::Error {
                    path: String::from_utf8_lossy(path).into_owned(),
                    kind,
                    message,
                });
            }
        }
        WalkStep::Continue
    };
    let skip: [&CStr; 3] = [c"skills", c".tmp", c".home"];
    debug_assert_eq!(
        [skip[1].to_bytes(), skip[2].to_bytes()],
        [TEMPORARY.as_bytes(), HOME.as_bytes()]
    );
    let walked = folders.open_work().and_then(|top| walk(top, &skip, &mut visit));
    if let Err(error) = walked {
        let error = std::io::Error::from(error);
        let message = format!("the work directory cannot be read: {error}");
        report_summary(sink, FileErrorKind::Unreadable, message);
    }
    if over_count > 0 {
        let message = format!("{over_count} more files over the limit of {result_files} files");
        report_summary(sink, FileErrorKind::TooMany, message);
    }
    if more_errors > 0 {
        let message = format!("{more_errors} more files were not collected");
        report_summary(sink, FileErrorKind::TooMany, message);
    }
}

/// Reports an error that is not about one file.
fn report_summary(sink: &mut dyn Sink, kind: FileErrorKind, message: String) {
    sink.take(CollectedEntry::Error {
        path: String::new(),
        kind,
        message,
    });
}

/// Takes one entry that is not a directory.
fn one(
    parent: &OwnedFd,
    name: &CStr,
    stat: &Stat,
    path: &[u8],
    staged: &Staged,
    budget: &mut Budget,
    sink: &mut dyn Sink,
) -> Result<(), UncollectedFile> {
    let refuse = |kind, message: &str| Err(UncollectedFile::new(kind, message));
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {}
        FileType::Symlink => {
            return refuse(FileErrorKind::Symlink, "a symbolic link; links are not followed");
        }
        _ => return refuse(FileErrorKind::Special, "not a regular file"),
    }
    if stat.st_nlink > 1 {
        return refuse(FileErrorKind::Hardlink, "the file has more than one name");
    }
    let Ok(path) = std::str::from_utf8(path) else {
        return refuse(FileErrorKind::Name, "the name is not UTF-8");
    };
    let size = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
    let before = staged.get(path);
    let maybe_unchanged = before.is_some_and(|(length, _)| length == size);
    if !maybe_unchanged {
        budget.check(size)?;
        sink.judge(path, size)?;
    }
    let opened = open(parent, name).map_err(UncollectedFile::unreadable)?;
    if maybe_unchanged && before.map(|(_, hash)| hash) == hash_of(&opened) {
        return Ok(());
    }
    budget.check(size)?;
    sink.judge(path, size)?;
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    let limit = budget.bytes.saturating_add(1);
    // From the start: the comparison above may have read to the end.
    rustix::fs::seek(&opened, rustix::fs::SeekFrom::Start(0)).map_err(UncollectedFile::unreadable)?;
    (&opened)
        .take(limit)
        .read_to_end(&mut bytes)
        .map_err(UncollectedFile::unreadable)?;
    budget.check(bytes.len() as u64)?;
    sink.judge(path, bytes.len() as u64)?;
    budget.bytes -= bytes.len() as u64;
    budget.files -= 1;
    let sha256 = Sha256::digest(&bytes).into();
    sink.take(CollectedEntry::File {
        path,
        mode: stat.st_mode & 0o777,
        sha256,
        bytes,
    });
    Ok(())
}

impl Budget {
    fn check(&self, size: u64) -> Result<(), UncollectedFile> {
        if self.files == 0 {
            return Err(UncollectedFile::new(FileErrorKind::TooMany, "over the number of files"));
        }
        if size > self.bytes {
            let limit = of_bytes(self.limit);
            let left = of_bytes(self.bytes);
            let message = format!("{size} bytes; the limit for files of one run is {limit}, of which {left} are left");
            return Err(UncollectedFile::new(FileErrorKind::TooLarge, message));
        }
        Ok(())
    }
}

/// A size as a limit is written: whole MiB where it has no rest.
fn of_bytes(bytes: u64) -> String {
    const MIB: u64 = 1 << 20;
    if bytes > 0 && bytes.is_multiple_of(MIB) {
        format!("{} MiB", bytes / MIB)
    } else {
        format!("{bytes} bytes")
    }
}

/// Opens without following and without waiting, and checks on the open file what the walk saw by name.
fn open(parent: &OwnedFd, name: &CStr) -> std::io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let opened = rustix::fs::openat(parent, name, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&opened)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || stat.st_nlink > 1 {
        return Err(std::io::Error::other("the file changed while it was collected"));
    }
    Ok(File::from(opened))
}

/// SHA-256 of an open file; `None` if it cannot be read.
fn hash_of(mut file: &File) -> Option<[u8; 32]> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Some(hash.finalize().into()),
            Ok(count) => hash.update(buffer.get(..count)?),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}
