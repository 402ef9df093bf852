//! Files that runs made, kept for an hour: served by URL, and staged into later runs of the same conversation.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use tokio::time::Instant;

use super::records::Key;

/// How long a generated file is kept (conversation.md, section 1, "Files").
pub const FILES_KEPT: Duration = Duration::from_hours(1);
/// Disk quota of all kept files, bytes; the oldest response's files go first.
pub const FILES_QUOTA_BYTES: u64 = 512 << 20;

/// Prefix of file ids that are served here and never asked of a provider.
pub const FILE_ID_PREFIX: &str = "file_knack_";

/// One file of a response, as the list endpoint shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
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

/// Files of finished runs on disk, by response id, readable with the credential that made them.
#[derive(Debug)]
pub struct FileStore {
    root: tempfile::TempDir,
    quota_bytes: u64,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    responses: BTreeMap<String, Response>,
    bytes: u64,
    next: u64,
}

#[derive(Debug)]
struct Response {
    caller: Key,
    made: Instant,
    folder: PathBuf,
    files: Vec<FileEntry>,
}

impl FileStore {
    /// A store in a fresh temporary folder, removed with the store.
    pub fn new(quota_bytes: u64) -> std::io::Result<Self> {
        let root = tempfile::Builder::new().prefix("knack-files-").tempdir()?;
        Ok(Self {
            root,
            quota_bytes,
            inner: Mutex::default(),
        })
    }

    /// Keeps the files of one response; files of the same name from a later run replace earlier ones.
    /// Files that do not fit the quota push out the oldest responses.
    pub async fn put(
        self: &Arc<Self>,
        caller: Key,
        response: &str,
        files: Vec<(FileEntry, Bytes)>,
    ) -> std::io::Result<()> {
        let (store, response) = (Arc::clone(self), response.to_owned());
        tokio::task::spawn_blocking(move || store.put_blocking(caller, &response, &files))
            .await
            .map_err(std::io::Error::other)?
    }

    fn put_blocking(&self, caller: Key, response: &str, files: &[(FileEntry, Bytes)]) -> std::io::Result<()> {
        let folder = {
            let mut inner = self.lock();
            inner.next += 1;
            self.root.path().join(inner.next.to_string())
        };
        std::fs::create_dir(&folder)?;
        for (entry, bytes) in files {
            std::fs::write(folder.join(&entry.sha256), bytes)?;
        }
        let mut inner = self.lock();
        let mut entries: Vec<FileEntry> = Vec::new();
        if let Some(old) = inner.remove(response) {
            // A later round of the same response: earlier files stay unless they were written again.
            for entry in old.files {
                if old.caller == caller && !files.iter().any(|(new, _)| new.name == entry.name) {
                    std::fs::rename(old.folder.join(&entry.sha256), folder.join(&entry.sha256))?;
                    entries.push(entry);
                }
            }
            std::fs::remove_dir_all(&old.folder)?;
        }
        entries.extend(files.iter().map(|(entry, _)| entry.clone()));
        inner.bytes += entries.iter().map(|entry| entry.size_bytes).sum::<u64>();
        inner.responses.insert(
            response.to_owned(),
            Response {
                caller,
                made: Instant::now(),
                folder,
                files: entries,
            },
        );
        inner.expire(self.quota_bytes)
    }

    /// The files of a response; `None` when unknown, expired or another caller's.
    pub fn list(&self, caller: &Key, response: &str) -> Option<Vec<FileEntry>> {
        let inner = self.lock();
        inner.visible(caller, response).map(|found| found.files.clone())
    }

    /// One file of a response with its entry; `None` as for [`FileStore::list`].
    pub async fn read(&self, caller: &Key, response: &str, name: &str) -> Option<(FileEntry, Bytes)> {
        let (entry, path) = {
            let inner = self.lock();
            let found = inner.visible(caller, response)?;
            let entry = found.files.iter().find(|entry| entry.name == name)?.clone();
            let path = found.folder.join(&entry.sha256);
            (entry, path)
        };
        let bytes = tokio::fs::read(&path).await.ok()?;
        Some((entry, Bytes::from(bytes)))
    }

    /// Where a file of the Files API stands: response id and name.
    pub fn find(&self, caller: &Key, id: &str) -> Option<(String, String)> {
        let inner = self.lock();
        inner
            .responses
            .iter()
            .filter(|(_, found)| found.caller == *caller && found.made.elapsed() <= FILES_KEPT)
            .find_map(|(response, found)| {
                let entry = found.files.iter().find(|entry| file_id(response, &entry.name) == id)?;
                Some((response.clone(), entry.name.clone()))
            })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn visible(&self, caller: &Key, response: &str) -> Option<&Response> {
        self.responses
            .get(response)
            .filter(|found| found.caller == *caller && found.made.elapsed() <= FILES_KEPT)
    }

    fn remove(&mut self, response: &str) -> Option<Response> {
        let old = self.responses.remove(response)?;
        self.bytes -= old.files.iter().map(|entry| entry.size_bytes).sum::<u64>();
        Some(old)
    }

    fn expire(&mut self, quota: u64) -> std::io::Result<()> {
        loop {
            let Some((oldest, age)) = self
                .responses
                .iter()
                .map(|(id, r)| (id.clone(), r.made.elapsed()))
                .max_by_key(|(_, age)| *age)
            else {
                return Ok(());
            };
            if age <= FILES_KEPT && self.bytes <= quota {
                return Ok(());
            }
            if let Some(old) = self.remove(&oldest) {
                std::fs::remove_dir_all(&old.folder)?;
            }
        }
    }
}

/// The id of a file in the Files API of the client's dialect: opaque, and the same whenever it is asked for.
pub fn file_id(response: &str, name: &str) -> String {
    use sha2::Digest;
    let mut hash = sha2::Sha256::new();
    hash.update((response.len() as u64).to_be_bytes());
    hash.update(response);
    hash.update(name);
    let hex: String = crate::digest::hex(&hash.finalize()[..12]);
    format!("{FILE_ID_PREFIX}{hex}")
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

    const A: Key = [1; 32];
    const B: Key = [2; 32];

    fn file(name: &str, content: &str) -> (FileEntry, Bytes) {
        let entry = FileEntry {
            name: name.to_owned(),
            mime_type: "text/plain".to_owned(),
            size_bytes: content.len() as u64,
            sha256: format!("{name}-{content}").replace('/', "_"),
        };
        (entry, Bytes::from(content.to_owned()))
    }

    #[tokio::test]
    async fn files_are_read_back_with_the_same_credential_only() {
        let store = Arc::new(FileStore::new(1000).unwrap());
        store.put(A, "r1", vec![file("a.txt", "x")]).await.unwrap();
        assert_eq!(store.read(&A, "r1", "a.txt").await.unwrap().1, "x");
        assert!(store.read(&B, "r1", "a.txt").await.is_none());
        assert!(store.list(&B, "r1").is_none());
        assert!(store.list(&A, "r2").is_none());
        assert!(store.read(&A, "r1", "../a.txt").await.is_none());
    }

    #[tokio::test]
    async fn a_later_run_of_the_response_adds_and_replaces() {
        let store = Arc::new(FileStore::new(1000).unwrap());
        store.put(A, "r", vec![file("a", "1"), file("b", "1")]).await.unwrap();
        store.put(A, "r", vec![file("b", "2")]).await.unwrap();
        assert_eq!(store.read(&A, "r", "a").await.unwrap().1, "1");
        assert_eq!(store.read(&A, "r", "b").await.unwrap().1, "2");
        assert_eq!(store.list(&A, "r").unwrap().len(), 2);
    }

    #[tokio::test]
    async fn the_quota_pushes_out_the_oldest_and_removes_it_from_disk() {
        let store = Arc::new(FileStore::new(2).unwrap());
        for id in ["1", "2", "3"] {
            store.put(A, id, vec![file("a", id)]).await.unwrap();
        }
        assert!(store.list(&A, "1").is_none() && store.list(&A, "2").is_some() && store.list(&A, "3").is_some());
        assert_eq!(std::fs::read_dir(store.root.path()).unwrap().count(), 2);
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
