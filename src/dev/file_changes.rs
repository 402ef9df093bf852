//! Changes of the files of a catalog. The kernel has one in its queue as soon as it is written, so a request that comes next
//! finds it there.
//!
//! Only what the search reads is watched, each folder before it is read. A watch is of a folder, not of its name: a
//! named path behind which there is another one now is found by asking what it is.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use knack_gateway::catalog::{Files, SourceReport};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;
use tokio::sync::mpsc;

/// One read of the queue: some hundred events.
const READ_BYTES: usize = 16 << 10;

/// Device, number and mode of a file or folder: with another mode, what could not be read may be readable.
type Identity = (u64, u64, u32);

/// The folder of a named file.
pub(super) fn parent_of(file: &Path) -> &Path {
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

/// Reports changes of files since they were read.
#[derive(Debug)]
pub(super) struct FileChanges {
    queue: OwnedFd,
    /// What a user named.
    paths: Vec<PathBuf>,
    /// What was behind these names when they were read last; `None`: nothing.
    read: Mutex<Vec<Option<Identity>>>,
    unwatched: Mutex<UnwatchedPaths>,
}

/// What was read last and cannot be watched.
#[derive(Debug, Default)]
struct UnwatchedPaths {
    first: Option<(PathBuf, io::Error)>,
    count: usize,
}

impl FileChanges {
    /// Watches the paths that a user named. Errors: this user has no more queues.
    pub(super) fn of(paths: &[PathBuf]) -> io::Result<Self> {
        Ok(Self {
            queue: inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?,
            paths: paths.to_vec(),
            read: Mutex::default(),
            unwatched: Mutex::default(),
        })
    }

    /// All is about to be read.
    pub(super) fn begin(&self) {
        *self.read.lock().unwrap_or_else(PoisonError::into_inner) = self.identities().collect();
        *self.unwatched.lock().unwrap_or_else(PoisonError::into_inner) = UnwatchedPaths::default();
    }

    /// Watches a folder that is about to be read.
    pub(super) fn watch_folder(&self, folder: &Path) {
        let changes = WatchFlags::MODIFY
            | WatchFlags::ATTRIB
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE
            | WatchFlags::MOVE_SELF;
        self.add(folder, changes);
    }

    /// Watches a file that is about to be read, and its folder for another one in its place: editors replace files.
    pub(super) fn watch_named_file(&self, file: &Path) {
        self.add(parent_of(file), WatchFlags::CREATE | WatchFlags::MOVED_TO);
        let changes = WatchFlags::MODIFY | WatchFlags::ATTRIB | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF;
        self.add(file, changes);
    }

    fn add(&self, path: &Path, changes: WatchFlags) {
        // A folder may be watched for several reasons: the later one takes no kind of change away.
        let Err(error) = inotify::add_watch(&self.queue, path, changes | WatchFlags::MASK_ADD) else {
            return;
        };
        let error = io::Error::from(error);
        // The search says what is not there any more, or cannot be read.
        if matches!(
            error.kind(),
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::PermissionDenied
        ) {
            return;
        }
        let mut unwatched = self.unwatched.lock().unwrap_or_else(PoisonError::into_inner);
        unwatched.count += 1;
        unwatched.first.get_or_insert_with(|| (path.to_owned(), error));
    }

    /// A warning about what was read last and cannot be watched, if there is any.
    pub(super) fn unwatched(&self) -> Option<SourceReport> {
        let unwatched = self.unwatched.lock().unwrap_or_else(PoisonError::into_inner);
        let (path, error) = unwatched.first.as_ref()?;
        let others = match unwatched.count - 1 {
            0 => String::new(),
            others => format!(", nor can {others} more"),
        };
        let cure = match error.kind() {
            io::ErrorKind::StorageFull => "; raise the limit fs.inotify.max_user_watches, or name fewer folders",
            _ => "",
        };
        let text = format!(
            "cannot be watched{others}: {error}; changes in it are served with the next change elsewhere{cure}"
        );
        Some(SourceReport::warning(path.display().to_string(), text))
    }

    fn identities(&self) -> impl Iterator<Item = Option<Identity>> {
        let identity = |path: &PathBuf| {
            let found = std::fs::metadata(path).ok()?;
            Some((found.dev(), found.ino(), found.mode()))
        };
        self.paths.iter().map(identity)
    }

    /// Blocks until the queue has something. Returns whether it has; otherwise the other end of `stopped` is closed.
    pub(super) fn wait(&self, stopped: &OwnedFd) -> bool {
        let mut both = [&self.queue, stopped].map(|waited| PollFd::new(waited, PollFlags::IN));
        loop {
            match poll(&mut both, None) {
                Ok(_) => {
                    let [_, stopped] = &both;
                    return stopped.revents().is_empty();
                }
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }

    /// Empties the queue. Returns whether there was anything, or other files and folders are behind the names.
    pub(super) fn take(&self) -> bool {
        // Not set to zeros: each request asks, and nearly always there is nothing.
        let mut events = [MaybeUninit::<u8>::uninit(); READ_BYTES];
        let mut any = false;
        while rustix::io::read(&self.queue, &mut events).is_ok_and(|(read, _)| !read.is_empty()) {
            any = true;
        }
        let read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        any || !read.iter().copied().eq(self.identities())
    }
}

/// The files of a catalog, for its requests.
#[derive(Debug)]
pub(super) struct WatchedFiles {
    pub(super) changes: Arc<FileChanges>,
    /// A full channel means that they are about to be read.
    pub(super) wake: mpsc::Sender<()>,
}

impl Files for WatchedFiles {
    fn have_changed(&self) -> bool {
        self.changes.take()
    }

    fn read_again(&self) {
        let _ = self.wake.try_send(());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dev::{Search, discover};

    /// A search of one folder, and the changes since.
    fn watched(folder: &Path) -> (Search, Arc<FileChanges>) {
        let paths = vec![folder.to_owned()];
        let changes = Arc::new(FileChanges::of(&paths).unwrap());
        (Search::of(paths).watched_by(Arc::clone(&changes)), changes)
    }

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
        let (search, changes) = watched(folder.path());
        discover(&search);
        assert!(!changes.take(), "nothing has changed");
        for text in ["b", "c"] {
            std::fs::write(&file, text).unwrap();
            assert!(changes.take(), "{text}");
            assert!(!changes.take(), "once");
        }
        let other = skills.join("scripts");
        std::fs::create_dir(&other).unwrap();
        assert!(changes.take(), "a new folder");
        discover(&search);
        std::fs::write(other.join("run.py"), "x").unwrap();
        assert!(changes.take(), "a file in it");
        std::fs::rename(&other, skills.join("renamed")).unwrap();
        assert!(changes.take(), "another name");
        std::fs::remove_file(&file).unwrap();
        assert!(changes.take(), "a deletion");
        std::fs::read_dir(&skills).unwrap().for_each(drop);
        assert!(!changes.take(), "reading is no change");
    }

    #[test]
    fn what_is_never_read_is_not_watched() {
        let folder = tempfile::tempdir().unwrap();
        let unread = [
            ".hidden",
            "node_modules/a",
            "one/.git",
            "one/__pycache__",
            "knack-files",
            "registry",
        ];
        for path in unread.iter().chain(&["one"]) {
            std::fs::create_dir_all(folder.path().join(path)).unwrap();
        }
        std::fs::write(folder.path().join("one/SKILL.md"), "a").unwrap();
        let (search, changes) = watched(folder.path());
        let search = search.never_below([folder.path().join("registry").as_path()]).unwrap();
        discover(&search);
        for path in unread {
            std::fs::write(folder.path().join(path).join("x.yaml"), "x").unwrap();
            assert!(!changes.take(), "{path}");
        }
    }

    /// Each of the folders has all of them below itself, ten times at every depth.
    #[test]
    fn links_to_a_folder_above_are_walked_once() {
        let folder = tempfile::tempdir().unwrap();
        for name in 0..10 {
            let below = folder.path().join(name.to_string());
            std::fs::create_dir(&below).unwrap();
            std::os::unix::fs::symlink("..", below.join("up")).unwrap();
        }
        let (search, changes) = watched(folder.path());
        assert!(discover(&search).reports.is_empty());
        assert!(!changes.take());
        std::fs::write(folder.path().join("9/x.yaml"), "x").unwrap();
        assert!(changes.take());
    }

    #[test]
    fn a_named_path_is_another_one_when_something_else_is_behind_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let (link, file) = (folder.path().join("link"), folder.path().join("a.yaml"));
        for name in ["one", "two"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        std::os::unix::fs::symlink("one", &link).unwrap();
        std::fs::write(&file, "a: 1").unwrap();
        let paths = vec![link.clone(), file.clone()];
        let changes = Arc::new(FileChanges::of(&paths).unwrap());
        let search = Search::of(paths).watched_by(Arc::clone(&changes));
        let is_seen_and_read = |what: &str| {
            assert!(changes.take(), "{what}");
            discover(&search);
            assert!(!changes.take(), "{what}");
        };
        discover(&search);
        assert!(!changes.take());
        std::fs::remove_file(&link).unwrap();
        is_seen_and_read("no link");
        std::os::unix::fs::symlink("two", &link).unwrap();
        is_seen_and_read("the other folder");
        std::fs::remove_dir(folder.path().join("two")).unwrap();
        is_seen_and_read("no folder");
        std::fs::create_dir(folder.path().join("two")).unwrap();
        is_seen_and_read("a new folder");
        std::fs::write(&file, "a: 2").unwrap();
        is_seen_and_read("a file");
        std::fs::write(folder.path().join("new"), "a: 3").unwrap();
        changes.take();
        std::fs::rename(folder.path().join("new"), &file).unwrap();
        is_seen_and_read("another file");
    }
}
