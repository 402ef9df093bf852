//! Reading a folder when it is opened.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::OFlags;
use uuid::Uuid;

use crate::disk::Disk;
use crate::error::StoreError;
use crate::model::{ID_PREFIX, SkillEntry};
use crate::no_link;
use crate::owner::Owner;

/// Largest entry that an upload may make: a hundred versions, each with a description of 8 KiB.
const ENTRY_MAX_BYTES: usize = 1 << 20;
/// Largest entry that is read. Other changes may exceed the bound of uploads by a few bytes, and earlier builds had none.
const ENTRY_READ_MAX_BYTES: u64 = 16 << 20;
/// The name of an entry's file.
pub(super) const ENTRY: &str = "skill.json";

/// The entries in memory, by owner and id.
pub(super) type FolderIndex = BTreeMap<Owner, BTreeMap<String, Arc<SkillEntry>>>;

/// The key of callers' hashes, which is made with the folder.
pub(super) fn secret(root: &Path, disk: &dyn Disk) -> io::Result<[u8; 32]> {
    let path = root.join("secret");
    match no_link::read(&path) {
        Ok(bytes) => bytes.try_into().map_err(|_| {
            io::Error::other(
                "the file secret does not have 32 bytes; restore it, or remove it and lose access to all skills",
            )
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let mut secret = [0; 32];
            for (half, random) in secret.chunks_mut(16).zip([Uuid::new_v4(), Uuid::new_v4()]) {
                half.copy_from_slice(random.as_bytes());
            }
            let made = root.join("staging").join("secret");
            disk.write(&made, &secret)?;
            disk.rename(&made, &path)?;
            Ok(secret)
        }
        Err(error) => Err(error),
    }
}

/// Reads every entry, and removes the files of versions that no entry names.
pub(super) fn read_all(skills: &Path, disk: &dyn Disk) -> io::Result<(FolderIndex, Vec<String>)> {
    let (mut index, mut broken) = (FolderIndex::new(), Vec::new());
    for name in no_link::names(skills)? {
        let folder = skills.join(name);
        match read_one(&folder) {
            Ok(entry) => {
                remove_unnamed(&folder, &entry, disk)?;
                let entries = index.entry(entry.owner.clone()).or_default();
                entries.insert(entry.id.clone(), Arc::new(entry));
            }
            Err(error) => broken.push(format!("{}: {error}", folder.display())),
        }
    }
    Ok((index, broken))
}

/// An entry with an upload as its file has it. Error: it is too large.
pub(super) fn entry_bytes(entry: &SkillEntry) -> Result<Vec<u8>, StoreError> {
    let bytes = serde_json::to_vec(entry).map_err(|error| StoreError::Failed(error.to_string()))?;
    if bytes.len() > ENTRY_MAX_BYTES {
        return Err(StoreError::Full(format!(
            "the entry of skill \"{}\" would have {} bytes, and {ENTRY_MAX_BYTES} is the most; delete versions that are not \
             used, or shorten their descriptions",
            entry.name,
            bytes.len()
        )));
    }
    Ok(bytes)
}

pub(super) fn read_one(folder: &Path) -> io::Result<SkillEntry> {
    let path = folder.join(ENTRY);
    let mut file = no_link::open(&path, OFlags::RDONLY)?;
    if file.metadata()?.len() > ENTRY_READ_MAX_BYTES {
        return Err(io::Error::other("the entry is too large"));
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let entry: SkillEntry = serde_json::from_slice(&bytes)?;
    let named = folder.file_name().and_then(|name| name.to_str());
    if named != Some(&entry.id) || !entry.id.starts_with(ID_PREFIX) {
        return Err(io::Error::other("the entry belongs to another folder"));
    }
    Ok(entry)
}

fn remove_unnamed(folder: &Path, entry: &SkillEntry, disk: &dyn Disk) -> io::Result<()> {
    for found in no_link::names(folder)? {
        let path = folder.join(&found);
        let name = found.to_str().unwrap_or_default();
        let number = name.strip_suffix(".files").and_then(|number| number.parse().ok());
        if number.is_some_and(|number| entry.version(number).is_none()) {
            disk.remove(&path)?;
        }
    }
    Ok(())
}
