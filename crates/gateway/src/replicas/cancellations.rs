//! Requests in progress that their client can cancel by a message, which may arrive at another replica.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures::future::{AbortHandle, AbortRegistration, Abortable};

use crate::model_calls::turn_store::KeyedHash;

/// Requests in progress that can be cancelled, by the keys that their callers have for them.
#[derive(Debug, Default)]
pub struct Cancellations(Mutex<HashMap<KeyedHash, AbortHandle>>);

/// A request in progress, until it is dropped.
struct InProgress<'a> {
    cancellations: &'a Cancellations,
    key: KeyedHash,
}

impl Cancellations {
    /// Does the work of a request. `None`: it was cancelled, and the work is dropped. Of two requests in progress with one key the
    /// first can be cancelled.
    pub async fn run<T>(&self, key: Option<KeyedHash>, work: impl Future<Output = T>) -> Option<T> {
        let Some((in_progress, registration)) = key.and_then(|key| self.add(key)) else {
            return Some(work.await);
        };
        let done = Abortable::new(work, registration).await.ok();
        drop(in_progress);
        done
    }

    fn add(&self, key: KeyedHash) -> Option<(InProgress<'_>, AbortRegistration)> {
        let (handle, registration) = AbortHandle::new_pair();
        match self.all().entry(key) {
            Entry::Occupied(_) => return None,
            Entry::Vacant(free) => free.insert(handle),
        };
        let cancellations = self;
        Some((InProgress { cancellations, key }, registration))
    }

    /// Cancels a request; whether it is in progress here.
    pub fn cancel(&self, key: &KeyedHash) -> bool {
        let all = self.all();
        let found = all.get(key);
        if let Some(handle) = found {
            handle.abort();
        }
        found.is_some()
    }

    fn all(&self) -> MutexGuard<'_, HashMap<KeyedHash, AbortHandle>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for InProgress<'_> {
    fn drop(&mut self) {
        self.cancellations.all().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn a_request_is_cancelled_while_it_is_in_progress_and_no_other_one_is() {
        let all = Cancellations::default();
        let own = [7; 32];
        let mut running = Box::pin(all.run(Some(own), pending::<()>()));
        assert_eq!(running.as_mut().now_or_never(), None);
        assert!(!all.cancel(&[8; 32]));
        assert_eq!(running.as_mut().now_or_never(), None);
        // A second request with the same key is served, and takes nothing from the first.
        assert_eq!(all.run(Some(own), ready(1)).now_or_never(), Some(Some(1)));
        assert!(all.cancel(&own));
        assert_eq!(running.as_mut().now_or_never(), Some(None));
        drop(running);
        assert!(all.all().is_empty() && !all.cancel(&own));
        assert_eq!(all.run(None, ready(1)).now_or_never(), Some(Some(1)));
    }
}
