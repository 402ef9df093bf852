//! Watching what no cgroup watches: memory, processes, files.
//!
//! Memory and processes are measured at each check. Files remain, so a run that ends between two checks is counted at
//! its end.

use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use crate::files::{RunFolders, count};
use crate::process::{holds_more_deleted, sample};
use crate::protocol::{Exit, Watch};

/// The shortest time between two checks.
const INTERVAL: Duration = Duration::from_millis(25);
/// A check may cost a tenth of the time at most: the next one waits ten times as long as this one took. The CPU time of
/// the runner counts: waiting for a turn on a busy machine costs the run nothing.
const COST_FACTOR: u32 = 10;

/// When to check next.
#[derive(Debug)]
pub(super) struct Watcher {
    limits: Watch,
    next_sample: Option<Instant>,
    next_count: Option<Instant>,
}

impl Watcher {
    pub(super) fn start(limits: Watch, now: Instant) -> Self {
        let samples = limits.memory_bytes.is_some() || limits.processes.is_some();
        let counts = limits.work_files.is_some() || limits.work_bytes.is_some();
        Self {
            limits,
            next_sample: samples.then_some(now + INTERVAL),
            next_count: counts.then_some(now + INTERVAL),
        }
    }

    /// The time of the next check.
    pub(super) fn due(&self) -> Option<Instant> {
        [self.next_sample, self.next_count].into_iter().flatten().min()
    }

    /// Checks if it is time; returns the limit that is passed. A check does not go on beyond `until`.
    pub(super) fn check(&mut self, folders: &RunFolders, now: Instant, until: Instant) -> Option<Exit> {
        let mut early_end = None;
        if self.next_sample.is_some_and(|due| due <= now) {
            let (seen, cost) = timed(sample);
            self.next_sample = Some(after(cost));
            if self.limits.memory_bytes.is_some_and(|limit| seen.memory_bytes > limit) {
                early_end = Some(Exit::OutOfMemory);
            } else if self.limits.processes.is_some_and(|limit| seen.threads > limit) {
                early_end = Some(Exit::ProcessLimit);
            }
        }
        if early_end.is_none() && self.next_count.is_some_and(|due| due <= now) {
            let (is_over, cost) = timed(|| self.has_too_many_files(folders, until));
            self.next_count = Some(after(cost));
            early_end = is_over.then_some(Exit::FileLimit);
        }
        early_end
    }

    /// Counts the work directory now, at the end of a run that ended by itself.
    pub(super) fn has_too_many_files(&self, folders: &RunFolders, until: Instant) -> bool {
        if self.next_count.is_none() {
            return false;
        }
        let (files, bytes) = (
            self.limits.work_files.unwrap_or(u64::MAX),
            self.limits.work_bytes.unwrap_or(u64::MAX),
        );
        let seen = count(folders, files, bytes);
        // Deleted ones have no name to be found by. Only bytes are counted of them.
        seen.is_over(files, bytes)
            || self
                .limits
                .work_bytes
                .is_some_and(|bytes| holds_more_deleted(folders.work.as_fd(), bytes.saturating_sub(seen.bytes), until))
    }
}

/// The next check after one that took this long.
fn after(cost: Duration) -> Instant {
    Instant::now() + INTERVAL.max(cost * COST_FACTOR)
}

/// Calls `check`. Returns its value and the CPU time that it took.
fn timed<T>(check: impl FnOnce() -> T) -> (T, Duration) {
    let began = cpu_time();
    let seen = check();
    (seen, cpu_time().saturating_sub(began))
}

/// The CPU time of the runner, which has one thread.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}
