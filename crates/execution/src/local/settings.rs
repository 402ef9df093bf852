//! Settings of the local executor, and where its runner binary is.

use std::path::{Path, PathBuf};
use std::time::Duration;

use knack_vocabulary::defaults;

use crate::environments::Environments;
use crate::interpreter::{CodeUser, Search};
use crate::queue::QueueSettings;
use crate::records::RecordSettings;
use crate::{LockReport, Missing};

/// Settings of a [`super::LocalExecutor`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalSettings {
    /// The runner binary; see [`find_runner`].
    pub runner: PathBuf,
    /// Where run directories may be, in order of preference. Each must be one that any user can enter.
    pub bases: Vec<PathBuf>,
    /// Where interpreters are searched for; `None`: as [`Search::of_host`].
    pub search: Option<Search>,
    /// Bounds of the queue.
    pub queue: QueueSettings,
    /// Bounds of the records.
    pub records: RecordSettings,
    /// Sandboxes started ahead per interpreter in use; 0 turns the warm path off.
    pub warm: usize,
    /// How long a sandbox started ahead may stay unused (`warmPool.maxIdleSeconds`).
    pub max_idle: Duration,
    /// Resident memory of one run, all processes together, bytes.
    pub memory_bytes: u64,
    /// Processes and threads of one run at once.
    pub max_processes: u32,
    /// Entries that one run may make in its working directory.
    pub max_work_files: u64,
    /// Bytes that one run may keep in its working directory.
    pub max_work_bytes: u64,
    /// Longest time limit that a request may ask for.
    pub max_timeout: Duration,
    /// The assumption about the kernel's locks.
    pub kernel: KernelView,
    /// Packages of skills; whoever builds them keeps a clone.
    pub environments: Environments,
}

/// The assumption about the kernel's locks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum KernelView {
    /// The locks that the first sandbox reports.
    #[default]
    Observed,
    /// Replaces the report of locks; for tests of machines without one.
    Pretend(LockReport),
}

impl LocalSettings {
    /// The defaults around a runner binary.
    #[must_use]
    pub fn new(runner: PathBuf) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            runner,
            bases: vec![PathBuf::from("/tmp"), PathBuf::from("/var/tmp")],
            search: None,
            queue: QueueSettings::for_concurrency(cores),
            records: RecordSettings::default(),
            warm: defaults::WARM_REPLICAS,
            max_idle: Duration::from_secs(defaults::WARM_MAX_IDLE_SECONDS),
            // Enough for an image or a large table in CPython; two at once fit a small laptop.
            memory_bytes: 512 << 20,
            // Node alone starts about a dozen threads; pools of a few dozen workers fit.
            max_processes: 128,
            // 50 times the result file cap: scratch files, unpacked archives.
            max_work_files: 10_000,
            // Input cap plus results plus scratch of the same order.
            max_work_bytes: 256 << 20,
            // As much as `maxTimeoutSeconds` of a SkillRuntime may be, which holds for models' calls.
            max_timeout: Duration::from_hours(1),
            kernel: KernelView::Observed,
            environments: Environments::default(),
        }
    }

    /// The search in use for `code_user`.
    pub(super) fn search(&self, code_user: CodeUser) -> Search {
        match &self.search {
            Some(search) => Search {
                code_user,
                ..search.clone()
            },
            None => Search::of_host(code_user),
        }
    }
}

/// Environment variable that names the runner binary.
const RUNNER_VARIABLE: &str = "KNACK_RUNNER";

/// File name of the runner binary.
const RUNNER_NAME: &str = "knack-runner";

/// Finds the runner: the file named by `KNACK_RUNNER`, else `knack-runner` beside this executable, or in the directory
/// above (test executables are in `deps/`).
pub fn find_runner() -> Result<PathBuf, Missing> {
    let named = std::env::var_os(RUNNER_VARIABLE).map(PathBuf::from);
    let executable = std::env::current_exe().ok();
    find_runner_near(named.as_deref(), executable.as_deref())
}

fn find_runner_near(named: Option<&Path>, executable: Option<&Path>) -> Result<PathBuf, Missing> {
    if let Some(named) = named {
        return match named.canonicalize() {
            Ok(path) if path.is_file() => Ok(path),
            _ => Err(Missing::new(
                format!("{RUNNER_VARIABLE} names {}, which is not a file", named.display()),
                format!("unset {RUNNER_VARIABLE}, or build the runner with: make build"),
            )),
        };
    }
    executable
        .into_iter()
        .flat_map(|path| path.ancestors().skip(1).take(2))
        .map(|directory| directory.join(RUNNER_NAME))
        .find(|path| path.is_file())
        .ok_or_else(|| {
            Missing::new(
                "the sandbox runner knack-runner was not found next to this program",
                format!("build both with: make build, or name its file in {RUNNER_VARIABLE}"),
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runner_is_named_or_near_the_executable() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let executable = root.join("deps/knack-0123");
        let missing = find_runner_near(None, Some(&executable)).unwrap_err();
        assert!(missing.to_string().contains("make build"), "{missing}");
        let runner = root.join(RUNNER_NAME);
        std::fs::write(&runner, "").unwrap();
        assert_eq!(find_runner_near(None, Some(&executable)), Ok(runner.clone()));
        assert_eq!(find_runner_near(None, Some(&root.join("knack"))), Ok(runner.clone()));
        assert_eq!(find_runner_near(Some(&runner), None), Ok(runner.clone()));
        let wrong = find_runner_near(Some(&root.join("none")), Some(&executable)).unwrap_err();
        assert!(wrong.to_string().contains(RUNNER_VARIABLE), "{wrong}");
    }
}
