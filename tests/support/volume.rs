//! A volume of a few bytes.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use knack_registry::{Disk, RealDisk};

/// A volume of a size, with nothing else on it.
#[derive(Debug)]
pub(crate) struct Volume {
    pub(crate) root: PathBuf,
    pub(crate) size: Arc<AtomicU64>,
}

/// The bytes of all files of a folder and of those in it.
pub(crate) fn used(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).unwrap();
    let bytes = |entry: std::fs::DirEntry| match entry.metadata().unwrap() {
        folder if folder.is_dir() => used(&entry.path()),
        file => file.len(),
    };
    entries.map(|entry| bytes(entry.unwrap())).sum()
}

impl Volume {
    /// As much of it as fits is written.
    fn fit<'b>(&self, bytes: &'b [u8], before: u64) -> (&'b [u8], io::Result<()>) {
        let room = self
            .size
            .load(Ordering::SeqCst)
            .saturating_sub(used(&self.root) - before);
        match bytes.get(..usize::try_from(room).unwrap()) {
            Some(part) if part.len() < bytes.len() => (part, Err(io::ErrorKind::StorageFull.into())),
            _ => (bytes, Ok(())),
        }
    }
}

impl Disk for Volume {
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        RealDisk.create_folder(path)
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let before = std::fs::metadata(path).map_or(0, |file| file.len());
        let (part, done) = self.fit(bytes, before);
        RealDisk.write(path, part).and(done)
    }

    fn append(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let (part, done) = self.fit(bytes, 0);
        RealDisk.append(path, part).and(done)
    }

    fn cut(&self, path: &Path, length: u64) -> io::Result<()> {
        RealDisk.cut(path, length)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove(path)
    }
}
