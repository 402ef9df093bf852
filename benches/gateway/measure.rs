//! Reading the kernel's counters, and medians.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

/// CPU time in nanoseconds that each living thread of a process has used so far, by the thread's id.
pub(crate) fn cpu_times(pid: u32) -> BTreeMap<OsString, u64> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the process lives");
    tasks
        .filter_map(Result::ok)
        .filter_map(|task| Some((task.file_name(), first_number(&task.path().join("schedstat"))?)))
        .collect()
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
