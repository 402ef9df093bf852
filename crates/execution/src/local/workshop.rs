//! Where run directories are, and which uid each has.
//!
//! ```text
//! <base>/knack-sandbox-<euid>/            0711, owned by this user
//!     block-<n>.lock                      held by flock while a knack process lives
//!     block-<n>/run-<k>/                  one run; block-<n>/cache/ staged skills
//! ```
//!
//! A block is a range of uids. The kernel releases its lock with the process, however it ends, so everything below an
//! unlocked block is left over and removed; pids are never compared.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use knack_runner::protocol::Identity;
use rustix::fs::{FlockOperation, flock};

use super::identity::{BLOCKS, Identities};
use super::remove::remove_tree;
use super::sweep::sweep;
use crate::Missing;
use crate::interpreter::{CodeUser, unreachable_part};

/// Others may pass through but not list.
const DIRECTORY_MODE: u32 = 0o711;

/// The directories and uids that one knack process uses for its runs.
#[derive(Debug)]
pub(super) struct Workshop {
    block: PathBuf,
    /// The runner binary, which also sweeps.
    runner: PathBuf,
    identities: Option<Mutex<Identities>>,
    runs: AtomicU64,
    /// Held until the workshop is gone.
    _lock: File,
}

impl Workshop {
    /// Opens a block below the first base that works; removes what dead processes left. Blocks on file I/O.
    pub(super) fn open(bases: &[PathBuf], runner: &Path) -> Result<Arc<Self>, Missing> {
        let euid = rustix::process::geteuid();
        let mut reasons = Vec::new();
        for base in bases {
            match Self::open_below(base, euid.as_raw(), runner) {
                Ok(workshop) => return Ok(Arc::new(workshop)),
                Err(reason) => reasons.push(format!("{}: {reason}", base.display())),
            }
        }
        Err(Missing::new(
            format!("cannot create run directories ({})", reasons.join("; ")),
            "make /tmp or /var/tmp writable, with mode 1777",
        ))
    }

    fn open_below(base: &Path, euid: u32, runner: &Path) -> Result<Self, String> {
        let describe = |error: io::Error| error.to_string();
        if let Some(closed) = unreachable_part(base, code_user(euid)) {
            return Err(format!("{} is not accessible to other users", closed.display()));
        }
        let root = base.join(format!("knack-sandbox-{euid}"));
        make_directory(&root).map_err(describe)?;
        let metadata = root.symlink_metadata().map_err(describe)?;
        // The base is world-writable: another user may have created the name first.
        if !metadata.is_dir() || metadata.uid() != euid || metadata.mode() & 0o022 != 0 {
            return Err(format!(
                "{} is not a directory that belongs to this user and that no other user can write to",
                root.display()
            ));
        }
        fs::set_permissions(&root, Permissions::from_mode(DIRECTORY_MODE)).map_err(describe)?;
        remove_leftovers(&root);
        for number in 0..BLOCKS {
            let Some(lock) = lock_block(&root, number).map_err(describe)? else {
                continue;
            };
            let identities = match (euid, Identities::of_block(number)) {
                (0, None) => continue,
                (0, Some(identities)) => Some(Mutex::new(identities)),
                _ => None,
            };
            let block = root.join(format!("block-{number}"));
            make_directory(&block).map_err(describe)?;
            return Ok(Self {
                block,
                runner: runner.to_path_buf(),
                identities,
                runs: AtomicU64::new(0),
                _lock: lock,
            });
        }
        Err("every uid of the sandbox's range is in use or not mapped here".to_owned())
    }

    /// The user that runs the code.
    pub(super) fn code_user(&self) -> CodeUser {
        if self.identities.is_some() {
            CodeUser::Stranger
        } else {
            CodeUser::SameUser
        }
    }

    /// A directory for things that outlive a run.
    pub(super) fn directory(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.block.join(name);
        make_directory(&path)?;
        Ok(path)
    }

    /// A directory for the search path of programs that has `python` as another name of an interpreter: distributions have
    /// only `python3`. A link needs no right of a run, but to what it leads to.
    pub(super) fn python_name(&self, interpreter: &Path) -> io::Result<PathBuf> {
        let directory = self.directory("bin")?;
        let name = directory.join("python");
        // A block that could not be removed may have one.
        let _ = fs::remove_file(&name);
        symlink(interpreter, &name)?;
        Ok(directory)
    }

    /// Makes an empty run directory with its own uid. `None`: every uid is in use.
    ///
    /// `modules` is linked in it as `node_modules`: above the working directory and above the skills, which is where node
    /// looks for packages, of `require` and of `import`. The run can read the link and not change it.
    pub(super) fn run_directory(self: &Arc<Self>, modules: Option<&Path>) -> io::Result<Option<RunDirectory>> {
        let identity = match &self.identities {
            None => None,
            Some(identities) => match identities.lock().unwrap_or_else(PoisonError::into_inner).take() {
                None => return Ok(None),
                taken => taken,
            },
        };
        let number = self.runs.fetch_add(1, Ordering::Relaxed);
        let path = self.block.join(format!("run-{number}"));
        // The guard exists before the directory: a failure gives the uid back.
        let directory = RunDirectory {
            workshop: Arc::clone(self),
            path,
            identity,
            sweep: false,
            is_removed: false,
        };
        make_directory(&directory.path)?;
        if let Some(modules) = modules {
            symlink(modules, directory.path.join("node_modules"))?;
        }
        Ok(Some(directory))
    }
}

impl Drop for Workshop {
    fn drop(&mut self) {
        remove_tree(&self.block);
    }
}

/// One run's directory and uid. Dropping it removes everything, which blocks: drop it on a blocking thread.
#[derive(Debug)]
pub(super) struct RunDirectory {
    workshop: Arc<Workshop>,
    /// Absolute path.
    pub(super) path: PathBuf,
    /// The uid to drop to.
    pub(super) identity: Option<Identity>,
    /// Whether processes of the uid may be left, because the runner ended before it could kill them.
    pub(super) sweep: bool,
    is_removed: bool,
}

impl RunDirectory {
    /// Removes everything now. Returns whether no process of the run is left.
    pub(super) fn remove(mut self) -> bool {
        self.end()
    }

    fn end(&mut self) -> bool {
        self.is_removed = true;
        let clean = !self.sweep || sweep(&self.workshop.runner, self.identity, &self.path);
        if !clean {
            tracing::error!(directory = %self.path.display(), "processes of a run could not be ended");
        }
        remove_tree(&self.path);
        // A uid that still has a process is never used again by this knack.
        if let (Some(identity), Some(identities), true) = (self.identity, &self.workshop.identities, clean) {
            identities
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .give_back(identity);
        }
        clean
    }
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        if !self.is_removed {
            self.end();
        }
    }
}

const fn code_user(euid: u32) -> CodeUser {
    if euid == 0 {
        CodeUser::Stranger
    } else {
        CodeUser::SameUser
    }
}

fn make_directory(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(DIRECTORY_MODE).create(path) {
        Ok(()) => fs::set_permissions(path, Permissions::from_mode(DIRECTORY_MODE)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

fn lock_block(root: &Path, number: u32) -> io::Result<Option<File>> {
    let path = root.join(format!("block-{number}.lock"));
    let file = File::options()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(path)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Removes the blocks that no living process holds.
fn remove_leftovers(root: &Path) {
    for number in 0..BLOCKS {
        let block = root.join(format!("block-{number}"));
        if block.exists()
            && let Ok(Some(_lock)) = lock_block(root, number)
        {
            remove_tree(&block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        dir
    }

    /// Nothing is left behind in these tests.
    fn no_runner() -> &'static Path {
        Path::new("/nonexistent")
    }

    #[test]
    fn two_processes_have_different_blocks_and_leftovers_are_removed() {
        let base = base();
        let bases = [base.path().to_path_buf()];
        let first = Workshop::open(&bases, no_runner()).unwrap();
        let second = Workshop::open(&bases, no_runner()).unwrap();
        assert_ne!(first.block, second.block);
        let left = first.run_directory(None).unwrap().unwrap();
        let block = first.block.clone();
        drop(second);
        // As after a crash: the lock is gone, the files are not.
        drop(left);
        drop(first);
        fs::create_dir_all(block.join("run-7/work")).unwrap();
        let third = Workshop::open(&bases, no_runner()).unwrap();
        assert!(!third.block.join("run-7").exists());
        drop(third);
        assert!(!block.exists());
    }

    #[test]
    fn a_directory_of_another_user_is_not_used() {
        let base = base();
        let euid = rustix::process::geteuid().as_raw();
        let root = base.path().join(format!("knack-sandbox-{euid}"));
        fs::create_dir(&root).unwrap();
        fs::set_permissions(&root, Permissions::from_mode(0o777)).unwrap();
        let missing = Workshop::open(&[base.path().to_path_buf()], no_runner()).unwrap_err();
        assert!(
            missing
                .to_string()
                .contains("not a directory that belongs to this user"),
            "{missing}"
        );
    }

    #[test]
    fn a_run_directory_is_removed_with_all_that_code_did_to_it() {
        let base = base();
        let workshop = Workshop::open(&[base.path().to_path_buf()], no_runner()).unwrap();
        let run = workshop.run_directory(None).unwrap().unwrap();
        let path = run.path.clone();
        fs::create_dir_all(path.join("work/a/b")).unwrap();
        std::os::unix::fs::symlink("/etc", path.join("work/a/link")).unwrap();
        fs::set_permissions(path.join("work/a"), Permissions::from_mode(0o000)).unwrap();
        drop(run);
        assert!(!path.exists());
        assert!(Path::new("/etc/passwd").exists());
    }
}
