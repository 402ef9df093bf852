//! Which Skills may fetch and unpack an archive now. Reconciles of Skills are bounded, and an archive can hold one for a minute: without permits,
//! one tenant's slow server would keep every other Skill of the cluster waiting.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::controller::settings::SKILL_CONCURRENCY;

/// Archives that are read at once: half of the reconciles, so that the other Skills have the other half.
const PERMITS: usize = SKILL_CONCURRENCY as usize / 2;
/// Permits of one namespace: other namespaces get a permit at once.
const PERMITS_OF_ONE: usize = PERMITS / 2;
/// Permits that only namespaces without any get: a tenant may have several namespaces, and two of them would hold all.
const PERMITS_OF_NEW: usize = PERMITS / 4;
/// When Skills that got no permit ask again, for each of their namespace that waits: two hundred questions a second, however many wait.
const PAUSE_FOR_EACH: Duration = Duration::from_millis(5);
/// Shortest pause: a Skill that waits alone asks again soon.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// The permits that are taken.
#[derive(Debug, Clone, Default)]
pub(in crate::controller) struct ArchivePermits(Arc<Mutex<PermitCounts>>);

#[derive(Debug, Default)]
struct PermitCounts {
    /// How many each namespace has.
    held: BTreeMap<String, usize>,
    /// Skills that got none, by namespace and name. One that has not asked again by this time asks no more.
    waiting: BTreeMap<(String, String), Instant>,
}

/// A permit, given back when dropped.
#[derive(Debug)]
pub(super) struct ArchivePermit {
    permits: ArchivePermits,
    namespace: String,
}

impl ArchivePermits {
    /// A permit for a Skill. Of those that wait, the namespace with the fewest permits comes first.
    ///
    /// Errors: there is none; ask again after this time.
    pub(super) fn take(&self, namespace: &str, name: &str, now: Instant) -> Result<ArchivePermit, Duration> {
        self.locked(|permits| permits.take(namespace, name, now))?;
        Ok(ArchivePermit {
            permits: self.clone(),
            namespace: namespace.to_owned(),
        })
    }

    fn locked<T>(&self, change: impl FnOnce(&mut PermitCounts) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for ArchivePermit {
    fn drop(&mut self) {
        self.permits.locked(|permits| permits.give_back(&self.namespace));
    }
}

impl PermitCounts {
    fn held_by(&self, namespace: &str) -> usize {
        self.held.get(namespace).copied().unwrap_or(0)
    }

    fn take(&mut self, namespace: &str, name: &str, now: Instant) -> Result<(), Duration> {
        let key = (namespace.to_owned(), name.to_owned());
        self.waiting.retain(|_, until| now < *until);
        self.waiting.remove(&key);
        let own = self.held_by(namespace);
        let is_next = self.waiting.keys().all(|(other, _)| own <= self.held_by(other));
        let most = if own == 0 { PERMITS } else { PERMITS - PERMITS_OF_NEW };
        if self.held.values().sum::<usize>() < most && own < PERMITS_OF_ONE && is_next {
            self.held.insert(key.0, own + 1);
            return Ok(());
        }
        let others = self.waiting.keys().filter(|(other, _)| other == namespace).count();
        let waiting = u32::try_from(others + 1).unwrap_or(u32::MAX);
        let pause = PAUSE_FOR_EACH.saturating_mul(waiting).clamp(PAUSE_MIN, PAUSE_MAX);
        self.waiting.insert(key, now + 2 * pause);
        Err(pause)
    }

    fn give_back(&mut self, namespace: &str) {
        match self.held_by(namespace) {
            0 | 1 => drop(self.held.remove(namespace)),
            more => drop(self.held.insert(namespace.to_owned(), more - 1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Skills of a namespace ask until one gets no permit.
    fn all_of(permits: &ArchivePermits, namespace: &str, now: Instant) -> Vec<ArchivePermit> {
        let mut number = 0;
        std::iter::from_fn(|| {
            number += 1;
            permits.take(namespace, &number.to_string(), now).ok()
        })
        .collect()
    }

    #[test]
    fn one_namespace_has_half_of_the_permits_and_the_others_find_one_at_once() {
        let (permits, now) = (ArchivePermits::default(), Instant::now());
        let held = all_of(&permits, "greedy", now);
        assert_eq!(held.len(), PERMITS_OF_ONE);
        let _other = permits.take("modest", "x", now).unwrap();
        drop(held);
        permits.take("greedy", "x", now).expect("they come back");
    }

    #[test]
    fn two_namespaces_leave_permits_for_those_that_have_none() {
        let (permits, now) = (ArchivePermits::default(), Instant::now());
        let held = [all_of(&permits, "a", now), all_of(&permits, "b", now)];
        assert_eq!(held.iter().map(Vec::len).sum::<usize>(), PERMITS - PERMITS_OF_NEW);
        let others: Vec<_> = (0..PERMITS_OF_NEW)
            .map(|number| all_of(&permits, &format!("other{number}"), now))
            .collect();
        assert!(others.iter().all(|held| held.len() == 1), "{others:?}");
        permits.take("late", "x", now).expect_err("all are taken");
    }

    /// All permits: those of namespace `a`, and those of others.
    fn all_taken(permits: &ArchivePermits, now: Instant) -> (Vec<ArchivePermit>, Vec<ArchivePermit>) {
        let first = all_of(permits, "a", now);
        let others = ["b", "c", "d"].map(|namespace| all_of(permits, namespace, now));
        let others: Vec<_> = others.into_iter().flatten().collect();
        assert_eq!(first.len() + others.len(), PERMITS);
        // Those that got none are forgotten.
        permits.locked(|permits| permits.waiting.clear());
        (first, others)
    }

    #[test]
    fn a_permit_that_becomes_free_goes_to_the_namespace_with_the_fewest() {
        let (permits, now) = (ArchivePermits::default(), Instant::now());
        let (mut first, _others) = all_taken(&permits, now);
        permits.take("modest", "x", now).expect_err("all are taken");
        first.pop();
        permits.take("a", "x", now).expect_err("another is next");
        permits.take("b", "x", now).expect_err("another is next");
        permits.take("modest", "x", now).expect("it is next");
    }

    #[test]
    fn a_skill_that_asks_no_more_keeps_nobody_waiting() {
        let (permits, now) = (ArchivePermits::default(), Instant::now());
        let (mut first, _others) = all_taken(&permits, now);
        let pause = permits.take("gone", "x", now).unwrap_err();
        first.truncate(1);
        permits
            .take("a", "x", now + pause)
            .expect_err("the other may ask again");
        permits.take("a", "x", now + 2 * pause).expect("the other did not ask");
    }

    #[test]
    fn the_more_wait_the_later_they_ask() {
        let (permits, now) = (ArchivePermits::default(), Instant::now());
        let _held = all_of(&permits, "a", now);
        let pauses: Vec<Duration> = (0..2000)
            .map(|number| permits.take("a", &format!("s{number}"), now).unwrap_err())
            .collect();
        assert_eq!((pauses[0], pauses[1999]), (PAUSE_MIN, PAUSE_MAX));
        assert!(pauses.is_sorted());
        assert_eq!(
            permits.take("b", "x", now).map(drop),
            Ok(()),
            "others do not wait for them"
        );
    }
}
