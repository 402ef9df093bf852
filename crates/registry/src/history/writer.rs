//! The thread that writes a history.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::compaction::{compact, hold_reserve, make_room};
use super::index::DiskLine;
use super::inner::Inner;
use super::segments::Segments;
use crate::disk::is_full;
use crate::model::now;

/// Most notes that are written at once: one write for all that were queued during the last.
const BATCH: usize = 256;
/// Pause between sweeps for old files while nothing is noted.
const SWEEP: Duration = Duration::from_hours(1);
/// Pause between tries to have the reserve, each of which may write all that is free.
const RESERVE_EVERY: Duration = Duration::from_mins(1);

/// A message to the writer thread.
pub(super) enum WriterMessage {
    /// A line to write, and the note that it is of; `None`: it withdraws those before it.
    Line {
        id: String,
        note: Option<u64>,
        line: Vec<u8>,
    },
    /// Answers when all before this is written.
    Flush(oneshot::Sender<()>),
}

impl WriterMessage {
    /// Its bytes in the queue of the disk.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Line { line, .. } => line.len(),
            Self::Flush(_) => 0,
        }
    }
}

/// Writes until all senders are gone.
pub(super) fn write(inner: &Inner, mut segments: Segments, messages: &Receiver<WriterMessage>) {
    let (mut reported, mut tried) = (0, Instant::now());
    loop {
        let first = match messages.recv_timeout(SWEEP) {
            Ok(first) => Some(first),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let (mut lines, mut flushed) = (Vec::new(), Vec::new());
        let rest = std::iter::from_fn(|| messages.try_recv().ok());
        for message in first.into_iter().chain(rest.take(BATCH)) {
            match message {
                WriterMessage::Line { id, note, line } => lines.push((id, note, line)),
                WriterMessage::Flush(done) => flushed.push(done),
            }
        }
        if !lines.is_empty() {
            put(inner, &mut segments, &lines);
        }
        // All that was promised is written; to make room may take longer.
        for done in flushed {
            // The caller may have gone.
            let _ = done.send(());
        }
        compact(inner, &mut segments);
        if tried.elapsed() >= RESERVE_EVERY {
            tried = Instant::now();
            hold_reserve(inner);
        }
        let dropped = inner.dropped.load(Ordering::Relaxed);
        if dropped > reported {
            (inner.notify)(&format!(
                "history: {} execution records are missing, {dropped} since the start: they arrived faster than the disk could write them, or writes failed",
                dropped - reported
            ));
            reported = dropped;
        }
    }
}

fn put(inner: &Inner, segments: &mut Segments, lines: &[(String, Option<u64>, Vec<u8>)]) {
    let all: Vec<u8> = lines.iter().flat_map(|(_, _, line)| line).copied().collect();
    let now = now();
    let mut written = segments.append(&all, (now, now), &*inner.disk);
    if written.as_ref().is_err_and(is_full) && make_room(inner, segments, all.len()) {
        written = segments.append(&all, (now, now), &*inner.disk);
    }
    inner.queued.fetch_sub(all.len(), Ordering::AcqRel);
    let mut index = inner.index();
    match written {
        Ok((file, mut offset)) => {
            for (id, note, line) in lines {
                // The end of the line is not read.
                let length = u32::try_from(line.len().saturating_sub(1)).unwrap_or(u32::MAX);
                match note {
                    Some(note) => index.written(id, *note, DiskLine { file, offset, length }),
                    None => index.withdrawn(id),
                }
                offset += line.len() as u64;
            }
        }
        Err(error) => {
            tracing::error!(%error, "the history of executions cannot be written");
            for (id, note, line) in lines {
                if let (Some(note), Ok(execution)) = (note, serde_json::from_slice::<super::Execution>(line)) {
                    index.dropped(id, *note, Arc::new(execution.slim()));
                }
            }
            inner.dropped.fetch_add(lines.len() as u64, Ordering::Relaxed);
        }
    }
}
