//! Who has which files and containers, within bounds. No I/O: the time comes with each change, contents are on a disk that
//! others write, and what changed is returned, so that it can be kept or undone.

use std::collections::BTreeMap;

use jiff::Timestamp;
use knack_wire::own_files::ANSWER_CONTAINER_PREFIX;

use super::bounds::Bounds;
use super::objects::{Container, ContainerFile, FileInfo, FileOwner, NewContainer, NewContainerFile, NewFile, Object};
use super::refusal::FilesRefusal;
use super::tombstones::{Tombstone, Tombstones};

/// The owner of an object, and its id.
pub(super) type ObjectKey = (FileOwner, String);

/// An object that is another one than it was.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TableChange {
    pub(super) key: ObjectKey,
    /// The object before the change; `None`: there was none.
    pub(super) before: Option<Object>,
}

/// The table.
#[derive(Debug)]
pub(super) struct Table {
    bounds: Bounds,
    files: BTreeMap<ObjectKey, FileInfo>,
    containers: BTreeMap<ObjectKey, Container>,
    /// Bytes of all files and containers.
    bytes: u64,
    gone: Tombstones,
    /// Since the last [`Table::take_changes`], each object once.
    changes: Vec<TableChange>,
}

/// How much a table has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreUsage {
    /// Bytes of all contents.
    pub bytes: u64,
    /// Uploads.
    pub files: usize,
    /// Containers.
    pub containers: usize,
}

impl Table {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            files: BTreeMap::new(),
            containers: BTreeMap::new(),
            bytes: 0,
            gone: Tombstones::default(),
            changes: Vec::new(),
        }
    }

    pub(super) fn usage(&self) -> StoreUsage {
        StoreUsage {
            bytes: self.bytes,
            files: self.files.len(),
            containers: self.containers.len(),
        }
    }

    /// Takes the changes since the last call.
    pub(super) fn take_changes(&mut self) -> Vec<TableChange> {
        std::mem::take(&mut self.changes)
    }

    /// Makes everything as it was before these changes.
    pub(super) fn undo(&mut self, changes: Vec<TableChange>) {
        for TableChange { key, before } in changes {
            self.put(key, before);
        }
    }

    /// An object as it is.
    pub(super) fn object(&self, key: &ObjectKey) -> Option<Object> {
        let file = self.files.get(key).cloned().map(Object::File);
        file.or_else(|| self.containers.get(key).cloned().map(Object::Container))
    }

    /// Sets an object, or removes it, without recording a change.
    pub(super) fn put(&mut self, key: ObjectKey, object: Option<Object>) {
        self.bytes -= self.object(&key).map_or(0, |old| old.bytes());
        self.bytes += object.as_ref().map_or(0, Object::bytes);
        match object {
            Some(Object::File(file)) => {
                self.files.insert(key, file);
            }
            Some(Object::Container(one)) => {
                self.containers.insert(key, one);
            }
            None => {
                self.files.remove(&key);
                self.containers.remove(&key);
            }
        }
    }

    /// Sets an object or removes it, and records the change.
    fn change(&mut self, key: ObjectKey, object: Option<Object>) {
        if !self.changes.iter().any(|change| change.key == key) {
            let before = self.object(&key);
            self.changes.push(TableChange {
                key: key.clone(),
                before,
            });
        }
        self.put(key, object);
    }

    /// Removes what is expired.
    pub(super) fn prune(&mut self, now: Timestamp) {
        let files = self.files.iter().filter(|(_, file)| file.expires <= now);
        let idle = self.containers.iter().filter(|(_, one)| one.expires() <= now);
        let over: Vec<ObjectKey> = files
            .map(|(key, _)| key.clone())
            .chain(idle.map(|(key, _)| key.clone()))
            .collect();
        for key in over {
            self.remove(&key, true);
        }
    }

    fn remove(&mut self, key: &ObjectKey, expired: bool) {
        let (created, is_container) = match self.object(key) {
            Some(Object::File(file)) => (file.created, false),
            Some(Object::Container(one)) => (one.created, true),
            None => return,
        };
        self.change(key.clone(), None);
        let gone = Tombstone {
            created,
            expired,
            is_container,
        };
        self.gone.note(&key.0, &key.1, gone);
    }

    /// Remembers where a file that was deleted stood in lists.
    pub(super) fn note_gone(&mut self, owner: &FileOwner, id: &str, created: Timestamp) {
        let gone = Tombstone {
            created,
            expired: false,
            is_container: false,
        };
        self.gone.note(owner, id, gone);
    }

    /// When an object that is gone was made.
    pub(super) fn creation_of_removed(&self, owner: &FileOwner, id: &str) -> Option<Timestamp> {
        self.gone.get(owner, id).map(|gone| gone.created)
    }

    /// Why an id leads to nothing.
    pub(super) fn missing(&self, owner: &FileOwner, what: &'static str, id: &str) -> FilesRefusal {
        match self.gone.get(owner, id) {
            Some(gone) if gone.expired => FilesRefusal::Expired(id.to_owned()),
            _ => FilesRefusal::Missing(what, id.to_owned()),
        }
    }

    /// Whether there is room for so many bytes more of a caller.
    fn admit(&self, owner: &FileOwner, bytes: u64) -> Result<(), FilesRefusal> {
        let bounds = &self.bounds;
        let of_caller = used(self.files_of(owner), self.containers_of(owner));
        let account = of_account(&self.files, owner).map(|(_, file)| file);
        let of_account = used(account, of_account(&self.containers, owner).map(|(_, one)| one));
        for (whose, used, most) in [
            ("one caller", of_caller, bounds.caller_bytes),
            ("one account", of_account, bounds.account_bytes),
            ("all callers", self.bytes, bounds.bytes),
        ] {
            if used + bytes > most {
                return Err(FilesRefusal::Full(format!(
                    "files of {whose} take at most {most} bytes"
                )));
            }
        }
        Ok(())
    }

    /// Whether there is room for one file more in a container.
    fn admit_contained(&self, owner: &FileOwner) -> Result<(), FilesRefusal> {
        let account = of_account(&self.containers, owner).map(|(_, one)| one.files.len());
        let all = self.containers.values().map(|one| one.files.len());
        let counts = [
            (
                "containers of one account have",
                account.sum(),
                self.bounds.account_contained,
            ),
            ("containers of all callers have", all.sum(), self.bounds.contained),
        ];
        admit_one(counts, "files")
    }

    /// Keeps an upload.
    pub(super) fn add_file(
        &mut self,
        owner: &FileOwner,
        (id, file, size): (String, NewFile, u64),
        now: Timestamp,
    ) -> Result<FileInfo, FilesRefusal> {
        let bounds = &self.bounds;
        bounds.admit_file(size)?;
        let (caller, account) = (self.files_of(owner).count(), of_account(&self.files, owner).count());
        let counts = [
            ("one caller has", caller, bounds.caller_files),
            ("one account has", account, bounds.account_files),
            ("all callers have", self.files.len(), bounds.files),
        ];
        admit_one(counts, "files")?;
        self.admit(owner, size)?;
        let lasts = file.lasts.map_or(bounds.kept, |lasts| lasts.min(bounds.kept));
        let NewFile {
            name, mime, purpose, ..
        } = file;
        let info = FileInfo {
            id: id.clone(),
            name,
            mime,
            size,
            purpose,
            created: now,
            expires: now.saturating_add(lasts).unwrap_or(Timestamp::MAX),
        };
        self.change((*owner, id), Some(Object::File(info.clone())));
        Ok(info)
    }

    pub(super) fn file(&self, owner: &FileOwner, id: &str) -> Result<&FileInfo, FilesRefusal> {
        let found = self.files.get(&(*owner, id.to_owned()));
        found.ok_or_else(|| self.missing(owner, "File", id))
    }

    pub(super) fn delete_file(&mut self, owner: &FileOwner, id: &str) -> Result<(), FilesRefusal> {
        self.file(owner, id)?;
        self.remove(&(*owner, id.to_owned()), false);
        Ok(())
    }

    pub(super) fn files_of<'t>(&'t self, owner: &'t FileOwner) -> impl Iterator<Item = &'t FileInfo> {
        of(&self.files, owner)
    }

    pub(super) fn containers_of<'t>(&'t self, owner: &'t FileOwner) -> impl Iterator<Item = &'t Container> {
        of(&self.containers, owner)
    }

    /// Makes a container. The caller's that was used least recently goes for it where there are too many.
    pub(super) fn add_container(
        &mut self,
        owner: &FileOwner,
        new: NewContainer,
        now: Timestamp,
    ) -> Result<Container, FilesRefusal> {
        let key = (*owner, new.id.clone());
        if let Some(there) = self.containers.get(&key) {
            return Ok(there.clone());
        }
        if self.containers_of(owner).count() >= self.bounds.caller_containers {
            let oldest = self.containers_of(owner).min_by_key(|one| one.active);
            if let Some(id) = oldest.map(|one| one.id.clone()) {
                self.remove(&(*owner, id), true);
            }
        }
        let account = of_account(&self.containers, owner).count();
        let counts = [
            ("one account has", account, self.bounds.account_containers),
            ("all callers have", self.containers.len(), self.bounds.containers),
        ];
        admit_one(counts, "containers")?;
        let container = Container {
            id: new.id,
            name: new.name,
            created: now,
            active: now,
            idle: new.idle.map_or(self.bounds.idle, |idle| idle.min(self.bounds.idle)),
            memory_limit: new.memory_limit,
            skills: new.skills,
            files: Vec::new(),
        };
        self.change(key, Some(Object::Container(container.clone())));
        Ok(container)
    }

    /// Makes the container of an answer, whose runs make its first file. One that was there and is gone stays gone, and others are
    /// made by their callers.
    pub(super) fn open_for_answer(&mut self, owner: &FileOwner, id: &str, now: Timestamp) -> Result<(), FilesRefusal> {
        if !id.starts_with(ANSWER_CONTAINER_PREFIX) || self.gone.get(owner, id).is_some() {
            return Ok(());
        }
        let new = NewContainer {
            id: id.to_owned(),
            ..NewContainer::default()
        };
        self.add_container(owner, new, now).map(drop)
    }

    pub(super) fn container(&self, owner: &FileOwner, id: &str) -> Result<&Container, FilesRefusal> {
        let found = self.containers.get(&(*owner, id.to_owned()));
        found.ok_or_else(|| self.missing(owner, "Container", id))
    }

    pub(super) fn use_container(
        &mut self,
        owner: &FileOwner,
        id: &str,
        now: Timestamp,
    ) -> Result<Container, FilesRefusal> {
        let mut container = self.container(owner, id)?.clone();
        container.active = now;
        self.change((*owner, id.to_owned()), Some(Object::Container(container.clone())));
        Ok(container)
    }

    pub(super) fn delete_container(&mut self, owner: &FileOwner, id: &str) -> Result<(), FilesRefusal> {
        self.container(owner, id)?;
        self.remove(&(*owner, id.to_owned()), false);
        Ok(())
    }

    /// Puts a file into a container; one of the same path goes.
    pub(super) fn add_to_container(
        &mut self,
        owner: &FileOwner,
        container: &str,
        (id, file, size): (String, NewContainerFile, u64),
        now: Timestamp,
    ) -> Result<ContainerFile, FilesRefusal> {
        let mut container = self.container(owner, container)?.clone();
        let bounds = &self.bounds;
        bounds.admit_file(size)?;
        // A file that is replaced makes room; it stays where the new one does not fit all the same.
        let replaced = container.files.iter().position(|old| old.path == file.path);
        let freed = replaced.map_or(0, |at| container.files.remove(at).size);
        if container.files.len() >= bounds.container_files {
            let text = format!("a container has at most {} files", bounds.container_files);
            return Err(FilesRefusal::Full(text));
        }
        if container.bytes() + size > bounds.container_bytes {
            let text = format!("a container has at most {} bytes", bounds.container_bytes);
            return Err(FilesRefusal::Full(text));
        }
        if replaced.is_none() {
            self.admit_contained(owner)?;
        }
        self.admit(owner, size.saturating_sub(freed))?;
        let NewContainerFile { path, mime, source } = file;
        let file = ContainerFile {
            id,
            path,
            mime,
            size,
            source,
            created: now,
        };
        container.active = now;
        container.files.push(file.clone());
        self.change((*owner, container.id.clone()), Some(Object::Container(container)));
        Ok(file)
    }

    /// A file of a container.
    pub(super) fn container_file(
        &self,
        owner: &FileOwner,
        id: &str,
        file: &str,
    ) -> Result<&ContainerFile, FilesRefusal> {
        let container = self.container(owner, id)?;
        let found = container.files.iter().find(|one| one.id == file);
        found.ok_or_else(|| FilesRefusal::Missing("Container file", file.to_owned()))
    }

    pub(super) fn delete_container_file(
        &mut self,
        owner: &FileOwner,
        id: &str,
        file: &str,
    ) -> Result<(), FilesRefusal> {
        let created = self.container_file(owner, id, file)?.created;
        let mut container = self.container(owner, id)?.clone();
        container.files.retain(|one| one.id != file);
        self.change((*owner, id.to_owned()), Some(Object::Container(container)));
        self.note_gone(owner, file, created);
        Ok(())
    }
}

/// Whether each of these counts is below its bound.
fn admit_one<const N: usize>(counts: [(&str, usize, usize); N], what: &str) -> Result<(), FilesRefusal> {
    for (whose, there, most) in counts {
        if there >= most {
            return Err(FilesRefusal::Full(format!("{whose} at most {most} {what}")));
        }
    }
    Ok(())
}

/// Bytes of files and containers.
fn used<'t>(files: impl Iterator<Item = &'t FileInfo>, containers: impl Iterator<Item = &'t Container>) -> u64 {
    let files: u64 = files.map(|file| file.size).sum();
    files + containers.map(Container::bytes).sum::<u64>()
}

/// The entries of one caller.
fn of<'t, T>(all: &'t BTreeMap<ObjectKey, T>, owner: &'t FileOwner) -> impl Iterator<Item = &'t T> {
    all.range((*owner, String::new())..)
        .take_while(move |((whose, _), _)| whose == owner)
        .map(|(_, value)| value)
}

/// The entries of all callers of the account of one.
fn of_account<'t, T>(
    all: &'t BTreeMap<ObjectKey, T>,
    owner: &'t FileOwner,
) -> impl Iterator<Item = (&'t ObjectKey, &'t T)> {
    let first = FileOwner {
        account: owner.account,
        caller: [0; 32],
    };
    all.range((first, String::new())..)
        .take_while(move |((whose, _), _)| whose.account == owner.account)
}
