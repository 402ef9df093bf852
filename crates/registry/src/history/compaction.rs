//! Files of a history are removed as a whole; what is still kept of one is copied to the last file before that.

use std::io;

use rustix::fs::OFlags;

use super::index::DiskLine;
use super::inner::Inner;
use super::lines::{RESERVE, path};
use super::segments::Segments;
use super::settings::FILE_BYTES;
use crate::disk::is_full;
use crate::model::now;
use crate::no_link;

/// Removes executions beyond the bounds, then the oldest files until the disk is within its own.
pub(super) fn compact(inner: &Inner, segments: &mut Segments) {
    inner.bound();
    remove_surplus(inner, segments, inner.settings.most_bytes);
}

/// Removes executions and files when the volume has no room for `wanted` bytes before a bound is reached, as if the bound were what
/// the files take now. Returns whether there is more room.
pub(super) fn make_room(inner: &Inner, segments: &mut Segments, wanted: usize) -> bool {
    let bytes = segments.bytes();
    // Of one file a part would be all that is kept. Without the reserve nothing may come of it, and it has just been tried.
    if segments.filled() < 2 || !has_reserve(inner) {
        return false;
    }
    // The rest is for what is copied, as with the bound of the settings.
    inner.bound_to(bytes / 2);
    // The reserve is made again of what is freed.
    let most_bytes = bytes.saturating_sub(FILE_BYTES + wanted as u64);
    remove_surplus(inner, segments, most_bytes);
    let is_freed = segments.bytes() < bytes;
    if is_freed {
        tracing::warn!(
            bytes,
            "the volume is full before the history has its largest size: the oldest executions are removed; enlarge the volume, or on a cluster lower registry.history.sizeMib"
        );
    }
    is_freed
}

fn remove_surplus(inner: &Inner, segments: &mut Segments, most_bytes: u64) {
    let since = inner.since();
    let mut is_freed = false;
    // Each file once: what is copied has room, since it is at most half of the disk.
    for _ in 0..segments.count() {
        let Some(number) = segments.surplus(most_bytes, since) else {
            break;
        };
        let carried = match carry(inner, segments, number) {
            Err(error) if is_full(&error) && spend_reserve(inner) => carry(inner, segments, number),
            carried => carried,
        };
        if let Err(error) = carried.and_then(|()| segments.remove_first(&*inner.disk)) {
            tracing::warn!(%error, number, "an old file of the history cannot be removed; it stays until the next try");
            break;
        }
        is_freed = true;
    }
    if is_freed {
        hold_reserve(inner);
    }
}

fn has_reserve(inner: &Inner) -> bool {
    let found = no_link::open(&inner.folder.join(RESERVE), OFlags::RDONLY).and_then(|file| file.metadata());
    found.is_ok_and(|file| file.len() == FILE_BYTES)
}

/// Takes the space that compaction has for itself when the volume is full.
pub(super) fn hold_reserve(inner: &Inner) {
    if has_reserve(inner) {
        return;
    }
    let path = inner.folder.join(RESERVE);
    // As many as the largest copy; a new name of a file takes no more.
    let zeros = vec![0; usize::try_from(FILE_BYTES).unwrap_or_default()];
    if let Err(error) = inner.disk.write(&path, &zeros) {
        tracing::warn!(%error, "the volume has no room for the space that compaction of the history reserves; it is reserved once there is room");
        // A part of it would be of no use.
        let _ = inner.disk.remove(&path);
    }
}

/// Gives the reserve back to the volume. `false`: there is none.
fn spend_reserve(inner: &Inner) -> bool {
    inner.disk.remove(&inner.folder.join(RESERVE)).is_ok()
}

/// Copies the lines of a file that are the last of their executions. Of an execution whose later line is still in the queue, the
/// earlier one counts until that is written.
fn carry(inner: &Inner, segments: &mut Segments, file: u32) -> io::Result<()> {
    let lines = inner.index().lines_of(file);
    let Some(oldest) = lines.iter().map(|(_, time, _)| *time).min() else {
        return Ok(());
    };
    let bytes = match no_link::read(&path(&inner.folder, file)) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    let (mut text, mut copies) = (Vec::new(), Vec::new());
    for (id, _, from) in lines {
        let end = from.offset + u64::from(from.length);
        let range = usize::try_from(from.offset).ok().zip(usize::try_from(end).ok());
        let line = range.and_then(|(begin, end)| bytes.get(begin..end));
        copies.push((id, from, line.is_some().then_some(text.len() as u64)));
        if let Some(line) = line {
            text.extend_from_slice(line);
            text.push(b'\n');
        }
    }
    let (file, begin) = if text.is_empty() {
        (file, 0)
    } else {
        // A claim that is older than what is kept does not make its file old at once.
        segments.append_beside_first(&text, (oldest.max(inner.since()), now()), &*inner.disk)?
    };
    let mut index = inner.index();
    for (id, from, at) in copies {
        let to = at.map(|at| DiskLine {
            file,
            offset: begin + at,
            length: from.length,
        });
        index.relocate(&id, from, to);
    }
    Ok(())
}
