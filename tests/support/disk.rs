//! A disk whose steps fail as a test says.

use std::fmt;
use std::io;
use std::path::Path;

use knack_registry::{Disk, RealDisk};

/// What is done to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DiskStep {
    CreateFolder,
    Write,
    Append,
    Cut,
    Rename,
    Remove,
}

/// How a step ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// As on the disk of this machine.
    Done,
    /// An error, though a part is on the disk; of what has no parts: all.
    Half,
    /// An error, and nothing is on the disk.
    Failed,
}

/// The disk of this machine, where a function is asked how each step ends; it may also wait.
pub(crate) struct FailingDisk<F>(pub(crate) F);

impl<F> fmt::Debug for FailingDisk<F> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("FailingDisk")
    }
}

impl<F: Fn(DiskStep) -> Fate> FailingDisk<F> {
    fn step(
        &self,
        step: DiskStep,
        whole: impl FnOnce() -> io::Result<()>,
        half: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        match (self.0)(step) {
            Fate::Done => return whole(),
            Fate::Half => half()?,
            Fate::Failed => {}
        }
        Err(io::Error::other("the disk failed"))
    }
}

/// More than a line of several, and no whole number of them.
fn part(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.len() * 2 / 3]
}

impl<F: Fn(DiskStep) -> Fate + Send + Sync + 'static> Disk for FailingDisk<F> {
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        let create = || RealDisk.create_folder(path);
        self.step(DiskStep::CreateFolder, create, create)
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let write = |bytes| move || RealDisk.write(path, bytes);
        self.step(DiskStep::Write, write(bytes), write(part(bytes)))
    }

    fn append(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let append = |bytes| move || RealDisk.append(path, bytes);
        self.step(DiskStep::Append, append(bytes), append(part(bytes)))
    }

    fn cut(&self, path: &Path, length: u64) -> io::Result<()> {
        self.step(DiskStep::Cut, || RealDisk.cut(path, length), || Ok(()))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let rename = || RealDisk.rename(from, to);
        self.step(DiskStep::Rename, rename, rename)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let first = || match std::fs::read_dir(path) {
            Ok(mut entries) => RealDisk.remove(&entries.next().unwrap()?.path()),
            // A file has no parts, and stays.
            Err(_) => Ok(()),
        };
        self.step(DiskStep::Remove, || RealDisk.remove(path), first)
    }
}
