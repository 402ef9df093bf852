//! The values that the hub keeps for this gateway, from its stream: values that are not in the index are never
//! requested.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;

use knack_hub_api::{KeptKey, KeptValue};

/// Values in the index, the latest first; each takes about 600 bytes. As many as a hub holds under the chart's limit,
/// where each takes a KiB at least.
const VALUES_MAX: usize = 16 << 10;

/// The index.
#[derive(Debug, Default)]
pub(super) struct ReplicaIndex {
    /// In the order of arrival.
    values: BTreeMap<u64, Arc<KeptValue>>,
    by_key: HashMap<(KeptKey, KeptKey), u64>,
    /// How many values of hidden turns each client has.
    clients: HashMap<KeptKey, usize>,
    /// How many there are with each beginning of a conversation.
    openings: HashMap<(KeptKey, KeptKey), usize>,
    next: u64,
}

impl ReplicaIndex {
    /// A value that can be asked for; an older one under one of its keys is replaced.
    pub(super) fn add(&mut self, value: KeptValue) {
        for key in &value.keys {
            if let Some(at) = self.by_key.get(&(value.client, *key)).copied() {
                self.remove(at);
            }
        }
        while self.values.len() >= VALUES_MAX {
            let Some(at) = self.values.first_key_value().map(|(at, _)| *at) else {
                break;
            };
            self.remove(at);
        }
        self.next += 1;
        for key in &value.keys {
            self.by_key.insert((value.client, *key), self.next);
        }
        if let Some(opening) = value.opening {
            *self.clients.entry(value.client).or_default() += 1;
            *self.openings.entry((value.client, opening)).or_default() += 1;
        }
        self.values.insert(self.next, Arc::new(value));
    }

    /// Whether there is a hidden turn of this client.
    pub(super) fn knows_client(&self, client: &KeptKey) -> bool {
        self.clients.contains_key(client)
    }

    /// Whether there is a hidden turn of a conversation of this client that begins so.
    pub(super) fn knows_opening(&self, client: &KeptKey, opening: &KeptKey) -> bool {
        self.openings.contains_key(&(*client, *opening))
    }

    /// The value under a key of a client.
    pub(super) fn find(&self, client: &KeptKey, key: &KeptKey) -> Option<Arc<KeptValue>> {
        let at = self.by_key.get(&(*client, *key))?;
        self.values.get(at).cloned()
    }

    /// A value that is not there any more.
    pub(super) fn forget(&mut self, client: &KeptKey, key: &KeptKey) {
        if let Some(at) = self.by_key.get(&(*client, *key)).copied() {
            self.remove(at);
        }
    }

    /// How many values are known.
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    fn remove(&mut self, at: u64) {
        let Some(value) = self.values.remove(&at) else { return };
        for key in &value.keys {
            self.by_key.remove(&(value.client, *key));
        }
        if let Some(opening) = value.opening {
            count_down(&mut self.clients, &value.client);
            count_down(&mut self.openings, &(value.client, opening));
        }
    }
}

/// One less under a name; the last one removes the name.
fn count_down<K: Eq + Hash>(counts: &mut HashMap<K, usize>, name: &K) {
    if let Some(count) = counts.get_mut(name) {
        *count -= 1;
        if *count == 0 {
            counts.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: usize) -> KeptKey {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&n.to_be_bytes());
        KeptKey(key)
    }

    fn value(client: usize, keys: &[usize], opening: Option<usize>) -> KeptValue {
        KeptValue {
            client: key(client),
            keys: keys.iter().map(|n| key(*n)).collect(),
            opening: opening.map(key),
            bytes: 1,
        }
    }

    #[test]
    fn only_conversations_with_hidden_turns_are_asked_for() {
        let mut index = ReplicaIndex::default();
        index.add(value(1, &[10, 11], Some(100)));
        index.add(value(2, &[20], None));
        for (client, opening, expected) in [
            (1, 100, (true, true)),
            (1, 101, (true, false)),
            (2, 100, (false, false)),
            (3, 100, (false, false)),
        ] {
            let actual = (
                index.knows_client(&key(client)),
                index.knows_opening(&key(client), &key(opening)),
            );
            assert_eq!(actual, expected, "{client} {opening}");
        }
        for (client, at, expected) in [
            (1, 10, true),
            (1, 11, true),
            (1, 20, false),
            (2, 20, true),
            (2, 10, false),
        ] {
            assert_eq!(index.find(&key(client), &key(at)).is_some(), expected, "{client} {at}");
        }
    }

    #[test]
    fn what_is_replaced_or_gone_leaves_nothing_behind() {
        let mut index = ReplicaIndex::default();
        index.add(value(1, &[10, 11], Some(100)));
        index.add(value(1, &[11], Some(101)));
        assert!(index.find(&key(1), &key(10)).is_none() && !index.knows_opening(&key(1), &key(100)));
        index.forget(&key(1), &key(10));
        assert!(index.knows_client(&key(1)));
        index.forget(&key(1), &key(11));
        assert!(!index.knows_client(&key(1)) && index.openings.is_empty() && index.by_key.is_empty());
        assert_eq!(index.len(), 0);
    }

    #[test]
    fn the_oldest_values_go_first_and_the_bound_holds() {
        let mut index = ReplicaIndex::default();
        for n in 0..VALUES_MAX + 2 {
            index.add(value(n, &[n], Some(n)));
        }
        assert_eq!(
            (index.len(), index.clients.len(), index.by_key.len()),
            (VALUES_MAX, VALUES_MAX, VALUES_MAX)
        );
        assert!(index.find(&key(1), &key(1)).is_none() && index.find(&key(2), &key(2)).is_some());
    }
}
