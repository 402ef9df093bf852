//! Files that runs made, kept for an hour: served by URL, and staged into later runs of the same conversation.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use knack_wire::own_files::FILE_PREFIX;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::contents::{ContentFolder, StoredContent};
use super::records::KeyedHash;

/// How long a generated file is kept (docs/design/conversation.md#files).
pub const FILES_KEPT: Duration = Duration::from_hours(1);
/// Disk quota of all kept files, bytes; the oldest response's files go first.
pub const FILES_QUOTA_BYTES: u64 = 512 << 20;

/// One file of a response, as the list endpoint shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Path relative to the run's working directory.
    pub name: String,
    /// By extension.
    pub mime_type: String,
    /// Length in bytes.
    pub size_bytes: u64,
    /// Hex SHA-256.
    pub sha256: String,
}

/// How often expired files are removed from the disk.
const SWEEP_EVERY: Duration = Duration::from_mins(5);

/// Files of finished runs on disk, by caller and response id: only the credential that made them reads them.
#[derive(Debug)]
pub struct FileStore {
    disk: ContentFolder,
    quota_bytes: u64,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    responses: BTreeMap<(KeyedHash, String), KeptResponse>,
    /// The response of each file, by caller and id of the file.
    by_id: HashMap<(KeyedHash, String), String>,
    bytes: u64,
}

#[derive(Debug)]
struct KeptResponse {
    made: Instant,
    /// The same time as clients see it.
    made_at: Timestamp,
    files: Vec<KeptFile>,
}

/// One file on disk, for as long as it is referenced: removing it does not disturb its readers.
#[derive(Debug, Clone)]
struct KeptFile {
    /// In the Files API.
    id: String,
    entry: FileEntry,
    stored: StoredContent,
}

/// A file that a run made, as the Files API has it.
#[derive(Debug, Clone)]
pub struct MadeFile {
    /// Its id.
    pub id: String,
    /// The file.
    pub entry: FileEntry,
    /// The id of its response.
    pub response: String,
    /// When its response was made; it is kept for [`FILES_KEPT`] from then on.
    pub made_at: Timestamp,
    /// Where it is.
    pub stored: StoredContent,
}

impl FileStore {
    /// A store in a fresh temporary folder, removed with the store. Must be called within a tokio runtime: expired files
    /// are removed in the background.
    pub fn open(quota_bytes: u64) -> std::io::Result<Arc<Self>> {
        let store = Arc::new(Self {
            disk: ContentFolder::open()?,
            quota_bytes,
            inner: Mutex::default(),
        });
        tokio::spawn(sweep(Arc::downgrade(&store)));
        Ok(store)
    }

    /// Keeps the files of one response; files of the same name from a later run replace earlier ones.
    /// Files that do not fit the quota push out the oldest responses.
    pub async fn put(
        self: &Arc<Self>,
        caller: KeyedHash,
        response: &str,
        files: Vec<(FileEntry, Bytes)>,
    ) -> std::io::Result<()> {
        self.put_aged(caller, response, files, Duration::ZERO).await
    }

    /// [`FileStore::put`] of files that were made some time ago, which they have behind them here too.
    pub async fn put_aged(
        self: &Arc<Self>,
        caller: KeyedHash,
        response: &str,
        files: Vec<(FileEntry, Bytes)>,
        age: Duration,
    ) -> std::io::Result<()> {
        let (store, response) = (Arc::clone(self), response.to_owned());
        // A clock that began later than the file was made: it is as old as the clock.
        let made = Instant::now().checked_sub(age).unwrap_or_else(Instant::now);
        let made_at = Timestamp::now().saturating_sub(age).unwrap_or(Timestamp::MIN);
        tokio::task::spawn_blocking(move || store.put_blocking(caller, response, files, (made, made_at)))
            .await
            .map_err(std::io::Error::other)?
    }

    fn put_blocking(
        &self,
        caller: KeyedHash,
        response: String,
        files: Vec<(FileEntry, Bytes)>,
        (at, made_at): (Instant, Timestamp),
    ) -> std::io::Result<()> {
        let mut made: Vec<KeptFile> = Vec::with_capacity(files.len());
        for (entry, bytes) in files {
            let stored = self.disk.write(&bytes)?;
            made.retain(|earlier| earlier.entry.name != entry.name);
            let id = file_id(&response, &entry.name);
            made.push(KeptFile { id, entry, stored });
        }
        let mut inner = self.lock();
        // A later round of the same response: earlier files stay unless they were written again.
        let (mut entries, replaced) =
            inner
                .remove(&(caller, response.clone()))
                .map_or((Vec::new(), Vec::new()), |old| {
                    let stays = |kept: &KeptFile| !made.iter().any(|new| new.entry.name == kept.entry.name);
                    old.files.into_iter().partition(stays)
                });
        entries.append(&mut made);
        let kept = KeptResponse {
            made: at,
            made_at,
            files: entries,
        };
        inner.insert(caller, response, kept);
        let expired = inner.expire(self.quota_bytes);
        drop(inner);
        // The disk is touched without the lock, which async readers take.
        drop((replaced, expired));
        Ok(())
    }

    /// The files of a response; `None` when unknown, expired or another caller's.
    pub fn list(&self, caller: &KeyedHash, response: &str) -> Option<Vec<FileEntry>> {
        let inner = self.lock();
        let found = inner.visible(caller, response)?;
        Some(found.files.iter().map(|kept| kept.entry.clone()).collect())
    }

    /// One file of a response with its entry; `None` as for [`FileStore::list`].
    pub async fn read(&self, caller: &KeyedHash, response: &str, name: &str) -> Option<(FileEntry, Bytes)> {
        let KeptFile { entry, stored, .. } = {
            let inner = self.lock();
            let found = inner.visible(caller, response)?;
            found.files.iter().find(|kept| kept.entry.name == name)?.clone()
        };
        Some((entry, stored.read().await?))
    }

    /// A file by its id in the Files API; `None` as for [`FileStore::list`].
    pub fn find(&self, caller: &KeyedHash, id: &str) -> Option<MadeFile> {
        let inner = self.lock();
        let response = inner.by_id.get(&(*caller, id.to_owned()))?;
        let found = inner.visible(caller, response)?;
        let kept = found.files.iter().find(|kept| kept.id == id)?;
        Some(kept.shown(response, found.made_at))
    }

    /// All files of a caller, in no order.
    pub fn all(&self, caller: &KeyedHash) -> Vec<MadeFile> {
        let inner = self.lock();
        let ids = inner.by_id.iter().filter(|((owner, _), _)| owner == caller);
        let responses: std::collections::BTreeSet<&str> = ids.map(|(_, response)| &**response).collect();
        let visible = responses
            .into_iter()
            .filter_map(|id| Some((id, inner.visible(caller, id)?)));
        visible
            .flat_map(|(id, found)| found.files.iter().map(|kept| kept.shown(id, found.made_at)))
            .collect()
    }

    /// Removes a file by its id in the Files API. False: it is not there.
    pub fn delete(&self, caller: &KeyedHash, id: &str) -> bool {
        let mut inner = self.lock();
        let gone = inner.take(caller, id);
        drop(inner);
        gone.is_some()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes expired files until the store is gone.
async fn sweep(store: Weak<FileStore>) {
    loop {
        tokio::time::sleep(SWEEP_EVERY).await;
        let Some(store) = store.upgrade() else { return };
        let expired = store.lock().expire(store.quota_bytes);
        // An error means that the process ends, and its folder with it.
        let _ = tokio::task::spawn_blocking(move || drop((expired, store))).await;
    }
}

impl Inner {
    fn visible(&self, caller: &KeyedHash, response: &str) -> Option<&KeptResponse> {
        self.responses
            .get(&(*caller, response.to_owned()))
            .filter(|found| found.made.elapsed() <= FILES_KEPT)
    }

    fn insert(&mut self, caller: KeyedHash, response: String, new: KeptResponse) {
        self.bytes += size(&new.files);
        let ids = new
            .files
            .iter()
            .map(|kept| ((caller, kept.id.clone()), response.clone()));
        self.by_id.extend(ids);
        self.responses.insert((caller, response), new);
    }

    fn remove(&mut self, key: &(KeyedHash, String)) -> Option<KeptResponse> {
        let old = self.responses.remove(key)?;
        self.bytes -= size(&old.files);
        for kept in &old.files {
            self.by_id.remove(&(key.0, kept.id.clone()));
        }
        Some(old)
    }

    /// Takes one file out of its response.
    fn take(&mut self, caller: &KeyedHash, id: &str) -> Option<KeptFile> {
        let response = self.by_id.remove(&(*caller, id.to_owned()))?;
        let found = self.responses.get_mut(&(*caller, response))?;
        let at = found.files.iter().position(|kept| kept.id == id)?;
        let gone = found.files.remove(at);
        self.bytes -= gone.entry.size_bytes;
        Some(gone)
    }

    /// Removes files that are too old, and the oldest of those over the quota.
    fn expire(&mut self, quota: u64) -> Vec<KeptResponse> {
        let mut expired = Vec::new();
        while let Some((oldest, made)) = self
            .responses
            .iter()
            .map(|(key, found)| (key, found.made))
            .min_by_key(|(_, made)| *made)
        {
            if made.elapsed() <= FILES_KEPT && self.bytes <= quota {
                break;
            }
            let oldest = oldest.clone();
            expired.extend(self.remove(&oldest));
        }
        expired
    }
}

impl KeptFile {
    fn shown(&self, response: &str, made_at: Timestamp) -> MadeFile {
        MadeFile {
            id: self.id.clone(),
            entry: self.entry.clone(),
            response: response.to_owned(),
            made_at,
            stored: self.stored.clone(),
        }
    }
}

fn size(files: &[KeptFile]) -> u64 {
    files.iter().map(|kept| kept.entry.size_bytes).sum()
}

/// The id of a file in the Files API of the client's dialect: opaque, and the same whenever it is asked for.
pub fn file_id(response: &str, name: &str) -> String {
    use sha2::Digest;
    let mut hash = sha2::Sha256::new();
    hash.update((response.len() as u64).to_be_bytes());
    hash.update(response);
    hash.update(name);
    let hex: String = knack_skill::digest::hex(&hash.finalize()[..12]);
    format!("{FILE_PREFIX}{hex}")
}

/// Writes files for a person to find: `<folder>/<response id>/<name>`; a name that would leave the folder is refused.
pub async fn write_folder(folder: &Path, response: &str, files: &[(FileEntry, Bytes)]) -> std::io::Result<PathBuf> {
    let safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let id: String = response.chars().filter(|c| safe(*c)).take(80).collect();
    let target = folder.join(if id.is_empty() { "response" } else { &id });
    for (entry, bytes) in files {
        let relative = Path::new(&entry.name);
        let inside = relative
            .components()
            .all(|part| matches!(part, std::path::Component::Normal(_)));
        if !inside {
            return Err(std::io::Error::other(format!(
                "file name {:?} would leave the folder",
                entry.name
            )));
        }
        let path = target.join(relative);
        if let Some(parent) = path.parent() {
            tokio::fs::create_dir_all(parent).await?;
        }
        tokio::fs::write(&path, bytes).await?;
    }
    Ok(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: KeyedHash = [1; 32];
    const B: KeyedHash = [2; 32];

    fn file(name: &str, content: &str) -> (FileEntry, Bytes) {
        let entry = FileEntry {
            name: name.to_owned(),
            mime_type: "text/plain".to_owned(),
            size_bytes: content.len() as u64,
            sha256: knack_skill::digest::sha256(content.as_bytes()),
        };
        (entry, Bytes::from(content.to_owned()))
    }

    fn on_disk(store: &FileStore) -> usize {
        store.disk.count()
    }

    #[tokio::test]
    async fn files_are_read_back_with_the_same_credential_only() {
        let store = FileStore::open(1000).unwrap();
        store.put(A, "r1", vec![file("a.txt", "x")]).await.unwrap();
        assert_eq!(store.read(&A, "r1", "a.txt").await.unwrap().1, "x");
        assert!(store.read(&B, "r1", "a.txt").await.is_none());
        assert!(store.list(&B, "r1").is_none());
        assert!(store.list(&A, "r2").is_none());
        assert!(store.read(&A, "r1", "../a.txt").await.is_none());
    }

    #[tokio::test]
    async fn equal_ids_of_two_callers_are_two_responses() {
        let store = FileStore::open(1000).unwrap();
        store.put(A, "r", vec![file("a", "of A")]).await.unwrap();
        store.put(B, "r", vec![file("a", "of B")]).await.unwrap();
        for (caller, expected) in [(A, "of A"), (B, "of B")] {
            assert_eq!(store.read(&caller, "r", "a").await.unwrap().1, expected);
            let found = store.find(&caller, &file_id("r", "a")).unwrap();
            assert_eq!((found.entry.name.as_str(), store.all(&caller).len()), ("a", 1));
        }
        assert!(store.find(&[3; 32], &file_id("r", "a")).is_none());
    }

    #[tokio::test]
    async fn a_later_run_of_the_response_adds_and_replaces() {
        let store = FileStore::open(1000).unwrap();
        // Equal contents under several names, in one run and in two.
        store
            .put(A, "r", vec![file("a", "1"), file("b", "1"), file("c", "1")])
            .await
            .unwrap();
        store
            .put(A, "r", vec![file("b", "0"), file("b", "2"), file("d", "1")])
            .await
            .unwrap();
        for (name, expected) in [("a", "1"), ("b", "2"), ("c", "1"), ("d", "1")] {
            assert_eq!(store.read(&A, "r", name).await.unwrap().1, expected, "{name}");
        }
        assert_eq!(
            (store.list(&A, "r").unwrap().len(), on_disk(&store), store.lock().bytes),
            (4, 4, 4)
        );
        let found = store.find(&A, &file_id("r", "b")).unwrap();
        assert_eq!(found.entry.sha256, knack_skill::digest::sha256("2"));
    }

    #[tokio::test]
    async fn a_deleted_file_is_gone_and_the_others_of_its_response_are_not() {
        let store = FileStore::open(1000).unwrap();
        store.put(A, "r", vec![file("a", "1"), file("b", "22")]).await.unwrap();
        let id = file_id("r", "a");
        assert!(!store.delete(&B, &id) && store.delete(&A, &id) && !store.delete(&A, &id));
        assert!(store.find(&A, &id).is_none() && store.read(&A, "r", "b").await.is_some());
        let left = store.all(&A).len();
        assert_eq!((on_disk(&store), store.lock().bytes, left), (1, 2, 1));
    }

    #[tokio::test]
    async fn the_quota_pushes_out_the_oldest_and_removes_it_from_disk() {
        let store = FileStore::open(2).unwrap();
        for id in ["1", "2", "3"] {
            store.put(A, id, vec![file("a", id)]).await.unwrap();
        }
        assert!(store.list(&A, "1").is_none() && store.list(&A, "2").is_some() && store.list(&A, "3").is_some());
        assert_eq!(on_disk(&store), 2);
        let known = ["1", "2", "3"].map(|id| store.find(&A, &file_id(id, "a")).is_some());
        assert_eq!((known, store.lock().by_id.len()), ([false, true, true], 2));
    }

    #[tokio::test]
    async fn what_is_expired_leaves_the_disk_without_another_put() {
        tokio::time::pause();
        let store = FileStore::open(1000).unwrap();
        store.put(A, "r", vec![file("a", "1")]).await.unwrap();
        tokio::time::sleep(FILES_KEPT.checked_sub(Duration::from_mins(1)).unwrap()).await;
        assert_eq!(on_disk(&store), 1);
        tokio::time::sleep(SWEEP_EVERY * 2).await;
        for _ in 0..1000 {
            if on_disk(&store) == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!((on_disk(&store), store.lock().bytes), (0, 0));
        assert!(store.lock().by_id.is_empty());
    }

    #[tokio::test]
    async fn names_that_leave_the_folder_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        write_folder(folder.path(), "resp_1", &[file("out/a.txt", "x")])
            .await
            .unwrap();
        assert!(folder.path().join("resp_1/out/a.txt").exists());
        for name in ["../x", "/etc/x", "a/../../x"] {
            assert!(
                write_folder(folder.path(), "resp_1", &[file(name, "x")]).await.is_err(),
                "{name}"
            );
        }
    }
}
