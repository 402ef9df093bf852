//! The uids that code runs under when this process is root.

use std::collections::{HashSet, VecDeque};
use std::fs;

use knack_runner::protocol::Identity;

/// First uid of the range: 1,879,048,192 to 2,147,483,647 is the part of the uid space that systemd's list of uid
/// assignments names unused; this lies in it and is easy to recognise in `ps`.
const FIRST_UID: u32 = 1_900_000_000;

/// Uids per block: concurrent runs, sandboxes started ahead and those being cleaned up, together.
const UIDS_PER_BLOCK: u32 = 64;

/// Blocks, that is knack processes of one machine.
pub(super) const BLOCKS: u32 = 256;

/// The free uids of a block, least recently used first.
#[derive(Debug)]
pub(super) struct Identities {
    free: VecDeque<u32>,
}

impl Identities {
    /// The uids of one block, or `None` if a process outside Knack's control has one of them, or this user namespace does
    /// not map them.
    pub(super) fn of_block(block: u32) -> Option<Self> {
        let uids: VecDeque<u32> = (0..UIDS_PER_BLOCK)
            .map(|index| FIRST_UID + block * UIDS_PER_BLOCK + index)
            .collect();
        let last = *uids.back()?;
        let mapped = is_mapped(last, &fs::read_to_string("/proc/self/uid_map").ok()?)
            && is_mapped(last, &fs::read_to_string("/proc/self/gid_map").ok()?);
        let used = uids_in_use();
        (mapped && !uids.iter().any(|uid| used.contains(uid))).then_some(Self { free: uids })
    }

    /// Takes a uid; its gid is the same number. No other process has it: none outside, by [`Identities::of_block`], and
    /// no other run until it is given back.
    pub(super) fn take(&mut self) -> Option<Identity> {
        self.free.pop_front().map(|uid| Identity {
            uid,
            gid: uid,
            exclusive: true,
        })
    }

    /// Gives one back that no process has any more.
    pub(super) fn give_back(&mut self, identity: Identity) {
        self.free.push_back(identity.uid);
    }
}

/// Reads the lines `<inside> <outside> <count>` of a uid map.
fn is_mapped(uid: u32, map: &str) -> bool {
    map.lines().any(|line| {
        let mut numbers = line.split_whitespace().map(|word| word.parse::<u64>().unwrap_or(0));
        match (numbers.next(), numbers.nth(1)) {
            (Some(inside), Some(count)) => (inside..inside + count).contains(&u64::from(uid)),
            _ => false,
        }
    })
}

fn uids_in_use() -> HashSet<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    entries
        .filter_map(|entry| {
            let _pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            // Not the owner of the directory: a process can make itself undumpable, and root then owns it.
            let status = fs::read_to_string(entry.path().join("status")).ok()?;
            let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
            let is_zombie = status
                .lines()
                .any(|line| line.starts_with("State:") && line.contains('Z'));
            let uid = line.split_whitespace().next()?.parse().ok()?;
            (!is_zombie).then_some(uid)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uid_is_mapped_if_one_line_covers_it() {
        let whole = "         0          0 4294967295\n";
        let rootless = "         0       1000          1\n         1     100000      65536\n";
        assert!(is_mapped(FIRST_UID, whole));
        assert!(!is_mapped(FIRST_UID, rootless));
        assert!(is_mapped(65_536, rootless));
        assert!(!is_mapped(65_537, rootless));
        assert!(!is_mapped(0, ""));
    }

    #[test]
    fn uids_come_back_after_all_others() {
        let mut identities = Identities { free: [1, 2].into() };
        let first = identities.take().unwrap();
        identities.give_back(first);
        assert_eq!(identities.take().unwrap().uid, 2);
        assert_eq!(identities.take(), Some(first));
        assert_eq!(identities.take(), None);
    }
}
