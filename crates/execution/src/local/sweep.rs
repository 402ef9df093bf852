//! Ending what a killed runner left behind.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use knack_runner::protocol::Identity;
use rustix::process::{Pid, Signal, kill_process};

/// Where a run may signal its own uid (kernels without Landlock's scope), it can kill the process that sweeps; the next
/// one needs two syscalls to be faster.
const ATTEMPTS: usize = 5;

/// How long the search for processes of a run without its own uid continues.
const SEARCH_BOUND: Duration = Duration::from_secs(5);

/// Ends every process of the run whose directory this is. Blocks for some milliseconds. Returns whether none is left.
///
/// With an own uid this is certain. Without one (this process is not root) the processes are known by the environment they were
/// started with only, which a hostile program can overwrite: its main process still ends with the runner, but what
/// detached before may stay.
pub(super) fn sweep(runner: &Path, identity: Option<Identity>, directory: &Path) -> bool {
    match identity {
        Some(identity) => end_uid(runner, identity.uid),
        None => end_marked(directory),
    }
}

/// The runner binary does it: it can take the uid without taking it from this process, which has threads.
fn end_uid(runner: &Path, uid: u32) -> bool {
    for _ in 0..ATTEMPTS {
        let mut command = Command::new(runner);
        command
            .arg("--end-uid")
            .arg(uid.to_string())
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        match command.status() {
            Ok(status) if status.success() => return true,
            // A signal: another process killed it.
            Ok(status) if status.code().is_none() => {}
            Ok(_) => return false,
            Err(error) => {
                tracing::warn!(%error, uid, "processes of a killed runner could not be ended");
                return false;
            }
        }
    }
    false
}

/// Further reads of processes whose environment was empty: some programs of this machine have none.
const DOUBTFUL_CHECKS_MAX: u32 = 5;
/// Time between such checks; an execve takes less than a millisecond of CPU.
const DOUBT: Duration = Duration::from_millis(2);

/// Kills every process with this run's work directory in its environment.
#[expect(
    clippy::disallowed_methods,
    reason = "a blocking search, called off the async runtime"
)]
fn end_marked(directory: &Path) -> bool {
    let mark = format!("KNACK_WORK_DIR={}", directory.join("work").display()).into_bytes();
    let until = Instant::now() + SEARCH_BOUND;
    let mut doubts = 0;
    while Instant::now() < until {
        let (mut found, mut doubtful) = (false, false);
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw) else {
                continue;
            };
            let environment = fs::read(entry.path().join("environ"));
            // In the middle of an execve the environment reads empty. A zombie and a kernel thread have none either,
            // but no program.
            doubtful |=
                environment.as_ref().is_ok_and(Vec::is_empty) && fs::read_link(entry.path().join("exe")).is_ok();
            let environment = environment.unwrap_or_default();
            if environment.split(|byte| *byte == 0).any(|variable| variable == mark) {
                found = true;
                // It may be gone by now, which is what is wanted.
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        if doubtful && !found && doubts < DOUBTFUL_CHECKS_MAX {
            doubts += 1;
            std::thread::sleep(DOUBT);
        } else if !found {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_without_an_own_uid_is_known_by_its_environment() {
        let directory = tempfile::tempdir().unwrap();
        let start = |path: &Path| {
            let mut command = Command::new("sleep");
            command.arg("60").env("KNACK_WORK_DIR", path.join("work"));
            command.spawn().unwrap()
        };
        let mut left = start(directory.path());
        let mut stranger = start(Path::new("/elsewhere"));
        assert!(end_marked(directory.path()));
        assert!(!left.wait().unwrap().success());
        assert!(stranger.try_wait().unwrap().is_none());
        stranger.kill().unwrap();
        stranger.wait().unwrap();
    }
}
