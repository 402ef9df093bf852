//! Changes of files that their watcher has not reported yet: on a busy machine its thread can be later than the next request.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use knack_gateway::catalog::Files;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::sync::mpsc;

/// Folders below one path: more than that deep are no skills, and links may go round.
const DEPTH_MAX: usize = 16;
/// One read of the queue: some hundred events.
const READ_BYTES: usize = 16 << 10;

/// A queue of the kernel, which has a change as soon as it is written.
#[derive(Debug)]
pub(super) struct ChangeQueue(OwnedFd);

impl ChangeQueue {
    /// An empty queue; `None`: this user has no more of them, and the watcher's reports are all there is.
    pub(super) fn new() -> Option<Self> {
        inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)
            .ok()
            .map(Self)
    }

    /// Watches the folders that are there now, of each path. Those that are watched already stay so.
    pub(super) fn watch(&self, paths: &[PathBuf]) {
        for path in paths {
            self.add(path, 0);
        }
    }

    fn add(&self, path: &Path, depth: usize) {
        let changes = WatchFlags::MODIFY
            | WatchFlags::ATTRIB
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE
            | WatchFlags::MOVE_SELF;
        // One that is gone again, or one too many for this user, is left to the watcher.
        let _ = inotify::add_watch(&self.0, path, changes);
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        for entry in entries.filter(|_| depth < DEPTH_MAX) {
            let below = entry.path();
            if below.is_dir() {
                self.add(&below, depth + 1);
            }
        }
    }

    /// Empties it. Returns whether there was anything.
    fn take(&self) -> bool {
        let mut events = [0; READ_BYTES];
        let mut any = false;
        while rustix::io::read(&self.0, &mut events).is_ok_and(|bytes| bytes > 0) {
            any = true;
        }
        any
    }
}

/// The files of a catalog, for its requests.
#[derive(Debug)]
pub(super) struct Unreported {
    pub(super) queue: Arc<ChangeQueue>,
    /// A full channel means that they are about to be read.
    pub(super) wake: mpsc::Sender<()>,
}

impl Files for Unreported {
    fn have_changed(&self) -> bool {
        self.queue.take()
    }

    fn read_again(&self) {
        let _ = self.wake.try_send(());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nobody waits: what is written is in the queue when the write is over.
    #[test]
    fn every_change_is_there_when_its_write_is_over() {
        let folder = tempfile::tempdir().unwrap();
        let (skills, file) = (
            folder.path().join("skills/one"),
            folder.path().join("skills/one/SKILL.md"),
        );
        std::fs::create_dir_all(&skills).unwrap();
        std::fs::write(&file, "a").unwrap();
        let queue = ChangeQueue::new().unwrap();
        let paths = [folder.path().to_owned()];
        queue.watch(&paths);
        assert!(!queue.take(), "nothing has changed");
        for text in ["b", "c"] {
            std::fs::write(&file, text).unwrap();
            assert!(queue.take(), "{text}");
            assert!(!queue.take(), "once");
        }
        let other = skills.join("scripts");
        std::fs::create_dir(&other).unwrap();
        assert!(queue.take(), "a new folder");
        queue.watch(&paths);
        std::fs::write(other.join("run.py"), "x").unwrap();
        assert!(queue.take(), "a file in it");
        std::fs::rename(&other, skills.join("renamed")).unwrap();
        assert!(queue.take(), "another name");
        std::fs::remove_file(&file).unwrap();
        assert!(queue.take(), "a deletion");
        std::fs::read_dir(&skills).unwrap().for_each(drop);
        assert!(!queue.take(), "reading is no change");
    }
}
