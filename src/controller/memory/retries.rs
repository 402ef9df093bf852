//! Failures of objects: how often they were tried, and which of them a retry cannot help.

use std::time::Duration;

use knack_vocabulary::ANNOTATION_REQUESTED_AT;
use kube::core::ObjectMeta;

use super::bounded_map::{BoundedMap, REMEMBERED_MAX};
use crate::controller::conditions::Verdict;
use crate::controller::settings::{RETRY_FIRST, RETRY_MAX};

/// The failures of objects, by their uid.
#[derive(Debug, Default)]
pub(in crate::controller) struct Retries {
    attempts: BoundedMap<String, u32>,
    stalled: BoundedMap<String, Failure>,
}

/// Why an object failed, with its generation and its reconcile request at that time.
#[derive(Debug)]
struct Failure {
    generation: Option<i64>,
    requested: Option<String>,
    verdict: Verdict,
}

impl Retries {
    /// The pause before the next attempt for an object: it doubles with each failure and is reset by a success.
    pub(in crate::controller) fn retry_after(&self, uid: &str) -> Duration {
        let mut attempts = self.attempts.lock();
        if attempts.len() >= REMEMBERED_MAX && !attempts.contains_key(uid) {
            attempts.clear();
        }
        let attempt = attempts.entry(uid.to_owned()).or_default();
        let pause = RETRY_FIRST.saturating_mul(1 << (*attempt).min(16)).min(RETRY_MAX);
        *attempt += 1;
        pause
    }

    /// Failures of an object in a row.
    pub(in crate::controller) fn failures(&self, uid: &str) -> u32 {
        let attempts = self.attempts.lock();
        attempts.get(uid).copied().unwrap_or(0)
    }

    /// Forgets the failures of an object.
    pub(in crate::controller) fn succeeded(&self, uid: &str) {
        self.attempts.lock().remove(uid);
    }

    /// The failure of the object of this metadata, if it failed at this generation and reconcile request: a retry would fail in the
    /// same way.
    pub(in crate::controller) fn stalled(&self, meta: &ObjectMeta) -> Option<Verdict> {
        let stalled = self.stalled.lock();
        let failure = stalled.get(meta.uid.as_deref()?)?;
        let is_same = failure.generation == meta.generation && failure.requested.as_ref() == request_of(meta);
        is_same.then(|| failure.verdict.clone())
    }

    /// Remembers a failure.
    pub(in crate::controller) fn remember_stalled(&self, meta: &ObjectMeta, verdict: &Verdict) {
        if let Some(uid) = meta.uid.clone() {
            let failure = Failure {
                generation: meta.generation,
                requested: request_of(meta).cloned(),
                verdict: verdict.clone(),
            };
            self.stalled.remember(uid, failure);
        }
    }
}

/// The reconcile request of an object.
fn request_of(meta: &ObjectMeta) -> Option<&String> {
    meta.annotations.as_ref()?.get(ANNOTATION_REQUESTED_AT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound_and_are_reset() {
        let retries = Retries::default();
        let pauses: Vec<_> = (0..12).map(|_| retries.retry_after("a").as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
        assert_eq!((retries.failures("a"), retries.failures("b")), (12, 0));
        retries.succeeded("a");
        assert_eq!(retries.failures("a"), 0);
        assert_eq!(retries.retry_after("a").as_secs(), 1);
    }

    #[test]
    fn failures_of_ever_new_objects_take_no_more_than_the_bound() {
        let retries = Retries::default();
        for number in 0..REMEMBERED_MAX + 5 {
            retries.retry_after(&number.to_string());
        }
        assert_eq!(retries.attempts.lock().len(), 5);
    }
}
