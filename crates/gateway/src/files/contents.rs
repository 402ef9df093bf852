//! Contents of files in a temporary folder of this process, each kept while a reference to it exists.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use super::temporary::Temporary;

/// A fresh temporary folder, removed with it.
#[derive(Debug)]
pub(crate) struct ContentFolder {
    root: Temporary,
    next: AtomicU64,
}

/// One content. Dropping the last reference removes the file; a reader that has it open is not disturbed.
#[derive(Debug, Clone)]
pub struct StoredContent(Arc<DiskFile>);

#[derive(Debug)]
struct DiskFile(PathBuf);

impl Drop for DiskFile {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            tracing::debug!(%error, "a stored file could not be removed");
        }
    }
}

impl ContentFolder {
    /// Makes the folder.
    pub(crate) fn open() -> std::io::Result<Self> {
        Ok(Self {
            root: Temporary::make()?,
            next: AtomicU64::new(0),
        })
    }

    /// Writes one content. Blocks.
    pub(crate) fn write(&self, bytes: &[u8]) -> std::io::Result<StoredContent> {
        let path = self
            .root
            .path()
            .join(self.next.fetch_add(1, Ordering::Relaxed).to_string());
        std::fs::write(&path, bytes)?;
        Ok(StoredContent(Arc::new(DiskFile(path))))
    }

    /// How many contents there are, beside the lock.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        std::fs::read_dir(self.root.path()).map_or(0, |all| all.count() - 1)
    }
}

impl StoredContent {
    /// The content; `None` if it cannot be read.
    pub async fn read(&self) -> Option<Bytes> {
        match tokio::fs::read(&self.0.0).await {
            Ok(bytes) => Some(Bytes::from(bytes)),
            Err(error) => {
                tracing::warn!(%error, "a stored file could not be read");
                None
            }
        }
    }
}
