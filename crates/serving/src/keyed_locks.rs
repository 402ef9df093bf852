//! Per-key locks: the first request fetches, the others reuse the answer.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;

type Lock = Arc<tokio::sync::Mutex<()>>;

/// The keys that are asked for now: as many as requests that wait or ask, at most.
#[derive(Debug)]
pub struct KeyedLocks<K> {
    under_way: Arc<Mutex<HashMap<K, Lock>>>,
}

/// The lock of a key, held; the next request gets it when this is dropped.
#[derive(Debug)]
pub struct KeyedLockGuard<K: Hash + Eq> {
    // Dropped in this order: what is registered ends when nobody holds its lock any more.
    _alone: OwnedMutexGuard<()>,
    _registered: KeyRegistration<K>,
}

/// A request that waits for the lock or has it.
#[derive(Debug)]
struct KeyRegistration<K: Hash + Eq> {
    under_way: Arc<Mutex<HashMap<K, Lock>>>,
    key: K,
    /// `None` only while it is dropped.
    lock: Option<Lock>,
}

impl<K> Default for KeyedLocks<K> {
    fn default() -> Self {
        Self {
            under_way: Arc::default(),
        }
    }
}

impl<K: Hash + Eq + Clone> KeyedLocks<K> {
    /// Waits until no other request has the lock of this key; `None` if that takes longer than `within`.
    pub async fn take(&self, key: K, within: Duration) -> Option<KeyedLockGuard<K>> {
        let lock = Arc::clone(
            self.under_way
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .entry(key.clone())
                .or_default(),
        );
        let registered = KeyRegistration {
            under_way: Arc::clone(&self.under_way),
            key,
            lock: Some(Arc::clone(&lock)),
        };
        let alone = tokio::time::timeout(within, lock.lock_owned()).await.ok()?;
        Some(KeyedLockGuard {
            _alone: alone,
            _registered: registered,
        })
    }
}

// Also where a request ends before its answer.
impl<K: Hash + Eq> Drop for KeyRegistration<K> {
    fn drop(&mut self) {
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        self.lock = None;
        if under_way
            .get(&self.key)
            .is_some_and(|lock| Arc::strong_count(lock) == 1)
        {
            under_way.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_mins(1);

    #[tokio::test(start_paused = true)]
    async fn one_key_is_asked_for_by_one_at_a_time_and_others_go_on() {
        let locks = KeyedLocks::default();
        let first = locks.take("a", LONG).await.unwrap();
        assert!(locks.take("b", LONG).await.is_some(), "another key waits for nobody");
        assert!(
            locks.take("a", Duration::from_secs(1)).await.is_none(),
            "waited in vain"
        );
        let second = locks.take("a", LONG);
        tokio::pin!(second);
        assert!(tokio::time::timeout(Duration::from_secs(1), &mut second).await.is_err());
        drop(first);
        let second = second.await.unwrap();
        assert_eq!(locks.under_way.lock().unwrap().len(), 1);
        drop(second);
        assert!(
            locks.under_way.lock().unwrap().is_empty(),
            "nothing is kept of those that ended or gave up"
        );
    }
}
