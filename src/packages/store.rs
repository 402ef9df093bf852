//! Where environments are kept.
//!
//! ```text
//! <root>/                       0711: others pass through, and list nothing
//!     env-<key>/                an environment, read-only
//!     env-<key>.use             its mtime: last use; locked (shared) by who may run something in it
//!     env-<key>.build           locked by its only builder
//!     new-<key>/                a build; without a lock it is left over
//!     work-<random>/            where versions are chosen, locked (shared) meanwhile; without a lock it is left over
//!     locks/<hash>.lock         versions chosen for a declaration; its mtime: last use, or at most an hour before
//! ```

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use knack_execution::environments::Environment;
use knack_execution::interpreter::{CodeUser, unreachable_part};
use knack_packages::State;
use knack_packages::key::Key;
use rustix::fs::{Access, FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::build_error::BuildError;
use super::layout;

/// Names the folder.
const STORE_VARIABLE: &str = "KNACK_PACKAGES_DIR";

/// Digits of a key in names of files: 128 bits distinguish environments, and first lines of scripts stay short.
const KEY_DIGITS: usize = 32;

/// How often a builder that waits for another one checks.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A folder in which versions are chosen is locked by then, right after it was made.
const WORK_LOCKED_WITHIN: Duration = Duration::from_mins(1);

/// The time of the last use of chosen versions is written this often: pruning speaks of days, and reading need not write each time.
const CHOSEN_STEP: Duration = Duration::from_hours(1);

/// The description of an environment.
const ABOUT: &str = "environment.json";

/// The beginning of the names of folders in which versions are chosen.
pub(super) const WORK_PREFIX: &str = "work-";

/// Where an environment has its packages of Node.
const NODE_MODULES: &str = "node_modules";

/// The folder of environments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Store {
    root: PathBuf,
}

/// The description of an environment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvironmentInfo {
    /// The environment's key.
    pub key: String,
    /// Version of Python.
    pub python: String,
    /// Bytes of its files.
    pub bytes: u64,
    /// The number of its files.
    pub files: u64,
    /// Names and versions of its Python packages.
    pub packages: Vec<(String, String)>,
    /// Names and versions of its packages of Node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node: Vec<(String, String)>,
}

/// The outcome of [`Store::prune`] for an environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pruned {
    /// First digits of its key.
    pub key: String,
    /// Bytes that are free now; `None`: a running knack uses it, so it stays.
    pub freed: Option<u64>,
}

/// The folder that is used unless `KNACK_PACKAGES_DIR` names one: below the user's cache directory; for root, whose home
/// the sandbox's users cannot enter, below `/var/cache`.
pub fn default_store() -> Result<PathBuf, BuildError> {
    let absolute = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    if let Some(named) = std::env::var_os(STORE_VARIABLE).filter(|named| !named.is_empty()) {
        let named = PathBuf::from(named);
        if named.is_absolute() {
            return Ok(named);
        }
        // Another folder than the one that was meant might be pruned.
        let text = format!("{STORE_VARIABLE}: {} is not an absolute path", named.display());
        return Err(BuildError::new(State::PackagesOff, text));
    }
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/cache/knack/packages"));
    }
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    let cache = cache.ok_or_else(|| {
        let text = format!("no folder for packages: neither HOME nor {STORE_VARIABLE} is an absolute path");
        BuildError::new(State::PackagesOff, text)
    })?;
    Ok(cache.join("knack/packages"))
}

/// The default folder, if packages can be kept there. Nothing is made. Blocks.
pub fn usable_store() -> Result<PathBuf, BuildError> {
    let root = default_store()?;
    // If a folder is not there yet, the nearest one that is decides.
    let Some((nearest, metadata)) = root
        .ancestors()
        .find_map(|folder| Some((folder, folder.metadata().ok()?)))
    else {
        return Ok(root);
    };
    if nearest == root && !is_own(&metadata) {
        return Err(off(&root, NOT_OWN));
    }
    let why = if !metadata.is_dir() {
        "is not a folder"
    } else if rustix::fs::access(nearest, Access::WRITE_OK | Access::EXEC_OK).is_err() {
        "cannot be written"
    } else {
        return Ok(root);
    };
    Err(off(&root, &format!("{} {why}", nearest.display())))
}

/// Why a folder may not hold packages.
const NOT_OWN: &str = "it is not a folder that only this user can write to";

fn is_own(metadata: &fs::Metadata) -> bool {
    metadata.uid() == rustix::process::geteuid().as_raw() && metadata.mode() & 0o022 == 0
}

fn off(root: &Path, why: &str) -> BuildError {
    let text = format!("{}: {why}; name another folder by {STORE_VARIABLE}", root.display());
    BuildError::new(State::PackagesOff, text)
}

impl Store {
    /// Opens the folder, and makes it if need be. Blocks.
    pub fn open(root: &Path, reach: CodeUser) -> Result<Self, BuildError> {
        let off = |why: String| off(root, &why);
        let made = DirBuilder::new().recursive(true).mode(0o755).create(root);
        made.map_err(|error| off(error.to_string()))?;
        let root = root.canonicalize().map_err(|error| off(error.to_string()))?;
        let metadata = root.metadata().map_err(|error| off(error.to_string()))?;
        if !is_own(&metadata) {
            return Err(off(NOT_OWN.to_owned()));
        }
        fs::set_permissions(&root, Permissions::from_mode(0o711)).map_err(|error| off(error.to_string()))?;
        if let Some(closed) = root
            .parent()
            .and_then(|parent| unreachable_part(parent, reach))
            .filter(|closed| !is_passable(closed))
        {
            return Err(off(format!(
                "{} is not accessible to the sandbox user",
                closed.display()
            )));
        }
        Ok(Self { root })
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder of a key's environment, which need not exist yet.
    pub(super) fn home(&self, key: &Key) -> PathBuf {
        self.root.join(name(key))
    }

    fn beside(&self, key: &Key, end: &str) -> PathBuf {
        self.root.join(format!("{}.{end}", name(key)))
    }

    /// The environment of a key, if it is there; it stays as long as the value. Blocks.
    pub(super) fn take(&self, key: &Key) -> io::Result<Option<(Environment, EnvironmentInfo)>> {
        let in_use = lock_file(&self.beside(key, "use"))?;
        // A remover holds the lock for a moment only.
        flock(&in_use, FlockOperation::LockShared)?;
        let root = self.home(key);
        let about = match fs::read(root.join(ABOUT)) {
            Ok(about) => about,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let Some(kept) = serde_json::from_slice::<EnvironmentInfo>(&about)
            .ok()
            .filter(|kept| kept.key == key.as_str())
        else {
            return Ok(None);
        };
        in_use.set_modified(SystemTime::now())?;
        let bin = root.join("bin");
        let modules = root.join(NODE_MODULES);
        let environment = Environment {
            key: key.as_str().to_owned(),
            python: bin.join("python3"),
            bin,
            node_modules: (!kept.node.is_empty()).then_some(modules),
            root,
            in_use,
        };
        Ok(Some((environment, kept)))
    }

    /// Becomes the only builder of a key. Waits for another one at most for a time.
    pub(super) async fn build_alone(&self, key: &Key, at_most: Duration) -> Result<File, BuildError> {
        let file = lock_file(&self.beside(key, "build")).map_err(|error| BuildError::of_disk("the store", &error))?;
        let until = tokio::time::Instant::now() + at_most;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(file),
                Err(rustix::io::Errno::WOULDBLOCK) if tokio::time::Instant::now() < until => {
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    let text = format!("another knack has been building it for {} s", at_most.as_secs());
                    return Err(BuildError::new(State::TimedOut, text));
                }
                Err(error) => return Err(BuildError::of_disk("the store", &error.into())),
            }
        }
    }

    /// An empty folder to build in; what an earlier builder left is removed. Only for who builds alone. Blocks.
    pub(super) fn stage(&self, key: &Key) -> io::Result<PathBuf> {
        let path = self.root.join(format!("new-{}", &key.as_str()[..KEY_DIGITS]));
        layout::remove(&path)?;
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(path)
    }

    /// Renames a finished environment to its final path, whole or not at all. Blocks.
    pub(super) fn publish(&self, key: &Key, prefix: &Path, kept: &EnvironmentInfo) -> io::Result<()> {
        let home = self.home(key);
        fs::write(prefix.join(ABOUT), serde_json::to_vec(kept)?)?;
        layout::make_read_only(prefix)?;
        // An environment there has no valid description, or it would have been taken.
        layout::remove(&home)?;
        fs::rename(prefix, &home)?;
        fs::set_permissions(&home, Permissions::from_mode(0o555))
    }

    /// Versions that were chosen before, which are used now.
    pub(super) fn chosen(&self, hash: &str) -> Option<Vec<u8>> {
        let path = self.lock_path(hash);
        let text = fs::read(&path).ok()?;
        let now = SystemTime::now();
        let used = path.metadata().and_then(|metadata| metadata.modified());
        if used.is_ok_and(|used| now.duration_since(used).is_ok_and(|age| age >= CHOSEN_STEP)) {
            // A file that cannot be written is read all the same: then it is pruned as if it were not used.
            let _ = File::options()
                .write(true)
                .open(&path)
                .and_then(|file| file.set_modified(now));
        }
        Some(text)
    }

    /// Keeps versions that were chosen.
    pub(super) fn keep_chosen(&self, hash: &str, text: &str) -> io::Result<()> {
        let path = self.lock_path(hash);
        let folder = path.parent().unwrap_or(&self.root);
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let new = tempfile::NamedTempFile::new_in(folder)?;
        fs::write(new.path(), text)?;
        new.persist(&path).map(|_| ()).map_err(|error| error.error)
    }

    fn lock_path(&self, hash: &str) -> PathBuf {
        self.root.join("locks").join(format!("{hash}.lock"))
    }

    /// Removes environments that were not used for a time, and versions chosen before that. Blocks.
    pub fn prune(&self, unused: Duration) -> io::Result<Vec<Pruned>> {
        let now = SystemTime::now();
        let is_old = |path: &Path| {
            let used = path.metadata().and_then(|metadata| metadata.modified());
            used.is_ok_and(|used| now.duration_since(used).unwrap_or_default() >= unused)
        };
        let mut pruned = Vec::new();
        for entry in fs::read_dir(&self.root)?.filter_map(Result::ok) {
            let name = entry.file_name().to_string_lossy().into_owned();
            if let Some(key) = name.strip_prefix("new-") {
                self.remove_left_over(key, &entry.path())?;
            }
            if name.starts_with(WORK_PREFIX) {
                remove_work(&entry.path())?;
            }
            let Some(key) = name.strip_prefix("env-").filter(|key| !key.contains('.')) else {
                continue;
            };
            let beside = self.root.join(format!("{name}.use"));
            if beside.exists() && !is_old(&beside) {
                continue;
            }
            let in_use = lock_file(&beside)?;
            let freed = if flock(&in_use, FlockOperation::NonBlockingLockExclusive).is_ok() {
                let bytes = layout::measure(&entry.path()).bytes;
                layout::remove(&entry.path())?;
                fs::remove_file(&beside)?;
                Some(bytes)
            } else {
                None
            };
            pruned.push(Pruned {
                key: key.chars().take(12).collect(),
                freed,
            });
        }
        if let Ok(locks) = fs::read_dir(self.root.join("locks")) {
            for entry in locks.filter_map(Result::ok).filter(|entry| is_old(&entry.path())) {
                fs::remove_file(entry.path())?;
            }
        }
        pruned.sort_by(|one, other| one.key.cmp(&other.key));
        Ok(pruned)
    }

    /// Removes the leftovers of a builder that was ended.
    fn remove_left_over(&self, key: &str, path: &Path) -> io::Result<()> {
        let builder = lock_file(&self.root.join(format!("env-{key}.build")))?;
        match flock(&builder, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => layout::remove(path),
            // It is being built.
            Err(_) => Ok(()),
        }
    }
}

/// Removes a folder in which nobody chooses versions any more. One that is not locked yet is kept by its age.
fn remove_work(path: &Path) -> io::Result<()> {
    // It may have gone with who made it.
    let Ok(folder) = File::open(path) else {
        return Ok(());
    };
    let age = folder
        .metadata()?
        .modified()
        .map(|made| made.elapsed().unwrap_or_default());
    if age? >= WORK_LOCKED_WITHIN && flock(&folder, FlockOperation::NonBlockingLockExclusive).is_ok() {
        layout::remove(path)?;
    }
    Ok(())
}

fn name(key: &Key) -> String {
    format!("env-{}", &key.as_str()[..KEY_DIGITS])
}

/// A directory that others may pass through need not be listable.
fn is_passable(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|metadata| metadata.is_dir() && metadata.mode() & 0o001 != 0)
}

fn lock_file(path: &Path) -> io::Result<File> {
    File::options()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packages::work_folder::WorkFolder;

    #[test]
    fn what_is_in_use_is_not_pruned() {
        const DAY: Duration = Duration::from_hours(24);
        let folder = tempfile::tempdir().unwrap();
        let store = Store {
            root: folder.path().to_owned(),
        };
        let age = |hash: &str, age: Duration| {
            let file = File::options().write(true).open(store.lock_path(hash)).unwrap();
            file.set_modified(SystemTime::now() - age).unwrap();
        };
        let left = folder.path().join("work-left");
        let in_use = WorkFolder::below(&store).unwrap();
        fs::create_dir(&left).unwrap();
        for path in [left.as_path(), in_use.path()] {
            File::open(path).unwrap().set_modified(SystemTime::now() - DAY).unwrap();
        }
        for hash in ["used", "unused", "lately"] {
            store.keep_chosen(hash, hash).unwrap();
        }
        age("used", 40 * DAY);
        age("unused", 40 * DAY);
        age("lately", CHOSEN_STEP / 2);
        let modified = |hash: &str| store.lock_path(hash).metadata().unwrap().modified().unwrap();
        let before = modified("lately");
        for hash in ["used", "lately"] {
            assert_eq!(store.chosen(hash).as_deref(), Some(hash.as_bytes()));
        }
        assert_eq!(modified("lately"), before, "not written at each use");
        store.prune(30 * DAY).unwrap();
        assert_eq!(store.chosen("used").as_deref(), Some(b"used".as_slice()));
        assert_eq!(store.chosen("unused"), None);
        assert_eq!(store.chosen("never"), None);
        assert_eq!((left.exists(), in_use.path().exists()), (false, true));
    }
}
