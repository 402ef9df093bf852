//! Cancellations that other replicas may not know: they are told once more, and after an outage of the link as soon as it is back.
//!
//! The hub keeps no cancellation: it is for the replicas that listen at that moment. Which of them do, nobody here knows.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::model_calls::turn_store::KeyedHash;

/// Cancellations that wait, about 100 bytes each. Of more the oldest is forgotten.
const WAITING_MAX: usize = 1024;
/// Cancellations of one client that wait: as many requests as four replicas serve it at once.
const OF_CLIENT_MAX: usize = 128;
/// How long one waits: by then a run has ended that has the default of the longest limit.
const AGE_MAX: Duration = Duration::from_mins(2);
/// Time between two tellings. A replica whose link was down with this one's is linked again within it: its longest pause
/// between tries is 5 s.
const AGAIN_AFTER: Duration = Duration::from_secs(6);
/// Pause between looks at what waits.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Cancellations that other replicas may not know, oldest first.
#[derive(Debug, Default)]
pub(super) struct Untold {
    waiting: Mutex<VecDeque<UntoldCancellation>>,
    added: Notify,
}

#[derive(Debug)]
struct UntoldCancellation {
    client: KeyedHash,
    request: KeyedHash,
    since: Instant,
    /// When the hub took it first.
    told: Option<Instant>,
}

impl Untold {
    /// Adds a cancellation, which the hub has taken once or not at all.
    pub(super) fn add(&self, client: KeyedHash, request: KeyedHash, is_told: bool, now: Instant) {
        let mut waiting = self.waiting();
        if waiting.iter().any(|one| one.request == request) {
            return;
        }
        let of_client = |one: &UntoldCancellation| one.client == client;
        if waiting.iter().filter(|one| of_client(one)).count() >= OF_CLIENT_MAX
            && let Some(oldest) = waiting.iter().position(of_client)
        {
            waiting.remove(oldest);
        }
        if waiting.len() >= WAITING_MAX {
            waiting.pop_front();
        }
        waiting.push_back(UntoldCancellation {
            client,
            request,
            since: now,
            told: is_told.then_some(now),
        });
        self.added.notify_one();
    }

    /// Waits until something may be due.
    pub(super) async fn some(&self) {
        let is_empty = self.waiting().is_empty();
        if is_empty {
            self.added.notified().await;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }

    /// Client and request of each that is to be told now. What is too old is forgotten.
    pub(super) fn due(&self, now: Instant) -> Vec<(KeyedHash, KeyedHash)> {
        let mut waiting = self.waiting();
        waiting.retain(|one| now.saturating_duration_since(one.since) < AGE_MAX);
        let is_due = |told: Instant| now.saturating_duration_since(told) >= AGAIN_AFTER;
        let due = waiting.iter().filter(|one| one.told.is_none_or(is_due));
        due.map(|one| (one.client, one.request)).collect()
    }

    /// Notes that the hub has taken one; after the second time it is done.
    pub(super) fn note_told(&self, request: &KeyedHash, now: Instant) {
        let mut waiting = self.waiting();
        let Some(at) = waiting.iter().position(|one| one.request == *request) else {
            return;
        };
        match waiting.get_mut(at) {
            Some(one) if one.told.is_none() => one.told = Some(now),
            _ => {
                waiting.remove(at);
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<UntoldCancellation>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> KeyedHash {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&number.to_be_bytes());
        key
    }

    #[test]
    fn a_cancellation_is_told_twice_with_a_pause_and_is_forgotten_when_it_is_old() {
        let (untold, begin) = (Untold::default(), Instant::now());
        let (a, b) = (key(1), key(2));
        untold.add(a, key(10), true, begin);
        untold.add(a, key(11), false, begin);
        untold.add(a, key(11), false, begin);
        assert_eq!(untold.due(begin), [(a, key(11))]);
        untold.note_told(&key(11), begin + Duration::from_secs(1));
        assert_eq!(untold.due(begin + AGAIN_AFTER), [(a, key(10))]);
        untold.note_told(&key(10), begin + AGAIN_AFTER);
        let later = begin + AGAIN_AFTER + Duration::from_secs(1);
        assert_eq!(untold.due(later), [(a, key(11))]);
        untold.note_told(&key(11), later);
        assert!(untold.due(later).is_empty());
        untold.add(b, key(12), false, later);
        assert_eq!(untold.due(later + AGE_MAX - Duration::from_secs(1)), [(b, key(12))]);
        assert!(untold.due(later + AGE_MAX).is_empty());
        assert!(untold.waiting().is_empty());
    }

    #[test]
    fn one_client_pushes_out_its_own_and_all_together_have_a_bound() {
        let (untold, now) = (Untold::default(), Instant::now());
        let count = |client: usize| {
            let due = untold.due(now);
            due.iter().filter(|(one, _)| *one == key(client)).count()
        };
        untold.add(key(0), key(0), false, now);
        for request in 1..=2 * OF_CLIENT_MAX {
            untold.add(key(1), key(request), false, now);
        }
        assert_eq!((count(0), count(1)), (1, OF_CLIENT_MAX));
        assert!(
            untold.due(now).contains(&(key(1), key(2 * OF_CLIENT_MAX))),
            "the newest are kept"
        );
        for client in 0..2 * WAITING_MAX {
            untold.add(key(client + 2), key(client + 10_000), false, now);
        }
        assert_eq!(untold.waiting().len(), WAITING_MAX);
    }
}
