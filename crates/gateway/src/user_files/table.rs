//! Who has which uploads and containers, within bounds. Pure: the time and the contents on disk are passed in.

use std::collections::{BTreeMap, HashMap, VecDeque};

use jiff::{SignedDuration, Timestamp};

use super::bounds::Bounds;
use crate::disk::Stored;
use crate::records::Key;

/// Ids of files that are gone which are remembered, so that lists go on behind them and a late reader is told that a file
/// has expired. About 150 bytes each.
const GONE_MAX: usize = 4096;

/// An uploaded file.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the names are those of the APIs")]
pub struct Upload {
    pub id: String,
    pub name: String,
    pub mime: String,
    pub size: u64,
    pub purpose: String,
    pub created: Timestamp,
    pub expires: Timestamp,
    pub stored: Stored,
}

/// What puts files into a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Its caller.
    User,
    /// A run.
    Assistant,
}

/// One file of a container.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the names are those of the APIs")]
pub struct ContainerFile {
    pub id: String,
    /// Relative to the working directory of runs.
    pub path: String,
    pub mime: String,
    pub size: u64,
    pub source: Source,
    pub created: Timestamp,
    pub stored: Stored,
}

/// A file on its way into a container.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) id: String,
    pub(super) path: String,
    pub(super) mime: String,
    pub(super) size: u64,
    pub(super) stored: Stored,
}

impl Made {
    fn into_file(self, source: Source, created: Timestamp) -> ContainerFile {
        let Self {
            id,
            path,
            mime,
            size,
            stored,
        } = self;
        ContainerFile {
            id,
            path,
            mime,
            size,
            source,
            created,
            stored,
        }
    }
}

/// A container: files that requests which name it have in common.
#[derive(Debug, Clone)]
pub struct Container {
    /// Its id.
    pub id: String,
    /// Its name; empty for one that an answer opened.
    pub name: String,
    /// When it was made.
    pub created: Timestamp,
    /// When it was used last.
    pub active: Timestamp,
    /// How long it lives without use.
    pub idle: SignedDuration,
    /// Memory of its runs at most, as the API spells it.
    pub memory_limit: Option<String>,
    /// Its files, one of each path.
    pub files: Vec<ContainerFile>,
}

impl Container {
    /// When it goes, if it is not used again.
    pub fn expires(&self) -> Timestamp {
        self.active.saturating_add(self.idle).unwrap_or(Timestamp::MAX)
    }

    fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.size).sum()
    }
}

/// What a new container is to be.
#[derive(Debug, Clone, Default)]
#[expect(missing_docs, reason = "the names are those of the APIs")]
pub struct NewContainer {
    pub id: String,
    pub name: String,
    /// `None`: as long as the bound allows.
    pub idle: Option<SignedDuration>,
    pub memory_limit: Option<String>,
}

/// Why a call about files is not served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such object of this caller: what it is called in the API, and its id.
    Missing(&'static str, String),
    /// The file was here.
    Expired(String),
    /// A parameter or field is wrong.
    Invalid(&'static str, String),
    /// It is larger than a bound.
    TooLarge(String),
    /// There is no room.
    Full(String),
    /// The API has no such method.
    NotAllowed(&'static str),
    /// The disk did not take it.
    Failed,
}

/// What is remembered of a file that is gone.
#[derive(Debug, Clone, Copy)]
struct Gone {
    created: Timestamp,
    expired: bool,
}

/// The table.
#[derive(Debug)]
pub(super) struct Table {
    bounds: Bounds,
    files: BTreeMap<(Key, String), Upload>,
    containers: BTreeMap<(Key, String), Container>,
    /// Of both.
    bytes: u64,
    gone: HashMap<(Key, String), Gone>,
    gone_order: VecDeque<(Key, String)>,
    /// What has left since the last [`Table::take_dropped`].
    dropped: Vec<Stored>,
}

impl Table {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            files: BTreeMap::new(),
            containers: BTreeMap::new(),
            bytes: 0,
            gone: HashMap::new(),
            gone_order: VecDeque::new(),
            dropped: Vec::new(),
        }
    }

    pub(super) const fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// Contents that nobody may read any more.
    pub(super) fn take_dropped(&mut self) -> Vec<Stored> {
        std::mem::take(&mut self.dropped)
    }

    /// Removes what is expired.
    pub(super) fn prune(&mut self, now: Timestamp) {
        let over = |file: &Upload| file.expires <= now;
        let expired = self.files.iter().filter(|(_, file)| over(file));
        for key in expired.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            self.remove_file(&key, true);
        }
        let idle = self.containers.iter().filter(|(_, one)| one.expires() <= now);
        for key in idle.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            self.remove_container(&key, true);
        }
    }

    fn remove_file(&mut self, key: &(Key, String), expired: bool) -> bool {
        let Some(file) = self.files.remove(key) else {
            return false;
        };
        self.bytes -= file.size;
        self.dropped.push(file.stored);
        self.note_gone(&key.0, &key.1, file.created, expired);
        true
    }

    fn remove_container(&mut self, key: &(Key, String), expired: bool) -> bool {
        let Some(container) = self.containers.remove(key) else {
            return false;
        };
        self.bytes -= container.bytes();
        self.note_gone(&key.0, &key.1, container.created, expired);
        self.dropped.extend(container.files.into_iter().map(|file| file.stored));
        true
    }

    /// Remembers where an object stood in lists.
    pub(super) fn note_gone(&mut self, caller: &Key, id: &str, created: Timestamp, expired: bool) {
        while self.gone_order.len() >= GONE_MAX {
            if let Some(oldest) = self.gone_order.pop_front() {
                self.gone.remove(&oldest);
            }
        }
        let key = (*caller, id.to_owned());
        if self.gone.insert(key.clone(), Gone { created, expired }).is_none() {
            self.gone_order.push_back(key);
        }
    }

    /// When an object that is gone was made.
    pub(super) fn gone(&self, caller: &Key, id: &str) -> Option<Timestamp> {
        self.gone.get(&(*caller, id.to_owned())).map(|gone| gone.created)
    }

    /// Why an id leads to nothing.
    pub(super) fn missing(&self, caller: &Key, what: &'static str, id: &str) -> Refusal {
        match self.gone.get(&(*caller, id.to_owned())) {
            Some(gone) if gone.expired => Refusal::Expired(id.to_owned()),
            _ => Refusal::Missing(what, id.to_owned()),
        }
    }

    /// Whether there is room for so many bytes more of a caller.
    fn admit(&self, caller: &Key, bytes: u64) -> Result<(), Refusal> {
        let bounds = &self.bounds;
        if self.used(caller) + bytes > bounds.caller_bytes {
            let text = format!("files of one caller take at most {} bytes", bounds.caller_bytes);
            return Err(Refusal::Full(text));
        }
        if self.bytes + bytes > bounds.bytes {
            return Err(Refusal::Full(format!(
                "files of all callers take at most {} bytes",
                bounds.bytes
            )));
        }
        Ok(())
    }

    fn used(&self, caller: &Key) -> u64 {
        let files: u64 = self.files_of(caller).map(|file| file.size).sum();
        let containers: u64 = self.containers_of(caller).map(Container::bytes).sum();
        files + containers
    }

    /// Keeps an upload.
    pub(super) fn add_file(&mut self, caller: &Key, file: Upload) -> Result<(), Refusal> {
        let bounds = &self.bounds;
        if file.size > bounds.file_bytes {
            let text = format!("a file has at most {} bytes", bounds.file_bytes);
            return Err(Refusal::TooLarge(text));
        }
        if self.files_of(caller).count() >= bounds.caller_files {
            let text = format!("one caller has at most {} files", bounds.caller_files);
            return Err(Refusal::Full(text));
        }
        if self.files.len() >= bounds.files {
            return Err(Refusal::Full(format!(
                "all callers have at most {} files",
                bounds.files
            )));
        }
        self.admit(caller, file.size)?;
        self.bytes += file.size;
        self.files.insert((*caller, file.id.clone()), file);
        Ok(())
    }

    pub(super) fn file(&self, caller: &Key, id: &str) -> Option<&Upload> {
        self.files.get(&(*caller, id.to_owned()))
    }

    /// False: it is not there.
    pub(super) fn delete_file(&mut self, caller: &Key, id: &str) -> bool {
        self.remove_file(&(*caller, id.to_owned()), false)
    }

    pub(super) fn files_of<'t>(&'t self, caller: &'t Key) -> impl Iterator<Item = &'t Upload> {
        of(&self.files, caller)
    }

    pub(super) fn containers_of<'t>(&'t self, caller: &'t Key) -> impl Iterator<Item = &'t Container> {
        of(&self.containers, caller)
    }

    /// Makes a container. The caller's that was used least recently goes for it where there are too many.
    pub(super) fn add_container(
        &mut self,
        caller: &Key,
        new: NewContainer,
        now: Timestamp,
    ) -> Result<&mut Container, Refusal> {
        if self.containers_of(caller).count() >= self.bounds.caller_containers {
            let oldest = self.containers_of(caller).min_by_key(|one| one.active);
            if let Some(id) = oldest.map(|one| one.id.clone()) {
                self.remove_container(&(*caller, id), true);
            }
        }
        if self.containers.len() >= self.bounds.containers {
            let text = format!("all callers have at most {} containers", self.bounds.containers);
            return Err(Refusal::Full(text));
        }
        let idle = new.idle.map_or(self.bounds.idle, |idle| idle.min(self.bounds.idle));
        let container = Container {
            id: new.id.clone(),
            name: new.name,
            created: now,
            active: now,
            idle,
            memory_limit: new.memory_limit,
            files: Vec::new(),
        };
        Ok(self.containers.entry((*caller, new.id)).or_insert(container))
    }

    pub(super) fn container(&self, caller: &Key, id: &str) -> Result<&Container, Refusal> {
        let found = self.containers.get(&(*caller, id.to_owned()));
        found.ok_or_else(|| self.missing(caller, "Container", id))
    }

    pub(super) fn use_container(&mut self, caller: &Key, id: &str, now: Timestamp) -> Option<Container> {
        let container = self.containers.get_mut(&(*caller, id.to_owned()))?;
        container.active = now;
        Some(container.clone())
    }

    /// False: it is not there.
    pub(super) fn delete_container(&mut self, caller: &Key, id: &str) -> bool {
        self.remove_container(&(*caller, id.to_owned()), false)
    }

    /// Puts a file into a container; one of the same path goes.
    pub(super) fn add_to_container(
        &mut self,
        caller: &Key,
        id: &str,
        (file, source): (Made, Source),
        now: Timestamp,
    ) -> Result<ContainerFile, Refusal> {
        let container = self.container(caller, id)?;
        let (size, path) = (file.size, file.path.clone());
        // One that is replaced makes room; it stays where the new one does not fit all the same.
        let replaced = container.files.iter().find(|old| old.path == path).map(|old| old.size);
        let (files, bytes) = (container.files.len(), container.bytes());
        if size > self.bounds.file_bytes {
            let text = format!("a file has at most {} bytes", self.bounds.file_bytes);
            return Err(Refusal::TooLarge(text));
        }
        if replaced.is_none() && files >= self.bounds.container_files {
            let text = format!("a container has at most {} files", self.bounds.container_files);
            return Err(Refusal::Full(text));
        }
        let freed = replaced.unwrap_or(0);
        if bytes - freed + size > self.bounds.container_bytes {
            let text = format!("a container has at most {} bytes", self.bounds.container_bytes);
            return Err(Refusal::Full(text));
        }
        self.admit(caller, size.saturating_sub(freed))?;
        let file = file.into_file(source, now);
        let Some(container) = self.containers.get_mut(&(*caller, id.to_owned())) else {
            return Err(Refusal::Missing("Container", id.to_owned()));
        };
        container.active = now;
        if let Some(at) = container.files.iter().position(|old| old.path == path) {
            self.dropped.push(container.files.remove(at).stored);
        }
        container.files.push(file.clone());
        self.bytes = self.bytes - freed + size;
        Ok(file)
    }

    /// Files of runs. Returns how many had no room.
    pub(super) fn add_made(&mut self, caller: &Key, id: &str, files: Vec<Made>, now: Timestamp) -> usize {
        if self.container(caller, id).is_err() {
            let new = NewContainer {
                id: id.to_owned(),
                ..NewContainer::default()
            };
            if self.add_container(caller, new, now).is_err() {
                return files.len();
            }
        }
        let mut refused = 0;
        for file in files {
            let added = self.add_to_container(caller, id, (file, Source::Assistant), now);
            refused += usize::from(added.is_err());
        }
        refused
    }

    /// A file of a container.
    pub(super) fn container_file(&self, caller: &Key, id: &str, file: &str) -> Result<&ContainerFile, Refusal> {
        let container = self.container(caller, id)?;
        let found = container.files.iter().find(|one| one.id == file);
        found.ok_or_else(|| Refusal::Missing("Container file", file.to_owned()))
    }

    pub(super) fn delete_container_file(&mut self, caller: &Key, id: &str, file: &str) -> Result<(), Refusal> {
        let created = self.container_file(caller, id, file)?.created;
        let key = (*caller, id.to_owned());
        if let Some(container) = self.containers.get_mut(&key)
            && let Some(at) = container.files.iter().position(|one| one.id == file)
        {
            let gone = container.files.remove(at);
            self.bytes -= gone.size;
            self.dropped.push(gone.stored);
        }
        self.note_gone(caller, file, created, false);
        Ok(())
    }
}

/// The entries of one caller.
fn of<'t, T>(all: &'t BTreeMap<(Key, String), T>, caller: &'t Key) -> impl Iterator<Item = &'t T> {
    all.range((*caller, String::new())..)
        .take_while(move |((owner, _), _)| owner == caller)
        .map(|(_, value)| value)
}
