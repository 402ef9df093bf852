//! The soft cache of hidden turns: saved turns under opaque keys, bounded in bytes and time.
//!
//! knack-wire defines the content of a saved turn (`knack_wire::history`). Losing one is never an error: the next request
//! goes upstream as the client sent it.

use std::collections::{BTreeMap, HashMap, hash_map};
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use knack_wire::history::{MAX_SAVED_BYTES, SavedTurn};
use tokio::time::Instant;

/// A key or a caller's identity: an HMAC, so that the store never holds a credential.
pub type KeyedHash = [u8; 32];

/// A saved turn that is not used for this time is dropped: a chat that pauses for longer continues without it.
pub(crate) const TURN_IDLE: Duration = Duration::from_hours(1);
/// Bytes of all saved turns in `knack dev`.
pub const TURNS_DEV_BYTES: usize = 64 << 20;

/// Saved turns of all callers.
#[derive(Debug)]
pub struct TurnStore {
    capacity_bytes: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    by_key: HashMap<(KeyedHash, KeyedHash), u64>,
    entries: HashMap<u64, StoredTurn>,
    /// Least recently used first: use number to entry.
    order: BTreeMap<u64, u64>,
    /// Saved turns of each caller.
    callers: HashMap<KeyedHash, usize>,
    /// Saved turns of each caller, by the beginning of their conversation.
    openings: HashMap<(KeyedHash, KeyedHash), usize>,
    bytes: usize,
    next: u64,
}

#[derive(Debug)]
struct StoredTurn {
    caller: KeyedHash,
    opening: KeyedHash,
    keys: Vec<KeyedHash>,
    saved: Arc<SavedTurn>,
    used: u64,
    last_used: Instant,
}

impl StoredTurn {
    /// The size of an entry: its saved turn, its keys and the maps' overhead, rounded up, in bytes.
    fn cost(&self) -> usize {
        self.saved.size() + 96 * self.keys.len() + 256
    }
}

impl TurnStore {
    /// An empty store that holds at most `capacity_bytes`.
    pub fn new(capacity_bytes: usize) -> Self {
        Self {
            capacity_bytes,
            inner: Mutex::default(),
        }
    }

    /// Whether this caller has any saved turn: without one, histories need not be hashed.
    pub(crate) fn has_caller(&self, caller: &KeyedHash) -> bool {
        self.lock().callers.contains_key(caller)
    }

    /// Whether this caller has any saved turn of a conversation with this beginning.
    pub(crate) fn has_opening(&self, caller: &KeyedHash, opening: &KeyedHash) -> bool {
        self.lock().openings.contains_key(&(*caller, *opening))
    }

    /// The saved turn under a key of this caller, if it is still there; counts as a use.
    pub fn get(&self, caller: &KeyedHash, key: &KeyedHash) -> Option<Arc<SavedTurn>> {
        let mut inner = self.lock();
        let id = *inner.by_key.get(&(*caller, *key))?;
        let now = Instant::now();
        if inner
            .entries
            .get(&id)
            .is_some_and(|entry| now.duration_since(entry.last_used) > TURN_IDLE)
        {
            inner.remove(id);
            return None;
        }
        let used = inner.tick();
        let entry = inner.entries.get_mut(&id)?;
        let before = std::mem::replace(&mut entry.used, used);
        entry.last_used = now;
        let saved = Arc::clone(&entry.saved);
        inner.order.remove(&before);
        inner.order.insert(used, id);
        Some(saved)
    }

    /// Remembers one saved turn under several keys; an older saved turn under one of them is replaced.
    /// A saved turn over [`MAX_SAVED_BYTES`] is not kept, which is answered with false.
    pub fn put(&self, caller: KeyedHash, opening: KeyedHash, keys: Vec<KeyedHash>, saved: Arc<SavedTurn>) -> bool {
        if saved.size() > MAX_SAVED_BYTES || keys.is_empty() {
            return false;
        }
        let now = Instant::now();
        let mut inner = self.lock();
        for key in &keys {
            if let Some(id) = inner.by_key.get(&(caller, *key)).copied() {
                inner.remove(id);
            }
        }
        let id = inner.tick();
        let entry = StoredTurn {
            caller,
            opening,
            keys,
            saved,
            used: id,
            last_used: now,
        };
        inner.bytes += entry.cost();
        for key in &entry.keys {
            inner.by_key.insert((caller, *key), id);
        }
        *inner.callers.entry(caller).or_default() += 1;
        *inner.openings.entry((caller, opening)).or_default() += 1;
        inner.order.insert(id, id);
        inner.entries.insert(id, entry);
        inner.evict(self.capacity_bytes, now);
        true
    }

    /// Bytes of all saved turns, for metrics.
    pub(crate) fn held_bytes(&self) -> usize {
        self.lock().bytes
    }

    /// A poisoned lock holds a consistent-enough cache: the worst case is a miss.
    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn tick(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn remove(&mut self, id: u64) {
        let Some(entry) = self.entries.remove(&id) else { return };
        self.bytes -= entry.cost();
        self.order.remove(&entry.used);
        for key in &entry.keys {
            if self.by_key.get(&(entry.caller, *key)) == Some(&id) {
                self.by_key.remove(&(entry.caller, *key));
            }
        }
        count_down(&mut self.callers, entry.caller);
        count_down(&mut self.openings, (entry.caller, entry.opening));
    }

    fn evict(&mut self, capacity: usize, now: Instant) {
        while let Some((_, &id)) = self.order.first_key_value() {
            let idle = self
                .entries
                .get(&id)
                .is_none_or(|entry| now.duration_since(entry.last_used) > TURN_IDLE);
            if !idle && self.bytes <= capacity {
                break;
            }
            self.remove(id);
        }
    }
}

/// One saved turn less under a name; the last one removes the name.
fn count_down<K: Eq + Hash>(counts: &mut HashMap<K, usize>, name: K) {
    if let hash_map::Entry::Occupied(mut count) = counts.entry(name) {
        *count.get_mut() -= 1;
        if *count.get() == 0 {
            count.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: KeyedHash = [1; 32];
    const B: KeyedHash = [2; 32];
    const OPENING: KeyedHash = [9; 32];

    fn key(n: u8) -> KeyedHash {
        [n; 32]
    }

    /// A saved turn of this size.
    fn saved(text: &str) -> Arc<SavedTurn> {
        let state = text.to_owned();
        Arc::new(SavedTurn {
            state,
            ..SavedTurn::default()
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_saved_is_found_under_each_key_by_its_caller_only() {
        let store = TurnStore::new(1 << 20);
        assert!(!store.has_caller(&A));
        assert!(store.put(A, OPENING, vec![key(1), key(2)], saved("x")));
        assert_eq!(store.get(&A, &key(2)), Some(saved("x")));
        assert_eq!(store.get(&B, &key(2)), None);
        assert!(store.has_caller(&A) && !store.has_caller(&B));
    }

    #[tokio::test(start_paused = true)]
    async fn the_least_recently_used_goes_first_and_the_bound_holds() {
        let store = TurnStore::new(3 * 1400);
        for n in 1..=3 {
            store.put(A, OPENING, vec![key(n)], saved(&"x".repeat(1000)));
        }
        store.get(&A, &key(1));
        store.put(A, OPENING, vec![key(4)], saved(&"x".repeat(1000)));
        let left: Vec<bool> = (1..=4).map(|n| store.get(&A, &key(n)).is_some()).collect();
        assert_eq!(left, [true, false, true, true]);
        assert!(store.held_bytes() <= 3 * 1400);
    }

    #[tokio::test(start_paused = true)]
    async fn idle_saved_turns_and_saved_turns_over_the_cap_are_not_kept() {
        let store = TurnStore::new(1 << 20);
        store.put(A, OPENING, vec![key(1)], saved("x"));
        tokio::time::advance(TURN_IDLE + Duration::from_secs(1)).await;
        assert_eq!(store.get(&A, &key(1)), None);
        assert!(!store.has_caller(&A));
        let large = saved(&"x".repeat(MAX_SAVED_BYTES + 1));
        assert!(!store.put(A, OPENING, vec![key(1)], large));
    }

    #[tokio::test(start_paused = true)]
    async fn a_replaced_saved_leaves_nothing_behind() {
        let store = TurnStore::new(1 << 20);
        store.put(A, OPENING, vec![key(1), key(2)], saved("x"));
        store.put(A, OPENING, vec![key(2)], saved("y"));
        assert_eq!(store.get(&A, &key(1)), None);
        assert_eq!(store.get(&A, &key(2)), Some(saved("y")));
        assert_eq!(store.lock().entries.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_opening_is_known_as_long_as_one_of_its_saved_turns_is_there() {
        let store = TurnStore::new(1 << 20);
        let other: KeyedHash = [8; 32];
        for n in 1..=2 {
            store.put(A, OPENING, vec![key(n)], saved("x"));
        }
        assert!(store.has_opening(&A, &OPENING));
        assert!(!store.has_opening(&B, &OPENING) && !store.has_opening(&A, &other));
        store.put(A, other, vec![key(1)], saved("y"));
        assert!(store.has_opening(&A, &OPENING) && store.has_opening(&A, &other));
        store.put(A, other, vec![key(2)], saved("y"));
        assert!(!store.has_opening(&A, &OPENING));
    }
}
