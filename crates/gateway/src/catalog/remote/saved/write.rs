//! Writing the file.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use knack_hub_api::{ContentFile, ContentIndex, PROTOCOL};
use knack_skill::digest::{hex, sha256};
use sha2::{Digest as _, Sha256};

use super::format::{FORMATS, HEAD_MAX_BYTES, IndexRef, NAME_NEW, SAVED_MAX_BYTES, SavedHead, SavedLocation};
use crate::catalog::remote::content::Tree;
use crate::catalog::remote::mirror::MirrorState;

/// A catalog that is to be saved.
#[derive(Debug)]
pub(in crate::catalog::remote) struct Unsaved {
    pub(in crate::catalog::remote) state: MirrorState,
    /// The content of every skill, by digest.
    pub(in crate::catalog::remote) trees: BTreeMap<String, Arc<Tree>>,
}

/// Why a catalog was not saved.
#[derive(Debug, thiserror::Error)]
pub(super) enum SaveError {
    #[error("it takes {0} bytes, more than {SAVED_MAX_BYTES}")]
    TooLarge(u64),
    #[error("{0}: {1}")]
    Write(&'static str, io::Error),
}

/// Equal for catalogs that are the same file but for its time.
pub(super) type Fingerprint = [u8; 32];

impl MirrorState {
    /// Digests represent the contents.
    pub(super) fn fingerprint(&self) -> io::Result<Fingerprint> {
        let mut hash = Sha256::new();
        hash.update(serde_json::to_vec(self)?);
        Ok(hash.finalize().into())
    }
}

impl SavedLocation {
    /// Replaces what is there; `confirmed_at` is when the hub confirmed it last.
    pub(super) fn save(&self, catalog: &Unsaved, confirmed_at: SystemTime) -> Result<(), SaveError> {
        let (index, contents) = catalog.parts();
        let index = serde_json::to_vec(&index).map_err(|error| SaveError::Write("the index", error.into()))?;
        let bytes =
            contents.iter().map(|content| content.len() as u64).sum::<u64>() + index.len() as u64 + HEAD_MAX_BYTES;
        if bytes > SAVED_MAX_BYTES {
            return Err(SaveError::TooLarge(bytes));
        }
        let head = SavedHead {
            format: FORMATS.max,
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            identity: Some(self.identity.clone()),
            index_bytes: index.len() as u64,
        };
        let new = self.folder.join(NAME_NEW);
        let written = self.write(&new, &head, &index, &contents, confirmed_at);
        if written.is_err() {
            let _ = fs::remove_file(&new);
        }
        written
    }

    fn write(
        &self,
        new: &Path,
        head: &SavedHead,
        index: &[u8],
        contents: &[&[u8]],
        confirmed_at: SystemTime,
    ) -> Result<(), SaveError> {
        let step = |what: &'static str| move |error: io::Error| SaveError::Write(what, error);
        let mut folder = DirBuilder::new();
        folder.recursive(true).mode(0o700);
        folder.create(&self.folder).map_err(step("the folder"))?;
        // Left by a process that was killed. The new file is never one that somebody else made, a link among others.
        let _ = fs::remove_file(new);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(new)
            .map_err(step("the new file"))?;
        let write = || -> io::Result<()> {
            let mut hash = Sha256::new();
            let mut out = BufWriter::new(&file);
            let mut head = serde_json::to_vec(head)?;
            head.push(b'\n');
            for part in [&head, index].into_iter().chain(contents.iter().copied()) {
                hash.update(part);
                out.write_all(part)?;
            }
            writeln!(out, "{}", hex(&hash.finalize()))?;
            out.flush()?;
            file.set_modified(confirmed_at)
        };
        write().map_err(step("the new file"))?;
        fs::rename(new, self.file()).map_err(step("the file"))
    }

    /// The hub confirmed again what is there.
    pub(super) fn confirm(&self, confirmed_at: SystemTime) -> io::Result<()> {
        OpenOptions::new()
            .write(true)
            .open(self.file())?
            .set_modified(confirmed_at)
    }

    /// Removes what is there, so that a restart brings nothing back that is no longer served.
    pub(super) fn forget(&self) -> io::Result<()> {
        match fs::remove_file(self.file()) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

impl Unsaved {
    /// The index, and the contents that it names, each once.
    fn parts(&self) -> (IndexRef<'_>, Vec<&[u8]>) {
        let mut contents = Vec::new();
        let mut named = HashSet::new();
        let mut trees = Vec::new();
        for (digest, tree) in &self.trees {
            let mut files = Vec::with_capacity(tree.files.len());
            for (path, file) in &tree.files {
                let hash = sha256(&file.bytes);
                if named.insert(hash.clone()) {
                    contents.push(&*file.bytes);
                }
                files.push(ContentFile {
                    path: path.clone(),
                    size: file.bytes.len() as u64,
                    sha256: hash,
                    executable: file.executable,
                });
            }
            trees.push(ContentIndex {
                digest: digest.clone(),
                files,
            });
        }
        let state = &self.state;
        (IndexRef { state, trees }, contents)
    }
}
