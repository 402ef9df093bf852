//! A tar stream, entry by entry: what is no file or folder is refused, and nothing is read beyond its bound.

use std::io::Read;

use super::{OWNER_EXECUTE, bad, too_large};
use crate::sources::SourceError;

/// Bytes of one extension header of a tar, which holds a name that is too long for the entry itself; paths have at most
/// a few hundred bytes. Libraries read such a header whole, at whatever size it claims.
const EXTENSION_MAX_BYTES: u64 = 64 << 10;

/// One entry.
pub(crate) enum TarEntry<'a> {
    /// A file.
    File {
        /// As written: not checked.
        path: &'a str,
        /// Whether its owner may execute it.
        executable: bool,
        /// The size in its header; the stream decides.
        size: u64,
        /// The file's bytes.
        content: &'a mut dyn Read,
    },
    /// A folder, or a header of the entry behind it: it counts and has no content.
    Other,
}

/// Calls `each` for every entry of a stream of at most `max_bytes`, headers, padding and skipped entries included: the end
/// of a bomb. Links and special files are errors.
pub(crate) fn walk_tar(
    stream: impl Read,
    max_bytes: u64,
    each: &mut dyn FnMut(TarEntry<'_>) -> Result<(), SourceError>,
) -> Result<(), SourceError> {
    let mut limited = LimitedReader {
        stream,
        left: max_bytes,
    };
    let mut archive = tar::Archive::new(&mut limited);
    let broken = |error: &std::io::Error| match error.get_ref() {
        Some(inner) if inner.is::<StreamTooLong>() => too_large(format!("more than {} MiB unpacked", max_bytes >> 20)),
        _ => bad(format!("broken tar: {error}")),
    };
    let mut name = LongName::default();
    for entry in archive.entries().map_err(|error| broken(&error))?.raw(true) {
        let mut entry = entry.map_err(|error| broken(&error))?;
        let kind = entry.header().entry_type();
        if is_extension(kind) {
            each(TarEntry::Other)?;
            name.read(kind, &mut entry)?;
            continue;
        }
        name.check_size(entry.size())?;
        let raw = name.take().unwrap_or_else(|| entry.path_bytes().into_owned());
        let path = String::from_utf8(raw).map_err(|_| bad("an entry's path is not UTF-8"))?;
        if kind.is_dir() {
            each(TarEntry::Other)?;
            continue;
        }
        if !kind.is_file() {
            return Err(bad(format!(
                "entry {path:?} is a link or a special file; only files and folders are accepted"
            )));
        }
        let executable = entry.header().mode().unwrap_or(0) & OWNER_EXECUTE != 0;
        let size = entry.size();
        each(TarEntry::File {
            path: &path,
            executable,
            size,
            content: &mut entry,
        })?;
    }
    Ok(())
}

fn is_extension(kind: tar::EntryType) -> bool {
    kind.is_gnu_longname()
        || kind.is_gnu_longlink()
        || kind.is_pax_local_extensions()
        || kind.is_pax_global_extensions()
}

/// The name and the size that extension headers give to the entry behind them: the name by either of the two customs.
#[derive(Default)]
struct LongName {
    gnu: Option<Vec<u8>>,
    pax: Option<Vec<u8>>,
    size: Option<u64>,
}

impl LongName {
    fn read(&mut self, kind: tar::EntryType, entry: &mut tar::Entry<'_, impl Read>) -> Result<(), SourceError> {
        let size = entry.size();
        if size > EXTENSION_MAX_BYTES {
            return Err(too_large(format!(
                "an extension header of {size} bytes; at most {} KiB are accepted",
                EXTENSION_MAX_BYTES >> 10
            )));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
        entry
            .read_to_end(&mut bytes)
            .map_err(|error| bad(format!("broken tar: {error}")))?;
        if kind.is_gnu_longname() {
            if bytes.last() == Some(&0) {
                bytes.pop();
            }
            self.gnu = Some(bytes);
        } else if kind.is_pax_local_extensions() {
            for extension in tar::PaxExtensions::new(&bytes) {
                let extension = extension.map_err(|error| bad(format!("broken tar: {error}")))?;
                match extension.key_bytes() {
                    b"path" => self.pax = Some(extension.value_bytes().to_vec()),
                    b"size" => {
                        let size = extension.value().ok().and_then(|size| size.parse().ok());
                        let size = size.ok_or_else(|| bad("broken tar: a size that is not a number"))?;
                        self.size = Some(size);
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Another size than the header's would move where the next header is read; only files of 8 GiB need it. Some
    /// programs write the same size twice.
    fn check_size(&mut self, of_header: u64) -> Result<(), SourceError> {
        match self.size.take() {
            Some(size) if size != of_header => Err(too_large("an entry whose size is in an extension header")),
            _ => Ok(()),
        }
    }

    fn take(&mut self) -> Option<Vec<u8>> {
        let (gnu, pax) = (self.gnu.take(), self.pax.take());
        gnu.or(pax)
    }
}

/// A stream that ends in an error when it gives too much.
struct LimitedReader<R> {
    stream: R,
    left: u64,
}

/// The stream gave too much.
#[derive(Debug, thiserror::Error)]
#[error("too large")]
struct StreamTooLong;

impl<R: Read> Read for LimitedReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.stream.read(buffer)?;
        self.left = self
            .left
            .checked_sub(count as u64)
            .ok_or_else(|| std::io::Error::other(StreamTooLong))?;
        Ok(count)
    }
}
