//! The tree of the run: every process that descends from the runner.
//!
//! The runner is PID 1 or a subreaper, so whatever detaches is still its descendant.

/// What the tree holds at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    /// Anonymous and shared memory of all processes; pages of files are not counted.
    pub(crate) memory_bytes: u64,
    /// Threads of all processes.
    pub(crate) threads: u64,
}

/// Adds up the tree. Processes that end meanwhile count as nothing.
pub(crate) fn sample() -> Sample {
    let mut total = Sample::default();
    for pid in descendants() {
        let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) else {
            continue;
        };
        for line in status.lines() {
            let mut words = line.split_ascii_whitespace();
            let (Some(name), Some(value)) = (words.next(), words.next()) else {
                continue;
            };
            let Ok(value) = value.parse::<u64>() else {
                continue;
            };
            match name {
                "RssAnon:" | "RssShmem:" => total.memory_bytes += value * 1024,
                "Threads:" => total.threads += value,
                _ => {}
            }
        }
    }
    total
}

/// The living and dead children of the runner. Nobody but the runner reaps them, so each of these pids stays what it is.
pub(super) fn children() -> Vec<u32> {
    children_of(std::process::id())
}

/// Every descendant of the runner, parents before children.
fn descendants() -> Vec<u32> {
    let mut found = children();
    let mut next = 0;
    while let Some(pid) = found.get(next).copied() {
        found.extend(children_of(pid));
        next += 1;
    }
    found
}

/// The children of one process, of all its threads. Empty where the kernel does not tell.
fn children_of(pid: u32) -> Vec<u32> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let mut children = Vec::new();
    for thread in threads.flatten() {
        if let Ok(line) = std::fs::read_to_string(thread.path().join("children")) {
            children.extend(
                line.split_ascii_whitespace()
                    .filter_map(|word| word.parse::<u32>().ok()),
            );
        }
    }
    children
}
