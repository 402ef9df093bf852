//! Files of an archive within bounds, and the reader of zips. Every bound holds before memory is taken.

use std::io::{Cursor, Read};

use knack_skill::model::SkillFile;
use knack_skill::tree;

use crate::Files;

/// Bytes of all files together: a skill holds 8 MiB, and an archive may hold several.
const UNPACKED_MAX_BYTES: u64 = 64 << 20;
/// Entries of all kinds: a skill holds 2,000 files, and an archive may hold several.
const ENTRIES_MAX: usize = 10_000;
/// Signatures of a zip's directory: the library reads all of it before an entry can be counted, a header or a candidate for its end at
/// each of them. More than entries, since a file may hold them too: a zip within a skill.
const SIGNATURES_MAX: usize = ENTRIES_MAX + 10_000;
/// Owner's execute bit.
pub const OWNER_EXECUTE: u32 = 0o100;

/// Why an archive is not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadArchive {
    /// For its sender.
    pub message: String,
    /// Whether it is for its size.
    pub too_large: bool,
}

/// Whether bytes begin as a zip does; an empty one is an end alone.
pub fn is_zip(bytes: &[u8]) -> bool {
    bytes.starts_with(b"PK\x03\x04") || bytes.starts_with(b"PK\x05\x06")
}

fn bad(message: impl Into<String>) -> BadArchive {
    BadArchive {
        message: message.into(),
        too_large: false,
    }
}

fn too_large(message: String) -> BadArchive {
    BadArchive {
        message,
        too_large: true,
    }
}

fn too_many() -> BadArchive {
    too_large(format!(
        "more than {ENTRIES_MAX} entries; leave out what the skill does not need, such as .git, .venv and node_modules"
    ))
}

/// Collects the files of an archive within the bounds. Paths that leave the folder are refused, never skipped: what is served must
/// be what was reviewed. Left out is what macOS adds.
#[derive(Debug)]
pub struct Unpacked {
    files: Files,
    entries: usize,
    bytes: u64,
    /// Bytes of all files together.
    most: u64,
}

impl Default for Unpacked {
    fn default() -> Self {
        Self::within(UNPACKED_MAX_BYTES)
    }
}

impl Unpacked {
    /// With this bound on the bytes of all files together.
    fn within(most: u64) -> Self {
        Self {
            files: Files::new(),
            entries: 0,
            bytes: 0,
            most,
        }
    }

    /// Counts an entry of any kind.
    ///
    /// # Errors
    ///
    /// There are too many.
    pub fn entry(&mut self) -> Result<(), BadArchive> {
        self.entries += 1;
        if self.entries > ENTRIES_MAX {
            return Err(too_many());
        }
        Ok(())
    }

    /// Reads a file; `size` is what its header promises, the stream decides.
    ///
    /// # Errors
    ///
    /// A path that leads elsewhere or was there, too many bytes, or a stream that breaks.
    pub fn file(&mut self, path: &str, executable: bool, size: u64, content: impl Read) -> Result<(), BadArchive> {
        let path = path.strip_prefix("./").unwrap_or(path);
        tree::check_received_path(path).map_err(|why| bad(format!("entry {path:?}: {why}")))?;
        if is_of_macos(path) {
            return Ok(());
        }
        let room = self.most - self.bytes;
        // Room for all of it at once: growing by doubling would hold it twice.
        let mut bytes = Vec::with_capacity(usize::try_from(size.min(room)).unwrap_or_default());
        content
            .take(room + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| bad(format!("entry {path:?} cannot be read: {error}")))?;
        let length = bytes.len() as u64;
        if length > room {
            return Err(too_large(format!(
                "more than {} MiB unpacked (at {path:?}); leave out what the skill does not need, such as .git, .venv and node_modules",
                self.most >> 20
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

    /// The files.
    pub fn files(self) -> Files {
        self.files
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

/// The files of a zip. Links and special files are refused.
///
/// # Errors
///
/// Bytes that are no zip, and those of [`Unpacked`].
pub fn unzip(bytes: &[u8]) -> Result<Files, BadArchive> {
    unzip_within(bytes, UNPACKED_MAX_BYTES)
}

/// As [`unzip`], with this bound on the bytes of all files together.
pub(crate) fn unzip_within(bytes: &[u8], most: u64) -> Result<Files, BadArchive> {
    let is_signature = |four: &&[u8]| matches!(*four, b"PK\x01\x02" | b"PK\x06\x06");
    if bytes.windows(4).filter(is_signature).nth(SIGNATURES_MAX).is_some() {
        return Err(too_many());
    }
    let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).map_err(|error| {
        if is_zip(bytes) {
            bad(format!("broken zip: {error}"))
        } else {
            bad("not a zip; send a zip of the skill's folder")
        }
    })?;
    // The library keeps the last of two, other readers the first.
    if archive.has_duplicate_names() {
        return Err(bad("an entry of the zip appears twice"));
    }
    let mut unpacked = Unpacked::within(most);
    for number in 0..archive.len() {
        let mut entry = archive
            .by_index(number)
            .map_err(|error| bad(format!("entry {number} of the zip cannot be read: {error}")))?;
        unpacked.entry()?;
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
        unpacked.file(&path, mode & OWNER_EXECUTE != 0, size, &mut entry)?;
    }
    Ok(unpacked.files())
}
