//! Reading a folder when it is opened.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use uuid::Uuid;

use crate::disk::Disk;
use crate::error::StoreError;
use crate::model::{ID_PREFIX, Owner, Record};

/// Largest record that an upload may make: a hundred versions, each with a description of 8 KiB.
const RECORD_MAX_BYTES: usize = 1 << 20;
/// Largest record that is read. Other changes may exceed the bound of uploads by a few bytes, and earlier builds had none.
const RECORD_READ_MAX_BYTES: u64 = 16 << 20;
/// The name of a record's file.
pub(super) const RECORD: &str = "skill.json";

/// The records in memory, by owner and id.
pub(super) type FolderIndex = BTreeMap<Owner, BTreeMap<String, Arc<Record>>>;

/// The key of callers' hashes, which is made with the folder.
pub(super) fn secret(root: &Path, disk: &dyn Disk) -> io::Result<[u8; 32]> {
    let path = root.join("secret");
    match fs::read(&path) {
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

/// Reads every record, and removes the files of versions that no record names.
pub(super) fn read_all(skills: &Path, disk: &dyn Disk) -> io::Result<(FolderIndex, Vec<String>)> {
    let (mut index, mut broken) = (FolderIndex::new(), Vec::new());
    for entry in fs::read_dir(skills)? {
        let folder = entry?.path();
        match read_one(&folder) {
            Ok(record) => {
                remove_unnamed(&folder, &record, disk)?;
                let records = index.entry(record.owner.clone()).or_default();
                records.insert(record.id.clone(), Arc::new(record));
            }
            Err(error) => broken.push(format!("{}: {error}", folder.display())),
        }
    }
    Ok((index, broken))
}

/// A record with an upload as its file has it. Error: it is too large.
pub(super) fn record_bytes(record: &Record) -> Result<Vec<u8>, StoreError> {
    let bytes = serde_json::to_vec(record).map_err(|error| StoreError::Failed(error.to_string()))?;
    if bytes.len() > RECORD_MAX_BYTES {
        return Err(StoreError::Full(format!(
            "the record of skill \"{}\" would have {} bytes, and {RECORD_MAX_BYTES} is the most; delete versions that are not \
             used, or shorten their descriptions",
            record.name,
            bytes.len()
        )));
    }
    Ok(bytes)
}

pub(super) fn read_one(folder: &Path) -> io::Result<Record> {
    let path = folder.join(RECORD);
    if fs::metadata(&path)?.len() > RECORD_READ_MAX_BYTES {
        return Err(io::Error::other("the record is too large"));
    }
    let record: Record = serde_json::from_slice(&fs::read(&path)?)?;
    let named = folder.file_name().and_then(|name| name.to_str());
    if named != Some(&record.id) || !record.id.starts_with(ID_PREFIX) {
        return Err(io::Error::other("the record belongs to another folder"));
    }
    Ok(record)
}

fn remove_unnamed(folder: &Path, record: &Record, disk: &dyn Disk) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let number = name.strip_suffix(".files").and_then(|number| number.parse().ok());
        if number.is_some_and(|number| record.version(number).is_none()) {
            disk.remove(&path)?;
        }
    }
    Ok(())
}
