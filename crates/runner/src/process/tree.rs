//! The tree of the run: every process that descends from the runner.
//!
//! The runner is PID 1 or a subreaper, so a process that detaches is still its descendant.

use std::os::fd::BorrowedFd;

use crate::files::blocks;

/// A snapshot of the process tree.
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

/// Bytes of files that have no name any more and that processes of the run still hold, on the file system of `place`.
///
/// Open ones count with their size on disk. The kernel reports no size of a file that is only mapped: it counts up to
/// the end of its mapping. A file that cannot be inspected, such as a descriptor in transit through a socket pair, is
/// not counted.
pub(crate) fn deleted_bytes(place: BorrowedFd<'_>, enough: u64) -> u64 {
    let Ok(here) = rustix::fs::fstat(place) else { return 0 };
    let mut held = std::collections::HashMap::new();
    for pid in descendants() {
        let mut count = |inode: u64, bytes: u64| {
            let most = held.entry(inode).or_insert(0_u64);
            *most = bytes.max(*most);
        };
        for entry in std::fs::read_dir(format!("/proc/{pid}/fd"))
            .into_iter()
            .flatten()
            .flatten()
        {
            if let Ok(stat) = rustix::fs::stat(entry.path())
                && stat.st_nlink == 0
                && stat.st_dev == here.st_dev
            {
                count(stat.st_ino, blocks(&stat));
            }
        }
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        for (inode, end) in maps.lines().filter_map(|line| deleted_mapping(line, here.st_dev)) {
            count(inode, end);
        }
        if held.values().sum::<u64>() > enough {
            break;
        }
    }
    held.values().sum()
}

/// Inode and end within the file of a mapping of a deleted file: `from-to mode offset major:minor inode path (deleted)`.
fn deleted_mapping(line: &str, device: u64) -> Option<(u64, u64)> {
    let line = line.strip_suffix(" (deleted)")?;
    let mut words = line.split_ascii_whitespace();
    let hexadecimal = |word: &str| u64::from_str_radix(word, 16).ok();
    let (from, to) = words.next()?.split_once('-')?;
    let offset = hexadecimal(words.nth(1)?)?;
    let (major, minor) = words.next()?.split_once(':')?;
    let (major, minor) = (
        u32::from_str_radix(major, 16).ok()?,
        u32::from_str_radix(minor, 16).ok()?,
    );
    let inode = words.next()?.parse().ok()?;
    let length = hexadecimal(to)?.checked_sub(hexadecimal(from)?)?;
    (rustix::fs::makedev(major, minor) == device).then_some((inode, offset.saturating_add(length)))
}

/// The living and dead children of the runner. Only the runner reaps them, so each of these pids stays theirs.
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

/// The children of one process, of all its threads. Empty where the kernel does not report them.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_of_deleted_files_are_read() {
        let device = rustix::fs::makedev(0xfe, 0x12);
        let line = "7f1000000000-7f1000200000 rw-s 00001000 fe:12 4711                       /tmp/a b (deleted)";
        assert_eq!(deleted_mapping(line, device), Some((4711, 0x20_1000)));
        assert_eq!(deleted_mapping(line, device + 1), None);
        for other in [
            "7f1000000000-7f1000200000 rw-s 00001000 fe:12 4711 /tmp/a",
            "7f1000000000-7f1000200000 rw-p 00000000 00:00 0",
            "",
            " (deleted)",
        ] {
            assert_eq!(deleted_mapping(other, device), None, "{other}");
        }
    }
}
