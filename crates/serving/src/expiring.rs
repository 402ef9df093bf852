//! A small map whose entries expire.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Values that expire, at most `capacity` of them.
#[derive(Debug)]
pub struct Expiring<K, V> {
    capacity: usize,
    entries: Mutex<HashMap<K, (Instant, V)>>,
}

impl<K: Hash + Eq + Clone, V: Clone> Expiring<K, V> {
    /// An empty map for at most `capacity` values.
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            entries: Mutex::default(),
        }
    }

    /// A value that has not ended.
    pub fn get(&self, key: &K) -> Option<V> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let (until, value) = entries.get(key)?;
        (Instant::now() < *until).then(|| value.clone())
    }

    /// Forgets a value.
    pub fn remove(&self, key: &K) {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    /// Keeps a value for `life`. A full map first drops expired values, then those that expire first.
    pub fn put(&self, key: K, value: V, life: Duration) {
        let now = Instant::now();
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= self.capacity {
            entries.retain(|_, (until, _)| now < *until);
            if entries.len() >= self.capacity {
                let first = entries.iter().min_by_key(|(_, (until, _))| *until);
                if let Some(first) = first.map(|(key, _)| key.clone()) {
                    entries.remove(&first);
                }
            }
        }
        entries.insert(key, (now + life, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn values_end_and_never_exceed_the_capacity() {
        let cache = Expiring::new(2);
        cache.put(1, "a", Duration::from_secs(1));
        cache.put(2, "b", Duration::from_secs(9));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(cache.get(&1), None);
        cache.put(3, "c", Duration::from_secs(9));
        assert_eq!(cache.get(&2), Some("b"));
        cache.put(4, "d", Duration::from_secs(9));
        assert_eq!(
            (cache.get(&2), cache.get(&3)),
            (None, Some("c")),
            "the one that ends first goes"
        );
        assert_eq!(cache.get(&4), Some("d"));
        assert!(cache.entries.lock().unwrap().len() <= 2);
    }
}
