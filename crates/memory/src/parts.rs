//! Parts of one budget, one for each holder: none of them can take it all.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use crate::MemoryBudget;

/// Parts of a budget for holders with names of type `K`, of one size; shared by all clones.
#[derive(Debug, Clone)]
pub struct MemoryParts<K> {
    whole: MemoryBudget,
    each_bytes: usize,
    /// The parts of holders that hold any of it, or are about to.
    parts: Arc<Mutex<HashMap<K, MemoryBudget>>>,
}

impl<K: Eq + Hash + Clone> MemoryParts<K> {
    /// Parts of `whole` with at most `each_bytes` each. Together they may be more than the whole.
    #[must_use]
    pub fn new(whole: MemoryBudget, each_bytes: usize) -> Self {
        Self {
            whole,
            each_bytes,
            parts: Arc::default(),
        }
    }

    /// The part of a holder.
    #[must_use]
    pub fn of(&self, holder: &K) -> MemoryBudget {
        // The map is valid between any two statements.
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(part) = parts.get(holder) {
            return part.clone();
        }
        // As many hold something as there are requests at most.
        parts.retain(|_, part| part.is_shared() || part.held_bytes() > 0);
        let part = self.whole.part(self.each_bytes);
        parts.insert(holder.clone(), part.clone());
        part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holder_leaves_room_for_another_and_those_that_hold_nothing_are_forgotten() {
        let parts = MemoryParts::new(MemoryBudget::new(4 << 10), 2 << 10);
        let held = parts.of(&"greedy").try_take(2 << 10).unwrap();
        parts.of(&"greedy").try_take(1).expect_err("its part is taken");
        drop(parts.of(&"gone"));
        let other = parts.of(&"modest").try_take(2 << 10).unwrap();
        parts.of(&"third").try_take(1).expect_err("the whole is taken");
        let named = |parts: &MemoryParts<&'static str>| -> Vec<&str> {
            let mut names: Vec<&str> = parts.parts.lock().unwrap().keys().copied().collect();
            names.sort_unstable();
            names
        };
        assert_eq!(named(&parts), ["greedy", "modest", "third"]);
        drop((held, other));
        drop(parts.of(&"new"));
        assert_eq!(named(&parts), ["new"]);
    }
}
