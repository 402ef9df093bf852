//! Files of a history are removed as a whole; what is still kept of one is copied to the last file before that.

use std::fs;
use std::io;

use super::index::DiskLine;
use super::inner::Inner;
use super::lines::path;
use super::segments::Segments;
use crate::model::now;

/// Removes executions beyond the bounds, then the oldest files until the disk is within its own.
pub(super) fn compact(inner: &Inner, segments: &mut Segments) {
    inner.bound();
    let since = inner.since();
    // Each file once: what is copied has room, since it is at most half of the disk.
    for _ in 0..segments.count() {
        let Some(number) = segments.surplus(since) else { return };
        if let Err(error) = carry(inner, segments, number).and_then(|()| segments.remove_first(&*inner.disk)) {
            tracing::warn!(%error, number, "an old file of the history cannot be removed; it stays until the next try");
            return;
        }
    }
}

/// Copies the lines of a file that are the last of their executions. Of an execution whose later line is still in the queue, the
/// earlier one counts until that is written.
fn carry(inner: &Inner, segments: &mut Segments, file: u32) -> io::Result<()> {
    let lines = inner.index().lines_of(file);
    let Some(oldest) = lines.iter().map(|(_, time, _)| *time).min() else {
        return Ok(());
    };
    let bytes = match fs::read(path(&inner.folder, file)) {
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
