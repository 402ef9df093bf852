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

/// Median and spread (half the distance between the quartiles, over the median) of a sample.
pub(crate) fn median_and_spread(mut values: Vec<f64>) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    let at = |share: f64| values[((values.len() - 1) as f64 * share).round() as usize];
    let median = at(0.5);
    (
        median,
        if median == 0.0 {
            0.0
        } else {
            (at(0.75) - at(0.25)) / 2.0 / median.abs()
        },
    )
}

/// Median of durations.
pub(crate) fn median(mut values: Vec<Duration>) -> Duration {
    values.sort();
    values[values.len() / 2]
}
