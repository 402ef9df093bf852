//! Who may fetch and unpack an archive now. Reconciles of Skills are bounded, and an archive can hold one for a minute: without turns,
//! one tenant's slow server would keep every other Skill of the cluster waiting.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::super::settings::SKILL_CONCURRENCY;

/// Archives that are read at once: half of the reconciles, so that the other Skills have the other half.
const TURNS: usize = SKILL_CONCURRENCY as usize / 2;
/// Those of one namespace: the others find a turn at once.
const TURNS_OF_ONE: usize = TURNS / 2;
/// When Skills that got no turn ask again, for each of their namespace that waits: two hundred questions a second, however many wait.
const PAUSE_FOR_EACH: Duration = Duration::from_millis(5);
/// One that waits alone asks again soon.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// The turns that are taken.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct ArchiveTurns(Arc<Mutex<Turns>>);

#[derive(Debug, Default)]
struct Turns {
    /// How many each namespace has.
    held: BTreeMap<String, usize>,
    /// Skills that got none, by namespace and name. One that has not asked again by this time asks no more.
    waiting: BTreeMap<(String, String), Instant>,
}

/// A turn, given back when dropped.
#[derive(Debug)]
pub(super) struct ArchiveTurn {
    turns: ArchiveTurns,
    namespace: String,
}

impl ArchiveTurns {
    /// A turn for a Skill. Of those that wait, the namespace with the fewest turns comes first.
    ///
    /// Errors: there is none; ask again after this time.
    pub(super) fn take(&self, namespace: &str, name: &str, now: Instant) -> Result<ArchiveTurn, Duration> {
        self.locked(|turns| turns.take(namespace, name, now))?;
        Ok(ArchiveTurn {
            turns: self.clone(),
            namespace: namespace.to_owned(),
        })
    }

    fn locked<T>(&self, change: impl FnOnce(&mut Turns) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for ArchiveTurn {
    fn drop(&mut self) {
        self.turns.locked(|turns| turns.give_back(&self.namespace));
    }
}

impl Turns {
    fn held_by(&self, namespace: &str) -> usize {
        self.held.get(namespace).copied().unwrap_or(0)
    }

    fn take(&mut self, namespace: &str, name: &str, now: Instant) -> Result<(), Duration> {
        let key = (namespace.to_owned(), name.to_owned());
        self.waiting.retain(|_, until| now < *until);
        self.waiting.remove(&key);
        let own = self.held_by(namespace);
        let is_next = self.waiting.keys().all(|(other, _)| own <= self.held_by(other));
        if self.held.values().sum::<usize>() < TURNS && own < TURNS_OF_ONE && is_next {
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

    /// Skills of a namespace ask until one gets no turn.
    fn all_of(turns: &ArchiveTurns, namespace: &str, now: Instant) -> Vec<ArchiveTurn> {
        let mut number = 0;
        std::iter::from_fn(|| {
            number += 1;
            turns.take(namespace, &number.to_string(), now).ok()
        })
        .collect()
    }

    #[test]
    fn one_namespace_has_half_of_the_turns_and_the_others_find_one_at_once() {
        let (turns, now) = (ArchiveTurns::default(), Instant::now());
        let held = all_of(&turns, "greedy", now);
        assert_eq!(held.len(), TURNS_OF_ONE);
        let _other = turns.take("modest", "x", now).unwrap();
        drop(held);
        turns.take("greedy", "x", now).expect("they come back");
    }

    #[test]
    fn a_turn_that_becomes_free_goes_to_the_namespace_with_the_fewest() {
        let (turns, now) = (ArchiveTurns::default(), Instant::now());
        let mut first = all_of(&turns, "a", now);
        let _second = all_of(&turns, "b", now);
        turns.take("modest", "x", now).expect_err("all are taken");
        first.pop();
        turns.take("a", "x", now).expect_err("another is next");
        turns.take("b", "x", now).expect_err("another is next");
        turns.take("modest", "x", now).expect("it is its turn");
    }

    #[test]
    fn a_skill_that_asks_no_more_keeps_nobody_waiting() {
        let (turns, now) = (ArchiveTurns::default(), Instant::now());
        let mut first = all_of(&turns, "a", now);
        let _second = all_of(&turns, "b", now);
        let pause = turns.take("gone", "x", now).unwrap_err();
        first.pop();
        turns.take("a", "x", now + pause).expect_err("the other may ask again");
        turns.take("a", "x", now + 2 * pause).expect("the other did not ask");
    }

    #[test]
    fn the_more_wait_the_later_they_ask() {
        let (turns, now) = (ArchiveTurns::default(), Instant::now());
        let _held = all_of(&turns, "a", now);
        let pauses: Vec<Duration> = (0..2000)
            .map(|number| turns.take("a", &format!("s{number}"), now).unwrap_err())
            .collect();
        assert_eq!((pauses[0], pauses[1999]), (PAUSE_MIN, PAUSE_MAX));
        assert!(pauses.is_sorted());
        assert_eq!(
            turns.take("b", "x", now).map(drop),
            Ok(()),
            "others do not wait for them"
        );
    }
}
