//! An archive's bytes to files. Pure; every bound holds before memory is taken.

use std::io::{Cursor, Read};

use flate2::read::MultiGzDecoder;
use knack_registry::BadArchive;
use knack_skill::model::SkillFile;

use super::{Cause, Files, SourceError};

mod walk;

pub(crate) use walk::{TarEntry, walk_tar};

/// Largest archive as fetched.
pub const ARCHIVE_MAX_BYTES: usize = 32 << 20;
/// Bytes of all files together: a skill holds 8 MiB, and an archive may hold several.
const UNPACKED_MAX_BYTES: u64 = 64 << 20;
/// Entries of all kinds: a skill holds 2,000 files, and an archive may hold several.
const ENTRIES_MAX: usize = 10_000;
/// Bytes that a tar stream may have in all, headers, padding and skipped entries included: the end of a bomb.
const STREAM_MAX_BYTES: u64 = 128 << 20;
/// Owner's execute bit.
const OWNER_EXECUTE: u32 = 0o100;

/// The files of a .tar, .tar.gz or .zip, which are distinguished by their first bytes. Links, devices and paths that
/// leave the folder are refused, never skipped: what is served must be what was reviewed. Left out is what macOS adds. Errors name no field: an archive may be
/// named by a person or uploaded, too.
pub fn unpack(bytes: &[u8]) -> Result<Files, SourceError> {
    if bytes.starts_with(&[0x1f, 0x8b]) {
        return unpack_tar(MultiGzDecoder::new(bytes));
    }
    if bytes.starts_with(b"PK\x03\x04") || bytes.starts_with(b"PK\x05\x06") {
        return unpack_zip(bytes);
    }
    if bytes.get(257..262) == Some(b"ustar") {
        return unpack_tar(bytes);
    }
    let start: String = bytes
        .iter()
        .take(16)
        .flat_map(|byte| std::ascii::escape_default(*byte))
        .map(char::from)
        .collect();
    Err(bad(format!(
        "neither .tar, .tar.gz nor .zip: it begins with \"{start}\"; check that the URL leads to the file itself and not to a page about it"
    )))
}

/// The reader of archives, in the words of an upload.
pub fn unpack_upload(bytes: &[u8]) -> Result<Files, BadArchive> {
    unpack(bytes).map_err(|error| BadArchive {
        message: error.message,
        too_large: error.cause == Cause::TooLarge,
    })
}

fn bad(message: impl AsRef<str>) -> SourceError {
    SourceError::new(Cause::BadArchive, message.as_ref())
}

fn too_large(message: impl AsRef<str>) -> SourceError {
    SourceError::new(Cause::TooLarge, message.as_ref())
}

/// Collects files within the bounds.
#[derive(Default)]
struct Collector {
    files: Files,
    entries: usize,
    bytes: u64,
}

impl Collector {
    /// Counts an entry of any kind.
    fn entry(&mut self) -> Result<(), SourceError> {
        self.entries += 1;
        if self.entries > ENTRIES_MAX {
            return Err(too_large(format!(
                "more than {ENTRIES_MAX} entries; leave out what the skill does not need"
            )));
        }
        Ok(())
    }

    /// Reads a file; `size` is what its header promises, the stream decides.
    fn file(&mut self, path: &str, executable: bool, size: u64, content: impl Read) -> Result<(), SourceError> {
        let path = path.strip_prefix("./").unwrap_or(path);
        knack_skill::tree::check_received_path(path).map_err(|why| bad(format!("entry {path:?}: {why}")))?;
        if is_of_macos(path) {
            return Ok(());
        }
        let room = UNPACKED_MAX_BYTES - self.bytes;
        // Room for all of it at once: growing by doubling would hold it twice.
        let mut bytes = Vec::with_capacity(usize::try_from(size.min(room)).unwrap_or_default());
        content
            .take(room + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| bad(format!("entry {path:?} cannot be read: {error}")))?;
        let length = bytes.len() as u64;
        if length > room {
            return Err(too_large(format!(
                "more than {} MiB unpacked (at {path:?}); leave out what the skill does not need",
                UNPACKED_MAX_BYTES >> 20
            )));
        }
        self.bytes += length;
        let file = SkillFile {
            bytes: bytes.into(),
            executable,
        };
        if self.files.insert(path.to_owned(), file).is_some() {
            return Err(bad(format!("entry {path:?} appears twice")));
        }
        Ok(())
    }
}

/// Whether a file is what macOS adds beside the folder that is packed: settings of its file manager, and attributes of files. They
/// are no part of any skill, and no other file is left out.
fn is_of_macos(path: &str) -> bool {
    match path.split_once('/') {
        Some((top, _)) => top == "__MACOSX",
        None => path == ".DS_Store" || path.starts_with("._"),
    }
}

fn unpack_tar(stream: impl Read) -> Result<Files, SourceError> {
    let mut collector = Collector::default();
    walk_tar(stream, STREAM_MAX_BYTES, &mut |entry| {
        collector.entry()?;
        match entry {
            TarEntry::Other => Ok(()),
            TarEntry::File {
                path,
                executable,
                size,
                content,
            } => collector.file(path, executable, size, content),
        }
    })?;
    Ok(collector.files)
}

fn unpack_zip(bytes: &[u8]) -> Result<Files, SourceError> {
    let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).map_err(|error| bad(format!("broken zip: {error}")))?;
    // The library keeps the last of two, other readers the first.
    if archive.has_duplicate_names() {
        return Err(bad("an entry of the zip appears twice"));
    }
    let mut collector = Collector::default();
    for number in 0..archive.len() {
        let mut entry = archive
            .by_index(number)
            .map_err(|error| bad(format!("entry {number} of the zip cannot be read: {error}")))?;
        collector.entry()?;
        let path = entry
            .name()
            .map_err(|error| bad(format!("entry {number} of the zip has no readable name: {error}")))?
            .into_owned();
        if entry.is_dir() {
            continue;
        }
        let mode = entry.unix_mode().unwrap_or(0o644);
        // The file type in the upper bits: absent, or a regular file.
        if entry.is_symlink() || !matches!(mode & 0o170_000, 0 | 0o100_000) {
            return Err(bad(format!(
                "entry {path:?} is a link or a special file; only files and folders are accepted"
            )));
        }
        let size = entry.size();
        collector.file(&path, mode & OWNER_EXECUTE != 0, size, &mut entry)?;
    }
    Ok(collector.files)
}

#[cfg(test)]
mod tests;
