//! The latest changes of the hub's copy of the cluster, for streams that follow it. Pure.

use std::collections::VecDeque;

use knack_hub_api::RuntimeName;
use knack_skill::model::SkillRef;

/// The part of the served content that an event changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// One Skill.
    Skill(SkillRef),
    /// One runtime.
    Runtime(RuntimeName),
    /// Anything: a list was read, or the labels of a namespace changed.
    All,
}

/// Changes remembered: as many as one apply of a large repository makes between two reads of a stream.
const LOG_ENTRIES: usize = 4096;

/// The changes of a cluster state, each with a number that grows.
#[derive(Debug, Default)]
pub struct ChangeLog {
    version: u64,
    entries: VecDeque<(u64, Change)>,
}

impl ChangeLog {
    /// The number of the last change.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Notes a change; its number.
    pub fn note(&mut self, change: Change) -> u64 {
        self.version += 1;
        if self.entries.len() >= LOG_ENTRIES {
            self.entries.pop_front();
        }
        self.entries.push_back((self.version, change));
        self.version
    }

    /// The changes after a number, oldest first; `None` if some of them are forgotten.
    pub fn since(&self, version: u64) -> Option<impl Iterator<Item = &Change>> {
        let first = self.entries.front().map_or(self.version + 1, |(number, _)| *number);
        let known = self.entries.partition_point(|(number, _)| *number <= version);
        (first <= version + 1).then(|| self.entries.range(known..).map(|(_, change)| change))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_has_forgotten_says_so() {
        let mut log = ChangeLog::default();
        let count = |log: &ChangeLog, version| log.since(version).map(Iterator::count);
        assert_eq!(count(&log, 0), Some(0));
        for _ in 0..LOG_ENTRIES + 10 {
            log.note(Change::All);
        }
        assert_eq!(
            (count(&log, log.version()), count(&log, log.version() - 3)),
            (Some(0), Some(3))
        );
        assert_eq!((count(&log, 10), count(&log, 9)), (Some(LOG_ENTRIES), None));
    }
}
