//! Events of Kubernetes that others can cause, at a bounded rate: one recorder for the process, a few tokens for each object
//! and reason. An Event that finds no token is left out; logs and metrics count what happened.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::time::Instant;

use crate::api_call::{CALL_TIMEOUT, within};

/// Events about one object for one reason that may come at once: a person sees that it is more than one.
const BURST: u32 = 5;
/// A further one every so often. At 5 and 30 s a runtime that fails 50 times a second writes 2 Events a minute.
const REFILL: Duration = Duration::from_secs(30);
/// Objects and reasons remembered, at about 100 bytes each. Those with a full bucket are forgotten first.
const REMEMBERED: usize = 4096;
/// Longest note that the API takes.
pub(crate) const NOTE_MAX_CHARS: usize = 1_000;

/// Writes Events; see the module.
#[derive(Clone)]
pub struct Events {
    recorder: Recorder,
    buckets: Arc<Mutex<Buckets>>,
}

impl std::fmt::Debug for Events {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Events").finish_non_exhaustive()
    }
}

impl Events {
    /// Writes Events for `reporter`.
    pub fn new(client: Client, reporter: &str) -> Self {
        Self {
            recorder: Recorder::new(client, Reporter::from(reporter.to_owned())),
            buckets: Arc::default(),
        }
    }

    /// Writes a warning about an object, unless there were many of its reason lately. `note` must not contain values
    /// that differ from one time to the next, so that repetitions become one Event with a count.
    pub async fn warn(&self, object: &ObjectReference, reason: &str, action: &str, note: &str) {
        self.write(EventType::Warning, object, reason, action, note).await;
    }

    /// Writes an Event of the type Normal about an object, bounded as [`Self::warn`] is.
    pub async fn note(&self, object: &ObjectReference, reason: &str, action: &str, note: &str) {
        self.write(EventType::Normal, object, reason, action, note).await;
    }

    async fn write(&self, kind: EventType, object: &ObjectReference, reason: &str, action: &str, note: &str) {
        let key = (object.uid.clone().unwrap_or_default(), reason.to_owned());
        let has_token = {
            let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
            buckets.take(key, Instant::now())
        };
        if !has_token {
            return;
        }
        let event = Event {
            type_: kind,
            reason: reason.to_owned(),
            note: Some(note.chars().take(NOTE_MAX_CHARS).collect()),
            action: action.to_owned(),
            secondary: None,
        };
        if let Err(error) = within(CALL_TIMEOUT, self.recorder.publish(&event, object)).await {
            tracing::warn!(%error, reason, "an Event could not be written");
        }
    }
}

type EventKey = (String, String);

#[derive(Debug, Default)]
struct Buckets {
    /// Tokens, and when they were counted last.
    by_key: HashMap<EventKey, (u32, Instant)>,
}

impl Buckets {
    fn take(&mut self, key: EventKey, now: Instant) -> bool {
        if self.by_key.len() >= REMEMBERED && !self.by_key.contains_key(&key) {
            self.by_key.retain(|_, bucket| refilled(*bucket, now).0 < BURST);
            if self.by_key.len() >= REMEMBERED {
                // All of them are busy: one more object stays untold rather than memory unbounded.
                return false;
            }
        }
        let bucket = self.by_key.entry(key).or_insert((BURST, now));
        *bucket = refilled(*bucket, now);
        let has_token = bucket.0 > 0;
        bucket.0 = bucket.0.saturating_sub(1);
        has_token
    }
}

fn refilled((tokens, at): (u32, Instant), now: Instant) -> (u32, Instant) {
    let more = now.duration_since(at).as_secs() / REFILL.as_secs();
    let more = u32::try_from(more).unwrap_or(u32::MAX);
    (
        tokens.saturating_add(more).min(BURST),
        if more > BURST { now } else { at + REFILL * more },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> EventKey {
        (number.to_string(), "Failed".to_owned())
    }

    #[test]
    fn fifty_failures_a_second_are_a_few_events_and_others_are_still_written() {
        let (mut buckets, start) = (Buckets::default(), Instant::now());
        let admitted = (0..3000_u32)
            .filter(|number| buckets.take(key(0), start + Duration::from_millis(20) * *number))
            .count();
        assert_eq!(admitted, 6, "a burst of 5, and one after 30 of the 60 seconds");
        assert!(buckets.take(key(1), start));
        assert!(buckets.take(key(0), start + Duration::from_mins(10)));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (mut buckets, start) = (Buckets::default(), Instant::now());
        for number in 0..2 * REMEMBERED {
            buckets.take(key(number), start);
        }
        assert_eq!(buckets.by_key.len(), REMEMBERED);
        let later = start + Duration::from_mins(1);
        assert!(
            buckets.take(key(2 * REMEMBERED), later),
            "those that are quiet make room"
        );
        assert_eq!(buckets.by_key.len(), 1);
    }
}
