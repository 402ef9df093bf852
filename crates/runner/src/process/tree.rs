//! The tree of the run: every process that descends from the runner.
//!
//! The runner is PID 1 or a subreaper, so a process that detaches is still its descendant.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::fd::BorrowedFd;
use std::time::Instant;

use rustix::fs::FileType;

use crate::files::blocks;

/// Text of `maps` that one scan reads, of all processes together. The kernel writes it in about 50 ms. A process has at
/// most 65,530 mappings (4 MiB); sixty interpreters with their libraries have half of this.
const MAPS_BYTES: u64 = 8 << 20;
/// Descriptors in transit through socket pairs that a run may have. `multiprocessing` sends one at a time.
const MAX_IN_TRANSIT: u64 = 8;

/// A snapshot of the process tree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    /// Anonymous and shared memory of all processes, what of it is swapped out, their huge pages and page tables; pages of files are
    /// not counted.
    pub(crate) memory_bytes: u64,
    /// Threads of all processes.
    pub(crate) threads: u64,
}

/// Adds up the tree. Processes that end meanwhile count as nothing.
pub(crate) fn sample() -> Sample {
    let mut total = Sample::default();
    for pid in descendants() {
        if let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) {
            total.add(&status);
        }
    }
    total
}

impl Sample {
    /// Adds a process, by the text of its `/proc/<pid>/status`.
    fn add(&mut self, status: &str) {
        for line in status.lines() {
            let mut words = line.split_ascii_whitespace();
            let (Some(name), Some(value)) = (words.next(), words.next()) else {
                continue;
            };
            let Ok(value) = value.parse::<u64>() else {
                continue;
            };
            match name {
                // Page tables grow with what is mapped and read, even of one page of zeros, and are never swapped out.
                "RssAnon:" | "RssShmem:" | "VmSwap:" | "VmPTE:" | "HugetlbPages:" => {
                    self.memory_bytes = self.memory_bytes.saturating_add(value.saturating_mul(1024));
                }
                "Threads:" => self.threads += value,
                _ => {}
            }
        }
    }
}

/// Whether processes of the run hold more than `limit` bytes of files that have no name any more, on the file system of
/// `folder`.
///
/// Open ones count with their size on disk. The kernel reports no size of a file that is only mapped: it counts up to
/// the end of its mapping. What cannot be read counts as more: descriptors that the runner may not list, more
/// mappings than it reads, and more descriptors in transit than a few, which no process has open.
///
/// At `until` the scan is given up: nothing was found.
pub(crate) fn holds_more_deleted(folder: BorrowedFd<'_>, limit: u64, until: Instant) -> bool {
    let Ok(here) = rustix::fs::fstat(folder) else {
        return false;
    };
    let mut scan = ProcessScan {
        device: here.st_dev,
        held: HashMap::new(),
        in_transit: HashMap::new(),
        maps_left: MAPS_BYTES,
    };
    for pid in descendants() {
        if Instant::now() >= until {
            return false;
        }
        if !scan.descriptors(pid) || !scan.mappings(pid) || scan.is_over(limit) {
            return true;
        }
    }
    false
}

/// What a scan has found so far.
struct ProcessScan {
    device: u64,
    /// Bytes of each deleted file, by inode: several processes may hold one.
    held: HashMap<u64, u64>,
    /// Descriptors that wait in each socket, by inode.
    in_transit: HashMap<u64, u64>,
    /// How much more of `maps` is read.
    maps_left: u64,
}

impl ProcessScan {
    fn is_over(&self, limit: u64) -> bool {
        self.held.values().sum::<u64>() > limit || self.in_transit.values().sum::<u64>() > MAX_IN_TRANSIT
    }

    fn hold(&mut self, inode: u64, bytes: u64) {
        let most = self.held.entry(inode).or_insert(0);
        *most = bytes.max(*most);
    }

    /// Counts the descriptors of a process. Returns whether they could be listed.
    fn descriptors(&mut self, pid: u32) -> bool {
        let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/fd")) else {
            return !has_memory(pid);
        };
        for entry in entries.flatten() {
            let Ok(stat) = rustix::fs::stat(entry.path()) else {
                continue;
            };
            if FileType::from_raw_mode(stat.st_mode) == FileType::Socket {
                let waiting = in_transit(pid, &entry.file_name().to_string_lossy());
                self.in_transit.insert(stat.st_ino, waiting);
            } else if stat.st_nlink == 0 && stat.st_dev == self.device {
                self.hold(stat.st_ino, blocks(&stat));
            }
        }
        true
    }

    /// Reads the mappings of a process. Returns whether all of them could be read.
    fn mappings(&mut self, pid: u32) -> bool {
        let Ok(maps) = File::open(format!("/proc/{pid}/maps")) else {
            return true;
        };
        let mut maps = BufReader::new(maps.take(self.maps_left));
        let mut line = Vec::new();
        // An error: the process has ended.
        while let Ok(1..) = maps.read_until(b'\n', &mut line) {
            let text = String::from_utf8_lossy(&line);
            if let Some((inode, end)) = deleted_mapping(text.trim_end_matches('\n'), self.device) {
                self.hold(inode, end);
            }
            line.clear();
        }
        self.maps_left = maps.get_ref().limit();
        self.maps_left > 0
    }
}

/// Descriptors that wait in the queue of a socket. 0 on kernels that do not report it.
fn in_transit(pid: u32, descriptor: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/fdinfo/{descriptor}")).unwrap_or_default();
    let count = text.lines().find_map(|line| line.strip_prefix("scm_fds:"));
    count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

/// Whether a process has not ended: one that ends has no memory first, then no descriptors.
fn has_memory(pid: u32) -> bool {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    text.split_ascii_whitespace().next().is_some_and(|pages| pages != "0")
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
    fn what_is_swapped_out_and_page_tables_count_as_memory() {
        let status = "Name:\tpython3\nVmSize:\t 4194304 kB\nVmRSS:\t   12000 kB\nRssAnon:\t    100 kB\nRssFile:\t   11880 kB\n\
                      RssShmem:\t     20 kB\nVmPTE:\t       3 kB\nVmSwap:\t    4000 kB\nHugetlbPages:\t  50000 kB\nThreads:\t2\n";
        let mut total = Sample::default();
        total.add(status);
        total.add("Name:\tsh\nRssAnon:\t      7 kB\nThreads:\t1\n");
        let memory_bytes = (100 + 20 + 3 + 4_000 + 50_000 + 7) << 10;
        assert_eq!(
            total,
            Sample {
                memory_bytes,
                threads: 3
            }
        );
    }

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
