//! The traces of files and containers that are gone: lists go on behind them, and a late reader gets the answer that
//! one has expired.
//!
//! They are forgotten in the order in which they came, those of each account by themselves, and its containers apart from its
//! files: most answers with runs open a container, and all of these expire.

use std::collections::{HashMap, VecDeque};

use jiff::Timestamp;

use super::objects::FileOwner;
use crate::model_calls::turn_store::KeyedHash;

/// Files of one account that are gone and remembered, and as many containers. About 150 bytes each.
const GONE_OF_ACCOUNT: usize = 4096;
/// Most tombstones of all accounts together; beyond it the oldest one of the account with the most is removed.
const GONE_MAX: usize = 16_384;

/// The trace of one object.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tombstone {
    /// When the object was made.
    pub(super) created: Timestamp,
    /// Whether it expired; else it was deleted.
    pub(super) expired: bool,
    /// Whether it was a container; else it was a file.
    pub(super) is_container: bool,
}

/// An account, and whether the queue is that of its containers; else it is that of its files.
type QueueKey = (KeyedHash, bool);

/// The traces.
#[derive(Debug, Default)]
pub(super) struct Tombstones {
    all: HashMap<(FileOwner, String), Tombstone>,
    /// In the order in which they came.
    queues: HashMap<QueueKey, VecDeque<(FileOwner, String)>>,
}

impl Tombstones {
    pub(super) fn get(&self, owner: &FileOwner, id: &str) -> Option<&Tombstone> {
        self.all.get(&(*owner, id.to_owned()))
    }

    pub(super) fn note(&mut self, owner: &FileOwner, id: &str, gone: Tombstone) {
        let key = (*owner, id.to_owned());
        if let Some(there) = self.all.get_mut(&key) {
            // It stays in the queue that it is in.
            let is_container = there.is_container;
            *there = Tombstone { is_container, ..gone };
            return;
        }
        let queue = (owner.account, gone.is_container);
        if self
            .queues
            .get(&queue)
            .is_some_and(|queue| queue.len() >= GONE_OF_ACCOUNT)
        {
            self.forget_oldest(queue);
        }
        if self.all.len() >= GONE_MAX {
            let longest = self.queues.iter().max_by_key(|(_, queue)| queue.len());
            if let Some(longest) = longest.map(|(key, _)| *key) {
                self.forget_oldest(longest);
            }
        }
        self.queues.entry(queue).or_default().push_back(key.clone());
        self.all.insert(key, gone);
    }

    fn forget_oldest(&mut self, key: QueueKey) {
        let Some(queue) = self.queues.get_mut(&key) else { return };
        if let Some(oldest) = queue.pop_front() {
            self.all.remove(&oldest);
        }
        if queue.is_empty() {
            self.queues.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_for_them_is_bounded_and_an_account_loses_none_before_those_that_have_more() {
        let owner = |account: u8| FileOwner {
            account: [account; 32],
            caller: [1; 32],
        };
        let file = Tombstone {
            created: Timestamp::UNIX_EPOCH,
            expired: false,
            is_container: false,
        };
        let mut gone = Tombstones::default();
        gone.note(&owner(0), "of a small account", file);
        for account in 1..=8 {
            for number in 0..GONE_OF_ACCOUNT {
                gone.note(&owner(account), &number.to_string(), file);
            }
        }
        assert_eq!(gone.all.len(), GONE_MAX);
        let queued: usize = gone.queues.values().map(VecDeque::len).sum();
        assert_eq!(queued, GONE_MAX);
        assert!(gone.get(&owner(0), "of a small account").is_some());
        let last = (GONE_OF_ACCOUNT - 1).to_string();
        assert!((1..=8).all(|account| gone.get(&owner(account), &last).is_some()));
        gone.note(&owner(0), "of a small account", Tombstone { expired: true, ..file });
        assert!(
            gone.get(&owner(0), "of a small account")
                .is_some_and(|gone| gone.expired)
        );
        assert_eq!(gone.all.len(), GONE_MAX);
    }
}
