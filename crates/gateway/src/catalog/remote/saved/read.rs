//! Reading the file.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, ErrorKind, Read as _};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use knack_hub_api::{ContentFile, ContentIndex, PROTOCOLS};
use knack_memory::OverBudget;
use knack_skill::digest::{hex, sha256};
use knack_skill::model::SkillFile;
use knack_skill::tree;
use sha2::{Digest as _, Sha256};

use super::format::{CLOCK_SLACK, FORMATS, HEAD_MAX_BYTES, SAVED_MAX_BYTES, SavedHead, SavedIndex, SavedLocation};
use crate::catalog::remote::blobs::Blobs;
use crate::catalog::remote::content::{Tree, check_index};
use crate::catalog::remote::mirror::MirrorState;

/// A catalog that was saved.
#[derive(Debug)]
pub(in crate::catalog::remote) struct RestoredCatalog {
    pub(in crate::catalog::remote) state: MirrorState,
    pub(in crate::catalog::remote) trees: BTreeMap<String, Tree>,
    /// Time since the hub sent or confirmed it.
    pub(in crate::catalog::remote) age: Duration,
}

/// Why a saved catalog is not used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unusable {
    #[error("it cannot be read: {0}")]
    Read(#[from] io::Error),
    #[error("it is not a regular file")]
    NotAFile,
    #[error("it has {0} bytes, more than {SAVED_MAX_BYTES}")]
    TooLarge(u64),
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
    #[error(
        "version {version:?} of the gateway wrote it in format {format} of protocol {protocol}, and this one reads formats {FORMATS} \
         of protocols {PROTOCOLS}"
    )]
    Version {
        version: String,
        format: u32,
        protocol: u32,
    },
    #[error("it belongs to another SkillRuntime, hub or namespace")]
    Foreign,
    #[error("its timestamp is in the future: the clock was set back, so its age is unknown")]
    Future,
    #[error("not enough memory: {0}; raise the memory limit of the gateway")]
    Memory(#[from] OverBudget),
    #[error("it could not be read in time")]
    Late,
}

impl SavedLocation {
    /// The saved catalog, if there is one. Contents take their room from the budget of `blobs`.
    pub(super) fn read(&self, blobs: &Blobs, now: SystemTime) -> Result<Option<RestoredCatalog>, Unusable> {
        let path = self.file();
        let found = match fs::symlink_metadata(&path) {
            Ok(found) => found,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // Before it is opened: reading a pipe would wait for its writer.
        if !found.is_file() {
            return Err(Unusable::NotAFile);
        }
        if found.len() > SAVED_MAX_BYTES {
            return Err(Unusable::TooLarge(found.len()));
        }
        let age = match now.duration_since(found.modified()?) {
            Ok(age) => age,
            Err(ahead) if ahead.duration() <= CLOCK_SLACK => Duration::ZERO,
            Err(_) => return Err(Unusable::Future),
        };
        let mut parts = SavedParts {
            file: BufReader::new(File::open(&path)?),
            hash: Sha256::new(),
            left: found.len(),
        };
        let head = self.head(&mut parts)?;
        let room = blobs.room(
            usize::try_from(head.index_bytes)
                .unwrap_or(usize::MAX)
                .min(parts.left()),
        )?;
        let index: SavedIndex = serde_json::from_slice(&parts.take(head.index_bytes)?)
            .map_err(|_| Unusable::Damaged("its index is invalid"))?;
        drop(room);
        let trees = parts.trees(index.trees, blobs)?;
        parts.end()?;
        if !index.state.skills.iter().all(|skill| trees.contains_key(&skill.digest)) {
            return Err(Unusable::Damaged("a skill has no files"));
        }
        let state = index.state;
        Ok(Some(RestoredCatalog { state, trees, age }))
    }

    fn head(&self, parts: &mut SavedParts) -> Result<SavedHead, Unusable> {
        let head: SavedHead =
            serde_json::from_slice(&parts.line()?).map_err(|_| Unusable::Damaged("its first line is invalid"))?;
        if !FORMATS.accepts(head.format) || !PROTOCOLS.accepts(head.protocol) {
            return Err(Unusable::Version {
                version: head.version,
                format: head.format,
                protocol: head.protocol,
            });
        }
        if head.identity.as_ref() != Some(&self.identity) {
            return Err(Unusable::Foreign);
        }
        Ok(head)
    }
}

/// A file that is read part by part: nothing is allocated that it cannot hold, and everything is hashed.
struct SavedParts {
    file: BufReader<File>,
    hash: Sha256,
    left: u64,
}

const CUT: Unusable = Unusable::Damaged("it is truncated");

impl SavedParts {
    fn left(&self) -> usize {
        usize::try_from(self.left).unwrap_or(usize::MAX)
    }

    fn take(&mut self, bytes: u64) -> Result<Vec<u8>, Unusable> {
        let count = usize::try_from(bytes).map_err(|_| CUT)?;
        if bytes > self.left {
            return Err(CUT);
        }
        let mut part = vec![0; count];
        match self.file.read_exact(&mut part) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Err(CUT),
            read => read?,
        }
        self.left -= bytes;
        self.hash.update(&part);
        Ok(part)
    }

    fn line(&mut self) -> Result<Vec<u8>, Unusable> {
        let mut line = Vec::new();
        let most = self.left.min(HEAD_MAX_BYTES);
        (&mut self.file).take(most).read_until(b'\n', &mut line)?;
        if line.last() != Some(&b'\n') {
            return Err(Unusable::Damaged("it has no first line"));
        }
        self.left -= line.len() as u64;
        self.hash.update(&line);
        Ok(line)
    }

    fn trees(&mut self, listed: Vec<ContentIndex>, blobs: &Blobs) -> Result<BTreeMap<String, Tree>, Unusable> {
        let mut contents: HashMap<String, Arc<[u8]>> = HashMap::new();
        let mut trees = BTreeMap::new();
        for tree in listed {
            check_index(&tree).map_err(|_| Unusable::Damaged("a skill exceeds the limits of a skill"))?;
            let mut files = BTreeMap::new();
            for file in tree.files {
                let bytes = match contents.get(&file.sha256) {
                    Some(bytes) => Arc::clone(bytes),
                    None => self.content(&file, blobs)?,
                };
                contents.insert(file.sha256, Arc::clone(&bytes));
                let executable = file.executable;
                files.insert(file.path, SkillFile { bytes, executable });
            }
            if tree::digest(&files) != tree.digest {
                return Err(Unusable::Damaged("files do not match their digest"));
            }
            trees.insert(tree.digest, Tree { files });
        }
        Ok(trees)
    }

    fn content(&mut self, file: &ContentFile, blobs: &Blobs) -> Result<Arc<[u8]>, Unusable> {
        if file.size > self.left {
            return Err(CUT);
        }
        let room = blobs.room(usize::try_from(file.size).unwrap_or(usize::MAX))?;
        let bytes = self.take(file.size)?;
        if sha256(&bytes) != file.sha256 {
            return Err(Unusable::Damaged("a file does not match its hash"));
        }
        Ok(blobs.keep(file.sha256.clone(), Arc::from(bytes), room))
    }

    /// The digest of everything before, and then nothing.
    fn end(mut self) -> Result<(), Unusable> {
        let expected = format!("{}\n", hex(&self.hash.finalize_reset()));
        if self.left != expected.len() as u64 || self.take(self.left)? != expected.as_bytes() {
            return Err(Unusable::Damaged("its digest does not match"));
        }
        Ok(())
    }
}
