//! The history in a folder: one writer, whole lines after any end, no caller waits for the disk.
//!
//! ```text
//! DIR/executions/writer          held by the process that writes
//! DIR/executions/reserve         space that is given back when the volume is full
//! DIR/executions/00000001.jsonl  lines, each a whole execution as it was at a moment; the last of an id counts
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::oneshot;

use super::compaction::{compact, hold_reserve, make_room};
use super::execution::Execution;
use super::index::{DiskLine, Index, Location};
use super::inner::Inner;
use super::lines::{FOLDER, Line, WRITER};
use super::segments::Segments;
use super::settings::HistorySettings;
use super::writer::{WriterMessage, write};
use super::{ExecutionPage, ExecutionQuery, History};
use crate::disk::{Disk, RealDisk, is_full, lock_alone};
use crate::error::StoreError;
use crate::model::now;
use crate::no_link;
use crate::owner::Owner;
use crate::volume_threads::VolumeThreads;

/// Notes that wait for the disk: three of each of some hundred runs at once.
const QUEUE_MAX: usize = 1_024;
/// Bytes of what waits for the disk.
const QUEUE_MAX_BYTES: usize = 8 << 20;
/// The longest wait for the disk, at an orderly end and for a report.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);
/// Reads that are on a thread at once.
const READS_AT_ONCE: usize = 16;
/// How long a caller waits for a read.
const READ_PATIENCE: Duration = Duration::from_secs(5);
/// The answer of a read that takes longer.
const LATE: &str = "the history could not be read from its volume in time; try again";
/// Pause before a flush for which the queue has no room asks again. It waits on no thread: all of them would be gone on a disk that hangs.
const FULL_PAUSE: Duration = Duration::from_millis(20);

/// Executions in a folder of this machine.
#[derive(Debug)]
pub struct FolderHistory {
    pub(super) inner: Arc<Inner>,
    /// `None` while it is dropped.
    pub(super) sender: Option<SyncSender<WriterMessage>>,
    writer: Option<thread::JoinHandle<()>>,
    reads: VolumeThreads,
    _lock: File,
}

/// What lines say: the index of all executions, and those that have no end, by id.
fn index_of(lines: Vec<(u32, Line)>) -> (Index, Vec<Execution>) {
    let (mut index, mut unfinished) = (Index::default(), BTreeMap::new());
    for (file, line) in lines {
        let Line {
            offset,
            length,
            execution,
        } = line;
        if execution.withdrawn {
            index.remove(&execution.id);
            unfinished.remove(&execution.id);
            continue;
        }
        index.set_written(&execution, DiskLine { file, offset, length });
        if execution.status.has_ended() {
            unfinished.remove(&execution.id);
        } else {
            unfinished.insert(execution.id.clone(), execution);
        }
    }
    (index, unfinished.into_values().collect())
}

/// Records the end of an execution that has none. Error: the disk fails; one that is full keeps nobody from starting, and the next
/// start records it.
fn put_lost(inner: &Inner, segments: &mut Segments, execution: Execution) -> io::Result<()> {
    let line = line(&execution)?;
    let times = (execution.created, now());
    let mut written = segments.append(&line, times, &*inner.disk);
    if written.as_ref().is_err_and(is_full) && make_room(inner, segments, line.len()) {
        written = segments.append(&line, times, &*inner.disk);
    }
    match written {
        Ok((file, offset)) => {
            let length = u32::try_from(line.len() - 1).unwrap_or(u32::MAX);
            inner.index().set_written(&execution, DiskLine { file, offset, length });
        }
        Err(error) if is_full(&error) => {
            inner.index().set(&Arc::new(execution));
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

/// An opened history.
#[derive(Debug)]
pub struct OpenedHistory {
    /// The history.
    pub history: FolderHistory,
    /// Lines that cannot be read and are kept unchanged.
    pub broken: usize,
}

impl FolderHistory {
    /// Opens the history below the folder of a registry, which this process has opened. `notify` gets messages for an
    /// operator. Errors: the disk fails, or another process writes it.
    pub fn open(root: &Path, settings: HistorySettings, notify: fn(&str)) -> io::Result<OpenedHistory> {
        Self::open_on(root, settings, notify, Box::new(RealDisk))
    }

    /// As [`Self::open`], on a disk that may fail.
    pub fn open_on(
        root: &Path,
        settings: HistorySettings,
        notify: fn(&str),
        disk: Box<dyn Disk>,
    ) -> io::Result<OpenedHistory> {
        let folder = no_link::named(root)?.join(FOLDER);
        if !no_link::is_folder(&folder)? {
            disk.create_folder(&folder)?;
        }
        let lock = lock_alone(&folder.join(WRITER), "writes the history of this folder")?;
        let read = Segments::read(&folder, &*disk)?;
        let mut segments = read.segments;
        let (index, unfinished) = index_of(read.lines);
        let inner = Arc::new(Inner {
            folder,
            disk,
            settings,
            index: Mutex::new(index),
            holders: Mutex::default(),
            queued: AtomicUsize::new(0),
            dropped: AtomicU64::new(0),
            notify,
        });
        for execution in unfinished.into_iter().map(|execution| execution.lost()) {
            put_lost(&inner, &mut segments, execution)?;
        }
        compact(&inner, &mut segments);
        hold_reserve(&inner);
        let (sender, messages) = sync_channel(QUEUE_MAX);
        let writing = Arc::clone(&inner);
        let writer = thread::Builder::new()
            .name("history".to_owned())
            .spawn(move || write(&writing, segments, &messages))?;
        let history = Self {
            inner,
            sender: Some(sender),
            writer: Some(writer),
            reads: VolumeThreads::new(READS_AT_ONCE, READ_PATIENCE, LATE),
            _lock: lock,
        };
        Ok(OpenedHistory {
            history,
            broken: read.broken,
        })
    }

    /// Removes the history below the folder of a registry, which this process has opened.
    pub fn remove(root: &Path) -> io::Result<()> {
        match fs::remove_dir_all(root.join(FOLDER)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Waits until all notes so far are on the disk, or refused by it and counted as dropped, at most for a bound. `false`: the bound has passed.
    pub async fn flush(&self) -> bool {
        let Some(sender) = &self.sender else {
            return false;
        };
        let flush = async {
            let (done, flushed) = oneshot::channel();
            let mut message = WriterMessage::Flush(done);
            while let Err(refused) = sender.try_send(message) {
                let TrySendError::Full(back) = refused else {
                    return false;
                };
                message = back;
                tokio::time::sleep(FULL_PAUSE).await;
            }
            flushed.await.is_ok()
        };
        tokio::time::timeout(FLUSH_TIMEOUT, flush).await.unwrap_or(false)
    }

    /// Whether the last note of an execution is not on the disk, since the disk refused it or the queue was full. Valid after a [flush](Self::flush).
    pub fn is_refused(&self, id: &str) -> bool {
        let state = self.inner.index().state(id);
        matches!(state, Some((_, Location::Memory(_))))
    }

    /// Whether the disk has the last note of an execution.
    fn is_on_disk(&self, id: &str) -> bool {
        let state = self.inner.index().state(id);
        matches!(state, Some((_, Location::Disk(_))))
    }

    /// Queues the line that withdraws those of an execution before it. If it does not reach the disk and they do, the run is lost,
    /// and not run again.
    pub(super) fn queue_withdrawal(&self, execution: &Execution) {
        let withdrawn = Execution {
            withdrawn: true,
            ..execution.clone()
        };
        if let Ok(line) = line(&withdrawn) {
            let id = withdrawn.id;
            self.queue(WriterMessage::Line { id, note: None, line });
        }
    }

    /// Queues a line for the disk. `false`: the queue is full.
    pub(super) fn queue(&self, message: WriterMessage) -> bool {
        let size = message.bytes();
        let queued = self.inner.queued.fetch_add(size, Ordering::AcqRel);
        let fits = queued + size <= QUEUE_MAX_BYTES;
        let is_taken = fits
            && self
                .sender
                .as_ref()
                .is_some_and(|sender| sender.try_send(message).is_ok());
        if !is_taken {
            self.inner.queued.fetch_sub(size, Ordering::AcqRel);
        }
        is_taken
    }

    pub(super) async fn read(&self, locations: Vec<(String, Location)>) -> Result<Vec<Execution>, StoreError> {
        let inner = Arc::clone(&self.inner);
        let is_of_disk = |(_, location): &(String, Location)| matches!(location, Location::Disk(_));
        let needs_disk = locations.iter().any(is_of_disk);
        let read = move || {
            let read = locations.into_iter().map(|(id, location)| inner.read(&id, location));
            read.filter_map(Result::transpose).collect::<io::Result<Vec<_>>>()
        };
        let read = if needs_disk {
            self.reads.done(read).await?
        } else {
            read()
        };
        read.map_err(|error| StoreError::Failed(error.to_string()))
    }
}

/// Writes the queue's rest.
impl Drop for FolderHistory {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

#[async_trait]
impl History for FolderHistory {
    fn note(&self, execution: Execution) {
        let Ok(line) = line(&execution) else { return };
        let id = execution.id.clone();
        let execution = Arc::new(execution);
        let note = self.inner.index().set(&execution);
        let message = WriterMessage::Line {
            id,
            note: Some(note),
            line,
        };
        if !self.queue(message) {
            self.inner.dropped.fetch_add(1, Ordering::Relaxed);
            self.inner
                .index()
                .dropped(&execution.id, note, Arc::new(execution.slim()));
        }
    }

    async fn keep(&self, execution: Execution) -> bool {
        let id = execution.id.clone();
        self.note(execution);
        self.flush().await;
        self.is_on_disk(&id)
    }

    fn withdraw(&self, execution: Execution) {
        self.forget(&mut self.inner.holders(), &execution.id);
        self.queue_withdrawal(&execution);
    }

    fn dropped(&self) -> u64 {
        self.inner.dropped.load(Ordering::Relaxed)
    }

    async fn get(&self, caller: &Owner, id: &str) -> Result<Option<Execution>, StoreError> {
        let location = self
            .inner
            .index()
            .get(caller, id)
            .map(|location| (id.to_owned(), location));
        let found = self.read(location.into_iter().collect()).await?;
        Ok(found.into_iter().next())
    }

    async fn find(&self, caller: &Owner, sought: &ExecutionQuery) -> Result<ExecutionPage, StoreError> {
        self.inner.bound();
        let (total, locations) = self.inner.index().find(caller, sought);
        let items = self.read(locations).await?;
        Ok(ExecutionPage { items, total })
    }
}

pub(super) fn line(execution: &Execution) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(execution)?;
    line.push(b'\n');
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{flushed, wait};

    #[test]
    fn what_the_disk_has_is_read_within_the_bounds_of_reads() {
        let work = tempfile::tempdir().unwrap();
        wait(async {
            let opened = FolderHistory::open(work.path(), HistorySettings::of_days(1), |_| ()).unwrap();
            let mut history = opened.history;
            let caller = Owner::from([1; 32]);
            let execution = serde_json::json!({
                "id": "a", "caller": caller, "skill": null, "tool": "t", "request": "r", "input": null, "output": null,
                "status": "success", "error": null, "durationMs": null, "created": now(),
            });
            history.note(serde_json::from_value(execution).unwrap());
            flushed(&history).await;
            let all = ExecutionQuery {
                skill: None,
                status: None,
                skip: 0,
                limit: 9,
            };
            assert_eq!(history.find(&caller, &all).await.unwrap().items.len(), 1);
            history.reads = VolumeThreads::new(0, Duration::from_millis(10), LATE);
            let refused = history.find(&caller, &all).await.unwrap_err();
            assert!(matches!(refused, StoreError::Unavailable(_)), "{refused}");
            let refused = history.get(&caller, "a").await.unwrap_err();
            assert!(matches!(refused, StoreError::Unavailable(_)), "{refused}");
            assert_eq!(history.get(&caller, "none").await.unwrap(), None, "needs no disk");
        });
    }
}
