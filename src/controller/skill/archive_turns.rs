//! Who may fetch and unpack an archive now. Reconciles of Skills are bounded, and an archive can hold one for a minute: without turns,
//! one tenant's slow server would keep every other Skill of the cluster waiting.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::super::settings::SKILL_CONCURRENCY;

/// Archives that are read at once: half of the reconciles, so that the other Skills have the other half.
const TURNS: usize = SKILL_CONCURRENCY as usize / 2;
/// Those of one namespace: the others find a turn at once.
const TURNS_OF_ONE: usize = TURNS / 2;
/// When a Skill that got no turn asks again.
pub(super) const ASK_AGAIN: Duration = Duration::from_secs(1);
/// A namespace that has not asked again by then has nothing left to read.
const FORGOTTEN: Duration = Duration::from_secs(3);

/// The turns that are taken.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct ArchiveTurns(Arc<Mutex<Turns>>);

#[derive(Debug, Default)]
struct Turns {
    /// How many each namespace has.
    held: BTreeMap<String, usize>,
    /// Namespaces that got none, and when they asked last.
    waiting: BTreeMap<String, Instant>,
}

/// A turn, given back when dropped.
#[derive(Debug)]
pub(super) struct ArchiveTurn {
    turns: ArchiveTurns,
    namespace: String,
}

impl ArchiveTurns {
    /// A turn for a Skill of a namespace; `None`: ask again after [`ASK_AGAIN`]. Of those that wait, the namespace with the fewest
    /// turns comes first.
    pub(super) fn take(&self, namespace: &str, now: Instant) -> Option<ArchiveTurn> {
        self.locked(|turns| turns.take(namespace, now)).then(|| ArchiveTurn {
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

    fn take(&mut self, namespace: &str, now: Instant) -> bool {
        self.waiting.retain(|_, asked| now < *asked + FORGOTTEN);
        self.waiting.remove(namespace);
        let own = self.held_by(namespace);
        let is_next = self.waiting.keys().all(|other| own <= self.held_by(other));
        if self.held.values().sum::<usize>() >= TURNS || own >= TURNS_OF_ONE || !is_next {
            self.waiting.insert(namespace.to_owned(), now);
            return false;
        }
        self.held.insert(namespace.to_owned(), own + 1);
        true
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

    #[test]
    fn one_namespace_has_half_of_the_turns_and_the_others_find_one_at_once() {
        let (turns, now) = (ArchiveTurns::default(), Instant::now());
        let held: Vec<_> = std::iter::from_fn(|| turns.take("greedy", now)).collect();
        assert_eq!(held.len(), TURNS_OF_ONE);
        let other = turns.take("modest", now);
        assert!(other.is_some());
        drop(held);
        assert!(turns.take("greedy", now).is_some(), "they come back");
    }

    #[test]
    fn a_turn_that_becomes_free_goes_to_the_namespace_with_the_fewest() {
        let (turns, now) = (ArchiveTurns::default(), Instant::now());
        let mut first: Vec<_> = std::iter::from_fn(|| turns.take("a", now)).collect();
        let _second: Vec<_> = std::iter::from_fn(|| turns.take("b", now)).collect();
        assert!(turns.take("modest", now).is_none(), "all are taken");
        first.pop();
        assert!(turns.take("a", now).is_none() && turns.take("b", now).is_none());
        assert!(turns.take("modest", now).is_some());
    }

    #[test]
    fn a_namespace_that_asks_no_more_keeps_nobody_waiting() {
        let (turns, now) = (ArchiveTurns::default(), Instant::now());
        let mut first: Vec<_> = std::iter::from_fn(|| turns.take("a", now)).collect();
        let _second: Vec<_> = std::iter::from_fn(|| turns.take("b", now)).collect();
        assert!(turns.take("gone", now).is_none());
        first.pop();
        assert!(turns.take("a", now).is_none());
        assert!(turns.take("a", now + FORGOTTEN).is_some());
    }
}
