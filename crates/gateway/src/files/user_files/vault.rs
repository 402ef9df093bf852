//! Contents and entries of uploads and containers in a folder. An object is there, whole, once its entry is.
//!
//! ```text
//! DIR/lock                       held by the one process that uses the folder
//! DIR/contents/file_knack_…      one content, named by the id of its file; without an entry that names it it is removed
//! DIR/records/<hash>.json        one upload, or one container with the list of its files; replaced in one step
//! ```

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use knack_registry::{Disk, lock_alone, no_link};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::objects::{FileOwner, Object};
use super::table::ObjectKey;
use crate::files::temporary::Temporary;
use crate::model_calls::turn_store::KeyedHash;

/// The form of an entry. A folder with another one is not opened.
const VERSION: u32 = 1;

/// A folder.
#[derive(Debug)]
pub(super) struct Vault {
    root: PathBuf,
    disk: Box<dyn Disk>,
    held: HeldFolder,
}

#[derive(Debug)]
enum HeldFolder {
    /// Objects are gone with the process, so that no entry is written.
    Temporary {
        _folder: Temporary,
    },
    Kept {
        _lock: File,
    },
}

/// An entry as it is written.
#[derive(Debug, Serialize, Deserialize)]
struct VaultEntry {
    version: u32,
    account: KeyedHash,
    caller: KeyedHash,
    object: Object,
}

/// Whether the name of a content names nothing outside of its folder: the folder may be somebody else's, as in a checkout.
fn is_plain(name: &str) -> bool {
    Path::new(name).file_name().is_some_and(|last| last == name)
}

impl Vault {
    /// A temporary folder.
    pub(super) fn temporary(disk: Box<dyn Disk>) -> io::Result<Self> {
        let folder = Temporary::make()?;
        let vault = Self {
            root: no_link::named(folder.path())?,
            disk,
            held: HeldFolder::Temporary { _folder: folder },
        };
        vault.disk.create_folder(&vault.contents())?;
        Ok(vault)
    }

    /// Opens a folder that is kept, with its objects. Partial writes of an ended process are removed. Errors: the disk fails,
    /// another process has the folder, a newer version wrote it, or it is a link, which may be that of a checkout.
    pub(super) fn open(root: &Path, disk: Box<dyn Disk>) -> io::Result<(Self, Vec<(FileOwner, Object)>)> {
        let root = no_link::below_named(root)?;
        if !no_link::is_folder(&root)? {
            disk.create_folder(&root)?;
        }
        let lock = lock_alone(&root.join("lock"), "keeps files in this folder")?;
        let vault = Self {
            root,
            disk,
            held: HeldFolder::Kept { _lock: lock },
        };
        for folder in [vault.contents(), vault.entries()] {
            if !no_link::is_folder(&folder)? {
                vault.disk.create_folder(&folder)?;
            }
        }
        let objects = vault.read_entries()?;
        let named: BTreeSet<&str> = objects.iter().flat_map(|(_, object)| object.contents()).collect();
        for found in no_link::names(&vault.contents())? {
            if !found.to_str().is_some_and(|name| named.contains(name)) {
                vault.disk.remove(&vault.contents().join(found))?;
            }
        }
        Ok((vault, objects))
    }

    fn contents(&self) -> PathBuf {
        self.root.join("contents")
    }

    fn entries(&self) -> PathBuf {
        self.root.join("records")
    }

    /// A name that no other object has, for any id.
    fn entry(&self, (owner, id): &ObjectKey) -> PathBuf {
        let hash = Sha256::new().chain_update(owner.account).chain_update(owner.caller);
        let name = knack_skill::digest::hex(&hash.chain_update(id).finalize());
        self.entries().join(format!("{name}.json"))
    }

    fn read_entries(&self) -> io::Result<Vec<(FileOwner, Object)>> {
        let mut objects = Vec::new();
        for found in no_link::names(&self.entries())? {
            let path = self.entries().join(found);
            if path.extension().is_none_or(|extension| extension != "json") {
                self.disk.remove(&path)?;
                continue;
            }
            let value: serde_json::Value = match serde_json::from_slice(&no_link::read(&path)?) {
                Ok(value) => value,
                Err(error) => {
                    tracing::warn!(%error, path = %path.display(), "a stored file is skipped: its entry cannot be read");
                    continue;
                }
            };
            if value["version"] != VERSION {
                let text = format!("{}: another version of Knack wrote it", path.display());
                return Err(io::Error::other(text));
            }
            let entry: VaultEntry = serde_json::from_value(value)
                .map_err(|error| io::Error::other(format!("{}: {error}", path.display())))?;
            let owner = FileOwner {
                account: entry.account,
                caller: entry.caller,
            };
            let is_whole = |name: &&str| is_plain(name) && no_link::is_file(&self.contents().join(name));
            if entry.object.contents().iter().all(is_whole) {
                objects.push((owner, entry.object));
            } else {
                tracing::warn!(path = %path.display(), "a stored file is removed: its content is missing");
                self.disk.remove(&path)?;
            }
        }
        Ok(objects)
    }

    /// Writes one content, of an object that has no entry yet.
    pub(super) fn write(&self, id: &str, content: &[u8]) -> io::Result<()> {
        self.disk.write(&self.contents().join(id), content)
    }

    /// Makes a content that is that of another id.
    pub(super) fn copy(&self, from: &str, to: &str) -> io::Result<()> {
        let content = no_link::read(&self.contents().join(from))?;
        self.write(to, &content)
    }

    /// One content.
    pub(super) fn read(&self, id: &str) -> io::Result<Bytes> {
        no_link::read(&self.contents().join(id)).map(Bytes::from)
    }

    /// Removes contents that no entry names. One that stays is removed at the next start.
    pub(super) fn remove(&self, ids: &[String]) {
        for id in ids {
            if let Err(error) = self.disk.remove(&self.contents().join(id)) {
                tracing::debug!(%error, "the content of a file could not be removed");
            }
        }
    }

    /// Writes the entry of an object, in the place of an earlier one, or removes it.
    pub(super) fn record_as(&self, key: &ObjectKey, object: Option<&Object>) -> io::Result<()> {
        if matches!(self.held, HeldFolder::Temporary { .. }) {
            return Ok(());
        }
        let path = self.entry(key);
        let Some(object) = object else {
            return match self.disk.remove(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                done => done,
            };
        };
        let entry = VaultEntry {
            version: VERSION,
            account: key.0.account,
            caller: key.0.caller,
            object: object.clone(),
        };
        let new = path.with_extension("new");
        self.disk.write(&new, &serde_json::to_vec(&entry)?)?;
        self.disk.rename(&new, &path)
    }

    /// How many contents there are.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        no_link::names(&self.contents()).map_or(0, |names| names.len())
    }
}
