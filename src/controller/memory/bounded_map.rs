//! A map that holds so much and no more.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most failures and changes that are remembered; beyond that all are forgotten, which costs one reconcile each.
pub(super) const REMEMBERED_MAX: usize = 10_000;

/// What is remembered of objects, by their key.
#[derive(Debug)]
pub(super) struct BoundedMap<K, V>(Mutex<HashMap<K, V>>);

impl<K, V> Default for BoundedMap<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash, V> BoundedMap<K, V> {
    /// Remembers a value; where [`REMEMBERED_MAX`] are known, all of them are forgotten first.
    pub(super) fn remember(&self, key: K, value: V) {
        let mut known = self.lock();
        if known.len() >= REMEMBERED_MAX {
            known.clear();
        }
        known.insert(key, value);
    }

    /// What is remembered.
    pub(super) fn lock(&self) -> MutexGuard<'_, HashMap<K, V>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
