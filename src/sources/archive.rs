//! An archive's bytes to files. Pure; every bound holds before memory is taken.

use std::io::Read;

use flate2::read::MultiGzDecoder;
use knack_registry::BadArchive;
use knack_registry::archive::{OWNER_EXECUTE, Unpacked, is_zip, unzip};

use super::{Cause, Files, SourceError};

mod walk;

pub(crate) use walk::{TarEntry, walk_tar};

/// Largest archive as fetched.
pub const ARCHIVE_MAX_BYTES: usize = 32 << 20;
/// Bytes that a tar stream may have in all, headers, padding and skipped entries included: the end of a bomb.
const STREAM_MAX_BYTES: u64 = 128 << 20;

/// The files of a .tar, .tar.gz or .zip, which are distinguished by their first bytes. Links, devices and paths that
/// leave the folder are refused, never skipped: what is served must be what was reviewed. Left out is what macOS adds. Errors name no field: an archive may be
/// named by a person or uploaded, too.
pub fn unpack(bytes: &[u8]) -> Result<Files, SourceError> {
    if bytes.starts_with(&[0x1f, 0x8b]) {
        return unpack_tar(MultiGzDecoder::new(bytes));
    }
    if is_zip(bytes) {
        return Ok(unzip(bytes)?);
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

impl From<BadArchive> for SourceError {
    fn from(bad: BadArchive) -> Self {
        let cause = if bad.too_large {
            Cause::TooLarge
        } else {
            Cause::BadArchive
        };
        Self::new(cause, bad.message)
    }
}

fn bad(message: impl AsRef<str>) -> SourceError {
    SourceError::new(Cause::BadArchive, message.as_ref())
}

fn too_large(message: impl AsRef<str>) -> SourceError {
    SourceError::new(Cause::TooLarge, message.as_ref())
}

fn unpack_tar(stream: impl Read) -> Result<Files, SourceError> {
    let mut unpacked = Unpacked::default();
    walk_tar(stream, STREAM_MAX_BYTES, &mut |entry| {
        unpacked.entry()?;
        match entry {
            TarEntry::Other => Ok(()),
            TarEntry::File {
                path,
                executable,
                size,
                content,
            } => Ok(unpacked.file(path, executable, size, content)?),
        }
    })?;
    Ok(unpacked.files())
}

#[cfg(test)]
mod tests;
