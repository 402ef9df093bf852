//! How many requests of one caller are served at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use knack_gateway::model_calls::turn_store::KeyedHash;

/// Requests of one caller at once. A host sends the calls of one model turn in parallel, and of a model's turn the gateway
/// runs as many; what is beyond that waits better at its sender than as an open connection here. Callers without a credential
/// are one.
pub(crate) const REQUESTS_PER_CALLER: usize = 32;

/// Requests in progress, by caller: only callers that have any.
#[derive(Debug, Default)]
pub(crate) struct Slots(Mutex<HashMap<KeyedHash, usize>>);

/// The slot of one request, free again when it is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    slots: Arc<Slots>,
    caller: KeyedHash,
}

impl Slots {
    /// A slot for one more request of a caller, if there is one.
    pub(crate) fn take(self: &Arc<Self>, caller: KeyedHash) -> Option<Slot> {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = taken.entry(caller).or_insert(0);
        if *count >= REQUESTS_PER_CALLER {
            return None;
        }
        *count += 1;
        let slots = Arc::clone(self);
        Some(Slot { slots, caller })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut taken = self.slots.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = taken.get_mut(&self.caller) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.caller);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_has_its_slots_and_nothing_stays_of_it() {
        let slots = Arc::new(Slots::default());
        let (one, other) = ([1; 32], [2; 32]);
        let mut held: Vec<Slot> = (0..REQUESTS_PER_CALLER).map(|_| slots.take(one).unwrap()).collect();
        assert!(slots.take(one).is_none());
        assert!(slots.take(other).is_some(), "another caller has its own");
        held.pop();
        held.push(slots.take(one).unwrap());
        assert!(slots.take(one).is_none());
        drop(held);
        assert!(slots.0.lock().unwrap().is_empty());
    }
}
