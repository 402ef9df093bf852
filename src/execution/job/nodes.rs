//! What probes told of every node: a network plugin can enforce policies on one and not on another. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// A probe holds for this long: a network plugin that is replaced is seen within the hour.
const EVERY: Duration = Duration::from_hours(1);
/// A probe that learnt nothing is repeated after this long.
pub(super) const AGAIN: Duration = Duration::from_mins(1);
/// Nodes probed in one look: each costs a pod, and a runtime that grows by a hundred nodes must not pay at once.
const PER_LOOK: usize = 8;

/// What is known, by node.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    seen: BTreeMap<String, Seen>,
}

/// Whether sandboxes were found sealed, and when.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    pub(super) at: Instant,
    /// `None`: nothing was learnt.
    pub(super) told: Option<bool>,
}

impl Seen {
    /// Whether it is to be asked again.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        let holds_for = if self.told.is_some() { EVERY } else { AGAIN };
        now.duration_since(self.at) >= holds_for
    }
}

impl Nodes {
    /// Nodes that are to be probed, of those that sandboxes stand on; those without are forgotten with the hour.
    pub(super) fn due(&mut self, now: Instant, live: &BTreeSet<String>) -> Vec<String> {
        self.seen
            .retain(|node, seen| live.contains(node) || now.duration_since(seen.at) < EVERY);
        let is_due = |node: &&String| self.seen.get(*node).is_none_or(|seen| seen.is_due(now));
        live.iter().filter(is_due).take(PER_LOOK).cloned().collect()
    }

    /// Whether nothing is known at all.
    pub(super) fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }

    /// Takes what a probe told.
    pub(super) fn tell(&mut self, node: String, at: Instant, enforces: Option<bool>) {
        self.seen.insert(node, Seen { at, told: enforces });
    }

    /// Whether policies hold wherever it was asked. `None`: nowhere was anything learnt.
    pub(super) fn enforces(&self) -> Option<bool> {
        let told = || self.seen.values().filter_map(|seen| seen.told);
        told().next()?;
        Some(told().all(|enforces| enforces))
    }

    /// Nodes that let sandboxes out, in order.
    pub(super) fn open(&self) -> Vec<String> {
        let open = self.seen.iter().filter(|(_, seen)| seen.told == Some(false));
        open.map(|(node, _)| node.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn every_node_with_sandboxes_is_asked_once_an_hour() {
        let begin = Instant::now();
        let mut nodes = Nodes::default();
        assert_eq!(nodes.due(begin, &live(&["a", "b"])), ["a", "b"]);
        nodes.tell("a".to_owned(), begin, Some(true));
        nodes.tell("b".to_owned(), begin, None);
        assert!(nodes.due(begin + AGAIN / 2, &live(&["a", "b"])).is_empty());
        assert_eq!(nodes.due(begin + AGAIN, &live(&["a", "b", "c"])), ["b", "c"]);
        assert_eq!(nodes.due(begin + EVERY, &live(&["a"])), ["a"]);
        let many: Vec<String> = (0..100).map(|number| format!("n{number}")).collect();
        let many = many.into_iter().collect();
        assert_eq!(nodes.due(begin, &many).len(), PER_LOOK);
    }

    #[test]
    fn one_open_node_is_a_cluster_that_does_not_enforce() {
        let begin = Instant::now();
        for (told, enforces, open) in [
            (vec![], None, vec![]),
            (vec![("a", None)], None, vec![]),
            (vec![("a", Some(true)), ("b", None)], Some(true), vec![]),
            (vec![("a", Some(true)), ("b", Some(false))], Some(false), vec!["b"]),
        ] {
            let mut nodes = Nodes::default();
            for (node, enforces) in told {
                nodes.tell(node.to_owned(), begin, enforces);
            }
            assert_eq!(nodes.enforces(), enforces);
            assert_eq!(nodes.open(), open);
        }
    }

    #[test]
    fn a_node_that_is_gone_is_forgotten_within_the_hour() {
        let begin = Instant::now();
        let mut nodes = Nodes::default();
        nodes.tell("a".to_owned(), begin, Some(false));
        nodes.due(begin + EVERY / 2, &live(&[]));
        assert_eq!(nodes.enforces(), Some(false));
        nodes.due(begin + EVERY, &live(&[]));
        assert!(nodes.is_empty());
    }
}
