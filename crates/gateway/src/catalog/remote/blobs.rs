//! Contents of files by hash, shared by every catalog of a process while one of them uses them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use knack_memory::{MemoryBudget, MemoryShare, OverBudget};

/// The contents in use. Each takes its bytes from the budget as long as it is referenced.
#[derive(Debug, Clone)]
pub struct Blobs {
    budget: MemoryBudget,
    kept: Arc<Mutex<HashMap<String, Blob>>>,
}

#[derive(Debug)]
struct Blob {
    bytes: Weak<[u8]>,
    _share: MemoryShare,
}

impl Blobs {
    /// None yet; all of them together stay within `budget`.
    pub fn new(budget: MemoryBudget) -> Self {
        Self {
            budget,
            kept: Arc::default(),
        }
    }

    /// The memory budget of all bodies.
    pub fn budget(&self) -> &MemoryBudget {
        &self.budget
    }

    /// The content of a hash, if it is in use.
    pub(super) fn get(&self, hash: &str) -> Option<Arc<[u8]>> {
        self.lock().get(hash)?.bytes.upgrade()
    }

    /// Room for a content that is about to be fetched.
    pub(super) fn room(&self, bytes: usize) -> Result<MemoryShare, OverBudget> {
        // Contents that are no longer used give their bytes back here, when there is a demand for them.
        self.budget.try_take(bytes).or_else(|_| {
            self.lock().retain(|_, blob| blob.bytes.strong_count() > 0);
            self.budget.try_take(bytes)
        })
    }

    /// Keeps a content while it is used; one that is kept already stays.
    pub(super) fn keep(&self, hash: String, bytes: Arc<[u8]>, share: MemoryShare) -> Arc<[u8]> {
        let mut kept = self.lock();
        if let Some(known) = kept.get(&hash).and_then(|blob| blob.bytes.upgrade()) {
            return known;
        }
        let blob = Blob {
            bytes: Arc::downgrade(&bytes),
            _share: share,
        };
        kept.insert(hash, blob);
        bytes
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Blob>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_shared_and_their_room_comes_back() {
        let blobs = Blobs::new(MemoryBudget::new(4 << 10));
        let content = |fill: u8| -> Arc<[u8]> { Arc::from(vec![fill; 2 << 10]) };
        let first = blobs.keep("a".to_owned(), content(1), blobs.room(2 << 10).unwrap());
        let again = blobs.keep("a".to_owned(), content(1), blobs.room(2 << 10).unwrap());
        assert!(Arc::ptr_eq(&first, &again), "one content, once");
        assert!(Arc::ptr_eq(&first, &blobs.get("a").unwrap()));
        let second = blobs.keep("b".to_owned(), content(2), blobs.room(2 << 10).unwrap());
        assert!(blobs.room(1).is_err(), "no third");
        drop((first, again));
        assert!(blobs.get("a").is_none());
        assert!(blobs.room(2 << 10).is_ok(), "the room of what nobody uses");
        assert_eq!(blobs.get("b").unwrap(), second);
    }
}
