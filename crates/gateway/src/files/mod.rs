//! Files that runs made, kept for an hour: served by URL, and staged into later runs of the same conversation.
//!
//! Beside it: what one request's runs see and make, where results are put, and the files and containers of callers (`user_files`).

pub(crate) mod answer_container;
pub mod confined_folder;
pub(crate) mod contents;
pub(crate) mod delivered;
pub mod file_url;
pub mod private;
pub(crate) mod request_files;
pub(crate) mod temporary;
pub mod user_files;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use knack_wire::own_files::FILE_PREFIX;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use self::confined_folder::{ConfinedFolder, Readers};
use self::contents::{ContentFolder, StoredContent};
use crate::model_calls::turn_store::KeyedHash;

/// How long a generated file is kept (docs/design/conversation.md#files).
pub(crate) const FILES_KEPT: Duration = Duration::from_hours(1);
/// Disk quota of all kept files, bytes; the oldest response's files go first.
pub const FILES_QUOTA_BYTES: u64 = 512 << 20;

/// What a start says that cannot have a [`FileStore`].
pub const FILES_FOLDER_REFUSED: &str =
    "cannot create a temporary folder for generated files; TMPDIR names the folder for temporary ones";

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
    /// When it was made, as clients see it.
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
    /// The file's id.
    pub id: String,
    /// The file.
    pub entry: FileEntry,
    /// The id of its response.
    pub response: String,
    /// When its response was made; it is kept for [`FILES_KEPT`] from then on.
    pub(crate) made_at: Timestamp,
    /// The place of its content.
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
    pub(crate) async fn put_aged(
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
pub(crate) fn file_id(response: &str, name: &str) -> String {
    use sha2::Digest;
    let mut hash = sha2::Sha256::new();
    hash.update((response.len() as u64).to_be_bytes());
    hash.update(response);
    hash.update(name);
    let hex: String = knack_skill::digest::hex(&hash.finalize()[..12]);
    format!("{FILE_PREFIX}{hex}")
}

/// Writes files for a person to find: `<folder>/<response id>/<name>`; a name that would leave the folder, by itself or through a
/// link, is refused.
pub(crate) async fn write_folder(
    folder: &Path,
    response: &str,
    files: &[(FileEntry, Bytes)],
) -> std::io::Result<PathBuf> {
    let safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let id: String = response.chars().filter(|c| safe(*c)).take(80).collect();
    let id = if id.is_empty() { "response".to_owned() } else { id };
    let (folder, target, files) = (folder.to_owned(), folder.join(&id), files.to_vec());
    let write = move || {
        let folder = ConfinedFolder::named(&folder, Readers::Owner)?;
        let mut all = files.iter();
        all.try_for_each(|(entry, bytes)| folder.write(&format!("{id}/{}", entry.name), bytes))
    };
    tokio::task::spawn_blocking(write).await??;
    Ok(target)
}

#[cfg(test)]
mod tests;
