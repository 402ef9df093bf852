//! The store in a folder: one writer, whole or absent after any end.
//!
//! ```text
//! DIR/lock                       held by the one process that uses the folder
//! DIR/secret                     32 bytes: callers are hashed with it, so that they are the same after a restart
//! DIR/staging/                   what is being made or removed; emptied at start
//! DIR/skills/<id>/skill.json     the entry: a version that it does not name does not exist
//! DIR/skills/<id>/<number>.files the files of a version
//! ```
//!
//! A skill comes and goes by one rename of its folder, everything else by one rename of its entry.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use knack_skill::tree;
use rustix::fs::{FlockOperation, OFlags, flock};

use crate::Files;
use crate::disk::{Disk, RealDisk, is_full};
use crate::draft::Draft;
use crate::error::StoreError;
use crate::mode::Mode;
use crate::model::{SkillEntry, Stamp};
use crate::no_link;
use crate::owner::Owner;
use crate::page::{Page, Paged};
use crate::store::Store;
use crate::volume_threads::VolumeThreads;

mod open;
mod pack;
use open::{ENTRY, FolderIndex, entry_bytes, read_all, read_one, secret};
use pack::{pack, unpack};

/// Skills of one folder: their entries are in memory, and a list of a few thousand is already unusable for a person.
const SKILLS_MAX: usize = 10_000;
/// Bytes of all files of all versions: they are in memory while they are served.
const BYTES_MAX: u64 = 512 << 20;

/// Contents that are read on a thread at once.
const READS_AT_ONCE: usize = 16;
/// How long a caller waits for a content: at most 8 MiB, behind 15 others.
const READ_PATIENCE: Duration = Duration::from_secs(5);
/// The answer of a read that takes longer.
const LATE_READ: &str = "the volume that keeps the skills did not answer in time; try again";
/// How long a caller waits for a change: for the 127 others that one caller may make at once, each of some steps to the disk.
const CHANGE_PATIENCE: Duration = Duration::from_secs(30);
/// The answer of a change that takes longer.
const LATE_CHANGE: &str = "the volume that keeps the skills did not answer in time, and may make the change later; list the skills, then try again";

/// The refusal of a change for which the volume has no room. A whole skill can be deleted without room.
const FULL_VOLUME: &str = "the volume that keeps the skills is full; delete a skill, or enlarge the volume";

/// Skills in a folder of this machine.
#[derive(Debug)]
pub struct FolderStore {
    inner: Arc<Inner>,
    reads: VolumeThreads,
    /// One thread: changes are one after the other, and what waits for its turn has not begun.
    writes: VolumeThreads,
}

#[derive(Debug)]
struct Inner {
    root: PathBuf,
    disk: Box<dyn Disk>,
    /// Held for a change and what follows its failure.
    writing: Mutex<()>,
    index: RwLock<FolderIndex>,
    /// Counts the changes of `index`.
    changes: AtomicU64,
    _lock: File,
}

/// A store that was opened.
#[derive(Debug)]
pub struct OpenedFolder {
    /// The store.
    pub store: FolderStore,
    /// For hashes of callers.
    pub secret: [u8; 32],
    /// Skills that cannot be read and are left as they are, and why.
    pub broken: Vec<String>,
}

impl FolderStore {
    /// Opens a folder, which is made if it is not there, and may be a link: no other is followed. Errors: another process uses it, or the
    /// disk fails.
    pub fn open(root: &Path) -> io::Result<OpenedFolder> {
        Self::open_on(root, Box::new(RealDisk))
    }

    /// As [`Self::open`], on a disk that may fail.
    pub fn open_on(root: &Path, disk: Box<dyn Disk>) -> io::Result<OpenedFolder> {
        fs::create_dir_all(root)?;
        let root = no_link::named(root)?;
        let lock = no_link::open(&root.join("lock"), OFlags::WRONLY | OFlags::CREATE)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| io::Error::other("another knack uses this folder; stop it, or name another folder"))?;
        for folder in ["staging", "skills"] {
            if !no_link::is_folder(&root.join(folder))? {
                disk.create_folder(&root.join(folder))?;
            }
        }
        let staging = root.join("staging");
        for name in no_link::names(&staging)? {
            disk.remove(&staging.join(name))?;
        }
        let secret = secret(&root, &*disk)?;
        let (index, broken) = read_all(&root.join("skills"), &*disk)?;
        let store = Self {
            inner: Arc::new(Inner {
                root,
                disk,
                writing: Mutex::new(()),
                index: RwLock::new(index),
                changes: AtomicU64::new(0),
                _lock: lock,
            }),
            reads: VolumeThreads::new(READS_AT_ONCE, READ_PATIENCE, LATE_READ),
            writes: VolumeThreads::new(1, CHANGE_PATIENCE, LATE_CHANGE),
        };
        Ok(OpenedFolder { store, secret, broken })
    }

    /// How often anything has changed. Read it before [`FolderStore::skills_of`] to know later whether that is out of date.
    pub fn changes(&self) -> u64 {
        self.inner.changes.load(Ordering::Acquire)
    }

    /// Whether no owner has any skill.
    pub fn is_empty(&self) -> bool {
        self.inner.read(FolderIndex::is_empty)
    }

    /// The owner's skills, oldest first.
    pub fn skills_of(&self, owner: &Owner) -> Vec<Arc<SkillEntry>> {
        self.inner
            .read(|index| index.get(owner).map(|entries| entries.values().cloned().collect()))
            .unwrap_or_default()
    }

    /// The files of a version, for a caller that has its entry. Blocks.
    pub fn files(&self, entry: &SkillEntry, number: u32) -> Result<Files, StoreError> {
        self.inner.files(entry, number)
    }

    /// Makes a change beside the threads that serve requests.
    async fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&Inner) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let inner = Arc::clone(&self.inner);
        self.writes.done(move || change(&inner)).await.flatten()
    }
}

impl Inner {
    fn read<T>(&self, look: impl FnOnce(&FolderIndex) -> T) -> T {
        look(&self.index.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn get(&self, owner: &Owner, id: &str) -> Result<Arc<SkillEntry>, StoreError> {
        self.read(|index| index.get(owner)?.get(id).cloned())
            .ok_or(StoreError::NotFound)
    }

    fn find(&self, owner: &Owner, name: &str) -> Option<Arc<SkillEntry>> {
        self.read(|index| {
            let mut entries = index.get(owner).into_iter().flat_map(BTreeMap::values);
            entries.find(|entry| entry.name == name).cloned()
        })
    }

    fn set(&self, entry: &SkillEntry) {
        let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
        let entries = index.entry(entry.owner.clone()).or_default();
        entries.insert(entry.id.clone(), Arc::new(entry.clone()));
        self.changes.fetch_add(1, Ordering::Release);
    }

    fn forget(&self, owner: &Owner, id: &str) {
        let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(entries) = index.get_mut(owner) {
            entries.remove(id);
            if entries.is_empty() {
                index.remove(owner);
            }
        }
        self.changes.fetch_add(1, Ordering::Release);
    }

    fn folder(&self, id: &str) -> PathBuf {
        self.root.join("skills").join(id)
    }

    fn staging(&self, id: &str) -> PathBuf {
        self.root.join("staging").join(id)
    }

    /// Where the entry of a skill is written that takes the place of an earlier one.
    fn staging_of_entry(&self, id: &str) -> PathBuf {
        self.staging(&format!("{id}.json"))
    }

    fn check_quota(&self, more: u64, new_skill: bool) -> Result<(), StoreError> {
        let (skills, bytes) = self.read(|index| {
            let entries = || index.values().flat_map(BTreeMap::values);
            (entries().count(), entries().map(|entry| entry.bytes()).sum::<u64>())
        });
        if new_skill && skills >= SKILLS_MAX {
            return Err(StoreError::Full(format!(
                "there are {SKILLS_MAX} skills, the maximum; delete one first"
            )));
        }
        if bytes + more > BYTES_MAX {
            return Err(StoreError::Full(format!(
                "all skills together may take at most {} MiB; delete unused versions",
                BYTES_MAX >> 20
            )));
        }
        Ok(())
    }

    /// One change at a time. After an error of the disk, memory is what the disk has, if that can be read.
    fn change<T>(&self, owner: &Owner, id: &str, work: impl FnOnce() -> Result<T, Failure>) -> Result<T, StoreError> {
        let _one = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        work().map_err(|failure| match failure {
            Failure::Refused(refused) => refused,
            Failure::Disk(error) => {
                match read_one(&self.folder(id)) {
                    Ok(entry) => self.set(&entry),
                    Err(gone) if gone.kind() == io::ErrorKind::NotFound => self.forget(owner, id),
                    // The disk does not say what it has; what was served goes on.
                    Err(_) => {}
                }
                // What is there in part takes space until the next start.
                for left in [self.staging(id), self.staging_of_entry(id)] {
                    let _ = self.disk.remove(&left);
                }
                if is_full(&error) {
                    tracing::warn!(%error, "a change of a skill is refused: the volume is full");
                    return StoreError::Full(FULL_VOLUME.to_owned());
                }
                StoreError::Failed(error.to_string())
            }
        })
    }

    fn create(&self, owner: &Owner, title: Option<String>, draft: &Draft) -> Result<SkillEntry, StoreError> {
        let stamp = Stamp::of_now();
        let entry = SkillEntry::new(owner.clone(), title, draft, &stamp);
        self.change(owner, &entry.id, || {
            if let Some(taken) = self.find(owner, &entry.name) {
                let (name, id) = (entry.name.clone(), taken.id.clone());
                return Err(StoreError::NameTaken { name, id }.into());
            }
            self.check_quota(draft.bytes, true)?;
            let bytes = entry_bytes(&entry)?;
            let made = self.staging(&entry.id);
            self.disk.create_folder(&made)?;
            self.disk.write(&made.join("1.files"), &pack(&draft.files)?)?;
            self.disk.write(&made.join(ENTRY), &bytes)?;
            self.disk.rename(&made, &self.folder(&entry.id))?;
            self.set(&entry);
            Ok(entry.clone())
        })
    }

    /// Keeps one more version of an entry that `change` adds it to.
    fn add_version(
        &self,
        owner: &Owner,
        id: &str,
        draft: &Draft,
        change: impl FnOnce(&SkillEntry) -> Result<SkillEntry, StoreError>,
    ) -> Result<SkillEntry, StoreError> {
        self.change(owner, id, || {
            let before = self.get(owner, id)?;
            let entry = change(&before)?;
            self.check_quota(draft.bytes, false)?;
            let bytes = entry_bytes(&entry)?;
            let number = entry.next - 1;
            let path = self.folder(id).join(format!("{number}.files"));
            if let Err(error) = self.disk.write(&path, &pack(&draft.files)?) {
                let _ = self.disk.remove(&path);
                return Err(error.into());
            }
            self.replace(&entry, &bytes)?;
            let gone = before.versions.iter().map(|version| version.number);
            for number in gone.filter(|number| entry.version(*number).is_none()) {
                // The next start removes the rest.
                let _ = self.disk.remove(&self.folder(id).join(format!("{number}.files")));
            }
            Ok(entry)
        })
    }

    fn set_default(&self, owner: &Owner, id: &str, number: u32) -> Result<SkillEntry, StoreError> {
        self.change(owner, id, || {
            let entry = self.get(owner, id)?.with_default(number, Stamp::of_now().now)?;
            self.replace(&entry, &serde_json::to_vec(&entry)?)?;
            Ok(entry)
        })
    }

    fn set_mode(&self, owner: &Owner, id: &str, mode: Mode) -> Result<SkillEntry, StoreError> {
        self.change(owner, id, || {
            let entry = self.get(owner, id)?.with_mode(mode, Stamp::of_now().now);
            self.replace(&entry, &serde_json::to_vec(&entry)?)?;
            Ok(entry)
        })
    }

    fn delete_version(&self, owner: &Owner, id: &str, number: u32) -> Result<SkillEntry, StoreError> {
        self.change(owner, id, || {
            let entry = self.get(owner, id)?.without_version(number, Stamp::of_now().now)?;
            self.replace(&entry, &serde_json::to_vec(&entry)?)?;
            // The next start removes the rest.
            let _ = self.disk.remove(&self.folder(id).join(format!("{number}.files")));
            Ok(entry)
        })
    }

    fn delete(&self, owner: &Owner, id: &str) -> Result<SkillEntry, StoreError> {
        self.change(owner, id, || {
            let entry = self.get(owner, id)?;
            let gone = self.staging(id);
            self.disk.rename(&self.folder(id), &gone)?;
            self.forget(owner, id);
            // The next start removes the rest.
            let _ = self.disk.remove(&gone);
            Ok((*entry).clone())
        })
    }

    fn replace(&self, entry: &SkillEntry, bytes: &[u8]) -> Result<(), Failure> {
        let made = self.staging_of_entry(&entry.id);
        self.disk.write(&made, bytes)?;
        self.disk.rename(&made, &self.folder(&entry.id).join(ENTRY))?;
        self.set(entry);
        Ok(())
    }

    fn files(&self, entry: &SkillEntry, number: u32) -> Result<Files, StoreError> {
        let version = entry.version(number).ok_or(StoreError::NotFound)?;
        let path = self.folder(&entry.id).join(format!("{number}.files"));
        let bytes = match no_link::read(&path) {
            Ok(bytes) => bytes,
            // Deleted since the entry was read.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(StoreError::NotFound),
            Err(error) => return Err(StoreError::Failed(error.to_string())),
        };
        let files = unpack(&bytes).filter(|files| tree::digest(files) == version.digest);
        files.ok_or_else(|| StoreError::Failed(format!("{} is not the content that was uploaded", path.display())))
    }
}

#[async_trait]
impl Store for FolderStore {
    async fn create(&self, owner: &Owner, title: Option<String>, draft: Draft) -> Result<SkillEntry, StoreError> {
        let owner = owner.clone();
        self.change(move |inner| inner.create(&owner, title, &draft)).await
    }

    async fn would_keep(&self, owner: &Owner, id: Option<&str>, draft: &Draft) -> Result<(), StoreError> {
        if let Some(id) = id {
            self.inner.get(owner, id)?;
        }
        self.inner.check_quota(draft.bytes, id.is_none())
    }

    async fn add_version(
        &self,
        owner: &Owner,
        id: &str,
        draft: Draft,
        make_default: bool,
    ) -> Result<SkillEntry, StoreError> {
        let (owner, id) = (owner.clone(), id.to_owned());
        self.change(move |inner| {
            let change = |entry: &SkillEntry| entry.with_version(&draft, make_default, &Stamp::of_now());
            inner.add_version(&owner, &id, &draft, change)
        })
        .await
    }

    async fn add_in_turn(&self, owner: &Owner, id: &str, draft: Draft) -> Result<SkillEntry, StoreError> {
        let (owner, id) = (owner.clone(), id.to_owned());
        self.change(move |inner| {
            let change = |entry: &SkillEntry| entry.with_version_in_turn(&draft, &Stamp::of_now());
            inner.add_version(&owner, &id, &draft, change)
        })
        .await
    }

    async fn get(&self, owner: &Owner, id: &str) -> Result<SkillEntry, StoreError> {
        self.inner.get(owner, id).map(|entry| (*entry).clone())
    }

    async fn find(&self, owner: &Owner, name: &str) -> Result<Option<SkillEntry>, StoreError> {
        Ok(self.inner.find(owner, name).map(|entry| (*entry).clone()))
    }

    async fn list(&self, owner: &Owner, page: &Page) -> Result<Paged<SkillEntry>, StoreError> {
        Ok(self.inner.read(|index| {
            let entries = index.get(owner).into_iter().flat_map(BTreeMap::values);
            Paged::of(entries, page, |entry| &entry.id).map(|entry| (**entry).clone())
        }))
    }

    async fn set_default(&self, owner: &Owner, id: &str, number: u32) -> Result<SkillEntry, StoreError> {
        let (owner, id) = (owner.clone(), id.to_owned());
        self.change(move |inner| inner.set_default(&owner, &id, number)).await
    }

    async fn set_mode(&self, owner: &Owner, id: &str, mode: Mode) -> Result<SkillEntry, StoreError> {
        let (owner, id) = (owner.clone(), id.to_owned());
        self.change(move |inner| inner.set_mode(&owner, &id, mode)).await
    }

    async fn delete(&self, owner: &Owner, id: &str) -> Result<SkillEntry, StoreError> {
        let (owner, id) = (owner.clone(), id.to_owned());
        self.change(move |inner| inner.delete(&owner, &id)).await
    }

    async fn delete_version(&self, owner: &Owner, id: &str, number: u32) -> Result<SkillEntry, StoreError> {
        let (owner, id) = (owner.clone(), id.to_owned());
        self.change(move |inner| inner.delete_version(&owner, &id, number))
            .await
    }

    async fn content(&self, owner: &Owner, id: &str, number: u32) -> Result<Files, StoreError> {
        let (owner, id) = (owner.clone(), id.to_owned());
        let inner = Arc::clone(&self.inner);
        let read = move || inner.files(&*inner.get(&owner, &id)?, number);
        self.reads.done(read).await.flatten()
    }
}

/// Why a change did not happen.
enum Failure {
    Refused(StoreError),
    Disk(io::Error),
}

impl From<StoreError> for Failure {
    fn from(refused: StoreError) -> Self {
        Self::Refused(refused)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Disk(error)
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self::Disk(error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{draft, wait};

    fn upload(name: &str) -> Draft {
        let file = knack_skill::model::SkillFile {
            bytes: format!("---\nname: {name}\ndescription: d\n---\nx").as_bytes().into(),
            executable: false,
        };
        draft(name, Files::from([("SKILL.md".to_owned(), file)]))
    }

    #[test]
    fn all_that_touches_the_volume_is_within_the_bounds_of_its_threads_and_the_rest_is_answered() {
        let work = tempfile::tempdir().unwrap();
        wait(async {
            let mut store = FolderStore::open(work.path()).unwrap().store;
            let owner = Owner::from([1; 32]);
            let kept = store.create(&owner, None, upload("kept")).await.unwrap();
            let hangs = || VolumeThreads::new(0, Duration::from_millis(10), "late");
            (store.reads, store.writes) = (hangs(), hangs());
            for late in [
                store.create(&owner, None, upload("other")).await,
                store.add_version(&owner, &kept.id, upload("kept"), true).await,
                store.add_in_turn(&owner, &kept.id, upload("kept")).await,
                store.set_default(&owner, &kept.id, 1).await,
                store.set_mode(&owner, &kept.id, Mode::Off).await,
                store.delete_version(&owner, &kept.id, 1).await,
                store.delete(&owner, &kept.id).await,
            ] {
                assert!(matches!(late, Err(StoreError::Unavailable(_))), "{late:?}");
            }
            let late = store.content(&owner, &kept.id, 1).await;
            assert!(matches!(late, Err(StoreError::Unavailable(_))), "{late:?}");
            assert_eq!(store.get(&owner, &kept.id).await.unwrap(), kept);
            assert_eq!(store.find(&owner, "other").await.unwrap(), None, "not begun");
        });
    }
}
