//! The file of a package, unpacked.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use flate2::read::MultiGzDecoder;

use crate::sources::archive::{TarEntry, walk_tar};
use crate::sources::{Cause, SourceError};

/// Bytes of headers and padding that a file of a package may have in its archive, on average: one header and an extension.
const OVERHEAD: u64 = 4 << 10;

/// The rest of the bounds on unpacked files.
#[derive(Debug, Clone, Copy)]
pub(super) struct UnpackBudget {
    pub(super) bytes: u64,
    pub(super) files: u64,
}

impl UnpackBudget {
    /// Counts an entry of any kind.
    fn entry(&mut self) -> Result<(), SourceError> {
        self.files = self
            .files
            .checked_sub(1)
            .ok_or_else(|| SourceError::new(Cause::TooLarge, "more files than an environment may have"))?;
        Ok(())
    }
}

/// Unpacks a `.tgz` of npm into an empty folder, without its top folder. Blocks.
///
/// Links, special files, paths that leave the folder and what is over the budget are errors; nothing is written elsewhere.
pub(super) fn unpack(file: &Path, to: &Path, budget: &mut UnpackBudget) -> Result<(), SourceError> {
    let packed = File::open(file).map_err(|error| disk(&error))?;
    let stream = MultiGzDecoder::new(BufReader::new(packed));
    let most = budget.bytes.saturating_add(budget.files.saturating_mul(OVERHEAD));
    fs::create_dir_all(to).map_err(|error| disk(&error))?;
    walk_tar(stream, most, &mut |entry| {
        budget.entry()?;
        match entry {
            TarEntry::Other => Ok(()),
            TarEntry::File {
                path,
                executable,
                content,
                ..
            } => {
                let path = path.strip_prefix("./").unwrap_or(path);
                let wrong = |why: &str| SourceError::new(Cause::BadArchive, format!("entry {path:?}: {why}"));
                knack_skill::tree::check_path(path).map_err(wrong)?;
                // npm leaves out entries outside of the top folder.
                match path.split_once('/') {
                    Some((_, inner)) => write(&to.join(inner), executable, content, budget, &wrong),
                    None => Ok(()),
                }
            }
        }
    })
}

fn write(
    path: &Path,
    executable: bool,
    content: &mut dyn Read,
    budget: &mut UnpackBudget,
    wrong: &dyn Fn(&str) -> SourceError,
) -> Result<(), SourceError> {
    let folder = path.parent().unwrap_or(path);
    let of_path = |error: io::Error| match error.kind() {
        io::ErrorKind::AlreadyExists => wrong("it appears twice"),
        io::ErrorKind::NotADirectory => wrong("it is a file and a folder"),
        _ => disk(&error),
    };
    fs::create_dir_all(folder).map_err(of_path)?;
    let mode = if executable { 0o755 } else { 0o644 };
    // No link is ever made here, so the path leads nowhere else.
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)
        .map_err(of_path)?;
    let copied = io::copy(&mut content.take(budget.bytes + 1), &mut file);
    let copied = copied.map_err(|error| wrong(&format!("it cannot be read: {error}")))?;
    budget.bytes = budget
        .bytes
        .checked_sub(copied)
        .ok_or_else(|| SourceError::new(Cause::TooLarge, "more bytes than an environment may have"))?;
    Ok(())
}

fn disk(error: &io::Error) -> SourceError {
    SourceError::new(Cause::Unavailable, format!("the store: {error}"))
}
