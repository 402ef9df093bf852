//! Reading the kernel's counters, and medians.

use std::path::Path;
use std::time::Duration;

/// CPU time that a process has used so far, all threads, living and ended.
pub(crate) fn cpu_time(pid: u32) -> Duration {
    // `schedstat` counts nanoseconds per living thread; the servers here start theirs once and keep them.
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the process lives");
    let total: u64 = tasks
        .filter_map(Result::ok)
        .filter_map(|task| first_number(&task.path().join("schedstat")))
        .sum();
    Duration::from_nanos(total)
}

fn first_number(path: &Path) -> Option<u64> {
    std::fs::read_to_string(path)
        .ok()?
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}

/// Anonymous resident memory of a process, bytes.
pub(crate) fn anonymous_memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process lives");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"))
        .expect("Linux reports RssAnon");
    line.trim()
        .trim_end_matches("kB")
        .trim()
        .parse::<u64>()
        .expect("a number of kB")
        * 1024
}

/// Median of durations.
pub(crate) fn median(mut values: Vec<Duration>) -> Duration {
    values.sort();
    values[values.len() / 2]
}
