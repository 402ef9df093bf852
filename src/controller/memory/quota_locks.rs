//! Locks for writing the quota of a namespace.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The turns, by namespace. As many as there are namespaces with runtimes: [`QuotaLocks::forget`].
#[derive(Debug, Default)]
pub(in crate::controller) struct QuotaLocks(Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>);

impl QuotaLocks {
    /// The turn to read and write the quota of a namespace.
    pub(in crate::controller) fn of(&self, namespace: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(turns.entry(namespace.to_owned()).or_default())
    }

    /// Forgets a namespace. Whoever waits keeps its turn; one that comes between gets a conflict, and reads the quota again.
    pub(super) fn forget(&self, namespace: &str) {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        turns.remove(namespace);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_kept_of_a_namespace_whose_runtimes_are_gone() {
        let turns = QuotaLocks::default();
        for number in 0..100 {
            let namespace = format!("review-{number}");
            drop(turns.of(&namespace));
            turns.forget(&namespace);
        }
        let kept = turns.of("n");
        assert!(Arc::ptr_eq(&kept, &turns.of("n")), "one turn for all runtimes");
        assert_eq!(turns.0.lock().unwrap().len(), 1);
    }
}
