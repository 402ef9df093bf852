//! The store in a folder of this machine: of `knack dev`, and of the registry of a cluster.
//!
//! A change is made in the table, then on the disk; what the disk refuses is undone. Changes come one after the other, so two
//! requests that write one container each find the files of the other. Calls block.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use knack_registry::{Disk, RealDisk};
use knack_wire::own_files::FILE_PREFIX;

use super::bounds::Bounds;
use super::objects::{ContainerFile, FileOwner, NewContainerFile, NewFile, Object, Source};
use super::operation::{Answer, Op, RemovedIds, Reply};
use super::refusal::FilesRefusal;
use super::store::{Clock, new_id};
use super::table::{StoreUsage, Table};
use super::vault::Vault;

/// Prefix of ids of files in a container.
const CONTAINER_FILE_PREFIX: &str = "cfile_knack_";
/// How often what is expired is removed without any request.
const SWEEP_EVERY: Duration = Duration::from_mins(5);

/// Uploads and containers of all callers in a folder.
pub struct LocalFiles {
    vault: Vault,
    clock: Clock,
    bounds: Bounds,
    /// Locked while the disk is written, so never on an async thread.
    table: Mutex<Table>,
    /// As of the last change, for those that cannot wait.
    usage: Mutex<StoreUsage>,
}

impl fmt::Debug for LocalFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalFiles").finish_non_exhaustive()
    }
}

impl LocalFiles {
    /// An empty store with a temporary folder of its own.
    pub fn temporary(bounds: Bounds, clock: Clock) -> io::Result<Self> {
        Ok(Self::over(
            (Vault::temporary(Box::new(RealDisk))?, Vec::new()),
            bounds,
            clock,
        ))
    }

    /// The store in a folder, which is made if it is not there, with what is in it. Errors: the disk fails, or another process has
    /// the folder.
    pub fn open(folder: &Path, bounds: Bounds, clock: Clock) -> io::Result<Self> {
        Self::open_on(Box::new(RealDisk), folder, bounds, clock)
    }

    /// As [`Self::open`], on a disk that may fail.
    pub fn open_on(disk: Box<dyn Disk>, folder: &Path, bounds: Bounds, clock: Clock) -> io::Result<Self> {
        Ok(Self::over(Vault::open(folder, disk)?, bounds, clock))
    }

    fn over((vault, objects): (Vault, Vec<(FileOwner, Object)>), bounds: Bounds, clock: Clock) -> Self {
        let mut table = Table::new(bounds.clone());
        for (owner, object) in objects {
            table.put((owner, object.id().to_owned()), Some(object));
        }
        Self {
            vault,
            clock,
            bounds,
            usage: Mutex::new(table.usage()),
            table: Mutex::new(table),
        }
    }

    /// Removes what is expired until the store is gone. Must be called within a tokio runtime.
    pub fn sweep_in_background(self: &Arc<Self>) {
        tokio::spawn(sweep(Arc::downgrade(self)));
    }

    /// The time.
    pub(super) fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// How long a container that asks for nothing else lives without use. Does not block.
    pub(super) fn idle(&self) -> SignedDuration {
        self.bounds.idle
    }

    /// How much there is. Does not block.
    pub fn usage(&self) -> StoreUsage {
        *self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that an answer reads from the disk. Blocks.
    pub fn reads(&self, owner: &FileOwner, op: &Op) -> u64 {
        let table = self.lock();
        match op {
            Op::FileContent(id) | Op::CopyToContainer(_, id) | Op::CopyToContainerAs(_, id, _) => {
                table.file(owner, id).map_or(0, |file| file.size)
            }
            Op::ContainerFileContent(id, file) => table.container_file(owner, id, file).map_or(0, |file| file.size),
            _ => 0,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads or changes the table as it is now. Its changes are on the disk when this returns, or undone.
    fn with<T>(
        &self,
        action: impl FnOnce(&mut Table, Timestamp) -> Result<T, FilesRefusal>,
    ) -> Result<T, FilesRefusal> {
        let now = self.now();
        let mut table = self.lock();
        table.prune(now);
        // Expired objects are gone, even if the disk still has them.
        let _ = self.keep(&mut table, false);
        let done = action(&mut table, now).and_then(|done| match self.keep(&mut table, true) {
            Ok(()) => Ok(done),
            Err(error) => {
                tracing::warn!("rolled back a change to stored files");
                Err(failed(&error))
            }
        });
        *self.usage.lock().unwrap_or_else(PoisonError::into_inner) = table.usage();
        done
    }

    /// Brings what changed to the disk.
    fn keep(&self, table: &mut Table, undoes: bool) -> io::Result<()> {
        let changes = table.take_changes();
        let kept = changes.iter().try_for_each(|change| {
            let now = table.object(&change.key);
            self.vault.record_as(&change.key, now.as_ref())
        });
        if let (Err(error), true) = (&kept, undoes) {
            tracing::debug!(%error, "undoing");
            for change in &changes {
                // The disk may refuse this too; what is whole there is what counts after a restart.
                let _ = self.vault.record_as(&change.key, change.before.as_ref());
            }
            table.undo(changes);
            return kept;
        }
        let mut left = Vec::new();
        for change in &changes {
            let now = table.object(&change.key);
            let stays: Vec<&str> = now.iter().flat_map(Object::contents).collect();
            let before = change.before.iter().flat_map(Object::contents);
            left.extend(before.filter(|id| !stays.contains(id)).map(str::to_owned));
        }
        self.vault.remove(&left);
        kept
    }

    /// Does what is asked. Blocks.
    pub fn execute(&self, owner: &FileOwner, op: Op, content: &Bytes) -> Result<Reply, FilesRefusal> {
        match op {
            Op::FileContent(id) => {
                let info = self.with(|table, _| table.file(owner, &id).cloned())?;
                let content = self.read(&info.id, "File")?;
                return Ok((Answer::File(info), content));
            }
            Op::ContainerFileContent(id, file) => {
                let found = self.with(|table, _| table.container_file(owner, &id, &file).cloned())?;
                let content = self.read(&found.id, "Container file")?;
                return Ok((Answer::ContainerFile(found), content));
            }
            Op::AddFile(file) => return self.add_file(owner, file, content).map(without_content),
            Op::AddToContainer(container, file) => {
                let write = |id: &str| self.vault.write(id, content);
                let size = content.len() as u64;
                let added = self.add_to_container(owner, &container, (file, size), write);
                return added.map(Answer::ContainerFile).map(without_content);
            }
            Op::CopyToContainer(container, upload) => return self.copy(owner, (&container, None), &upload),
            Op::CopyToContainerAs(container, upload, name) => {
                return self.copy(owner, (&container, Some(name)), &upload);
            }
            _ => {}
        }
        self.with(|table, now| in_table(table, owner, op, now))
            .map(without_content)
    }

    fn read(&self, id: &str, what: &'static str) -> Result<Bytes, FilesRefusal> {
        self.vault.read(id).map_err(|error| match error.kind() {
            // It was removed meanwhile.
            io::ErrorKind::NotFound => FilesRefusal::Missing(what, id.to_owned()),
            _ => failed(&error),
        })
    }

    fn add_file(&self, owner: &FileOwner, file: NewFile, content: &Bytes) -> Result<Answer, FilesRefusal> {
        let id = new_id(FILE_PREFIX);
        let size = content.len() as u64;
        let write = |id: &str| self.vault.write(id, content);
        self.written(&id, size, write)?;
        let added = self.with(|table, now| table.add_file(owner, (id.clone(), file, size), now));
        if added.is_err() {
            self.vault.remove(&[id]);
        }
        added.map(Answer::File)
    }

    fn copy(&self, owner: &FileOwner, to: (&str, Option<String>), upload: &str) -> Result<Reply, FilesRefusal> {
        let (container, name) = to;
        let info = self.with(|table, _| table.file(owner, upload).cloned())?;
        let file = NewContainerFile {
            path: name.unwrap_or(info.name),
            mime: info.mime,
            source: Source::User,
        };
        let copy = |id: &str| self.vault.copy(upload, id);
        let added = self.add_to_container(owner, container, (file, info.size), copy);
        added.map(Answer::ContainerFile).map(without_content)
    }

    fn add_to_container(
        &self,
        owner: &FileOwner,
        container: &str,
        (file, size): (NewContainerFile, u64),
        write: impl FnOnce(&str) -> io::Result<()>,
    ) -> Result<ContainerFile, FilesRefusal> {
        let id = new_id(CONTAINER_FILE_PREFIX);
        self.written(&id, size, write)?;
        let added = self.with(|table, now| {
            if file.source == Source::Assistant {
                table.open_for_answer(owner, container, now)?;
            }
            table.add_to_container(owner, container, (id.clone(), file, size), now)
        });
        if added.is_err() {
            self.vault.remove(&[id]);
        }
        added
    }

    /// Writes a content that its table does not have yet.
    fn written(&self, id: &str, size: u64, write: impl FnOnce(&str) -> io::Result<()>) -> Result<(), FilesRefusal> {
        self.bounds.admit_file(size)?;
        write(id).map_err(|error| {
            self.vault.remove(&[id.to_owned()]);
            failed(&error)
        })
    }

    /// How many contents the disk has.
    #[cfg(test)]
    pub(super) fn contents(&self) -> usize {
        self.vault.count()
    }
}

/// Operations without content.
fn in_table(table: &mut Table, owner: &FileOwner, op: Op, now: Timestamp) -> Result<Answer, FilesRefusal> {
    match op {
        Op::File(id) => table.file(owner, &id).cloned().map(Answer::File),
        Op::Files(ids) => {
            let files = table.files_of(owner).cloned().collect();
            Ok(Answer::Files(files, gone(table, owner, ids)))
        }
        Op::DeleteFile(id) => table.delete_file(owner, &id).map(|()| Answer::Done),
        Op::NoteGone(id, created) => {
            table.note_gone(owner, &id, created);
            Ok(Answer::Done)
        }
        Op::AddContainer(new) => {
            let made = table.add_container(owner, new, now)?;
            Ok(Answer::Container(made, RemovedIds::new()))
        }
        Op::Container(id, ids) => {
            let found = table.container(owner, &id)?.clone();
            Ok(Answer::Container(found, gone(table, owner, ids)))
        }
        Op::UseContainer(id) => {
            let used = table.use_container(owner, &id, now)?;
            Ok(Answer::Container(used, RemovedIds::new()))
        }
        Op::Containers(ids) => {
            let all = table.containers_of(owner).cloned().map(|one| super::Container {
                skills: Vec::new(),
                files: Vec::new(),
                ..one
            });
            let all = all.collect();
            Ok(Answer::Containers(all, gone(table, owner, ids)))
        }
        Op::DeleteContainer(id) => table.delete_container(owner, &id).map(|()| Answer::Done),
        Op::DeleteContainerFile(id, file) => {
            let done = table.delete_container_file(owner, &id, &file);
            done.map(|()| Answer::Done)
        }
        // They have contents.
        Op::AddFile(_)
        | Op::FileContent(_)
        | Op::AddToContainer(..)
        | Op::CopyToContainer(..)
        | Op::CopyToContainerAs(..)
        | Op::ContainerFileContent(..) => Err(FilesRefusal::Failed),
    }
}

fn gone(table: &Table, owner: &FileOwner, ids: Vec<String>) -> RemovedIds {
    let creation = |id: String| table.creation_of_removed(owner, &id).map(|at| (id, at));
    ids.into_iter().filter_map(creation).collect()
}

const fn without_content(answer: Answer) -> Reply {
    (answer, Bytes::new())
}

/// The answer to a client for an error of the disk, which the log has.
pub(super) fn failed(error: &io::Error) -> FilesRefusal {
    tracing::warn!(%error, "a file could not be written to disk or read from it");
    if knack_registry::is_full(error) {
        return FilesRefusal::Full("the volume that keeps the files is full".to_owned());
    }
    FilesRefusal::Failed
}

async fn sweep(store: Weak<LocalFiles>) {
    loop {
        tokio::time::sleep(SWEEP_EVERY).await;
        let Some(store) = store.upgrade() else { return };
        // An error means that the process ends.
        let _ = tokio::task::spawn_blocking(move || store.with(|_, _| Ok(()))).await;
    }
}
