//! The store: bounded in bytes and time, fair between gateways and between the clients of one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use knack_hub_api::{KeptKey, KeptValue, RuntimeName};
use knack_memory::{MemoryBudget, MemoryShare};
use prometheus_client::metrics::counter::Counter;
use tokio::sync::broadcast;
use tokio::time::Instant;

/// Share of the process's memory budget for kept values: under the chart's limit of 512 MiB, 32 MiB, which is thousands of
/// hidden turns and some dozens of files. More would be taken from runs and their results.
const BUDGET_DIVISOR: usize = 8;
/// A value that is not read for this time is dropped, as in the gateways' own stores.
const KEPT_IDLE: Duration = Duration::from_hours(1);
/// The cost of a value besides its bytes: its keys and the entries in the maps.
const ENTRY_BYTES: usize = 1 << 10;
/// New values that wait to be announced to a replica of the gateway; one that falls further behind starts over. As many
/// as a busy gateway makes in several seconds; each costs a few bytes for each gateway.
const NEWS_WAITING: usize = 256;

/// The owner of the values: one account at one runtime. No other account reads or writes them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ValueOwner {
    /// `<namespace>/<name>/<uid>` of the gateway's ServiceAccount.
    pub account: String,
    /// The runtime.
    pub runtime: RuntimeName,
}

/// There is no room for a value: other parts of the process hold too much.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not enough memory for stored values")]
pub struct NoRoom;

/// The values of all gateways.
#[derive(Debug)]
pub struct KeptStore {
    memory: MemoryBudget,
    evicted: Counter,
    inner: Mutex<StoredValues>,
}

#[derive(Debug, Default)]
struct StoredValues {
    by_owner: HashMap<ValueOwner, GatewayValues>,
    next: u64,
}

/// The values of one gateway.
#[derive(Debug)]
struct GatewayValues {
    bytes: usize,
    clients: HashMap<KeptKey, ClientValues>,
    /// The clients by the bytes that they hold, the largest last.
    by_bytes: BTreeSet<(usize, KeptKey)>,
    news: broadcast::Sender<Arc<KeptValue>>,
}

impl Default for GatewayValues {
    fn default() -> Self {
        Self {
            bytes: 0,
            clients: HashMap::new(),
            by_bytes: BTreeSet::new(),
            news: broadcast::channel(NEWS_WAITING).0,
        }
    }
}

/// The values of one client of a gateway.
#[derive(Debug, Default)]
struct ClientValues {
    bytes: usize,
    by_key: HashMap<KeptKey, u64>,
    /// Least recently used first.
    entries: BTreeMap<u64, HeldValue>,
}

#[derive(Debug)]
struct HeldValue {
    value: Arc<KeptValue>,
    sealed: Bytes,
    share: MemoryShare,
    used: Instant,
}

impl KeptStore {
    /// An empty store with its part of a process's memory. `evicted` counts values that made room for others.
    pub fn new(whole: &MemoryBudget, evicted: Counter) -> Self {
        Self {
            memory: whole.part(whole.total_bytes() / BUDGET_DIVISOR),
            evicted,
            inner: Mutex::default(),
        }
    }

    /// Keeps a value; an older one under one of its keys is replaced. Room is taken from the largest holder: the
    /// gateway with the most bytes, of its clients the one with the most, and of that one's values the least recently
    /// used.
    pub fn put(&self, owner: &ValueOwner, value: KeptValue, sealed: Bytes) -> Result<(), NoRoom> {
        let cost = sealed.len() + ENTRY_BYTES;
        if cost > self.memory.total_bytes() {
            return Err(NoRoom);
        }
        let mut inner = self.lock();
        // A message: it takes no room, and is for those who listen now.
        if value.cancels().is_some() {
            if let Some(values) = inner.by_owner.get(owner) {
                // It is no error if there is no receiver.
                let _ = values.news.send(Arc::new(value));
            }
            return Ok(());
        }
        if let Some(values) = inner.by_owner.get_mut(owner) {
            for key in &value.keys {
                values.remove(&value.client, key);
            }
        }
        let share = loop {
            match self.memory.try_take(cost) {
                Ok(share) => break share,
                // Other parts of the process leave no room: evicting values of the store would not help.
                Err(_) if self.memory.free_bytes() >= cost => return Err(NoRoom),
                Err(_) if !inner.evict() => return Err(NoRoom),
                Err(_) => {
                    self.evicted.inc();
                }
            }
        };
        inner.next += 1;
        let used = inner.next;
        let values = inner.by_owner.entry(owner.clone()).or_default();
        let value = Arc::new(value);
        let entry = HeldValue {
            value: Arc::clone(&value),
            sealed,
            share,
            used: Instant::now(),
        };
        values.insert(used, entry);
        // It is no error if there is no receiver.
        let _ = values.news.send(value);
        Ok(())
    }

    /// The value under a key of a client, if it is still there; counts as a use.
    pub fn get(&self, owner: &ValueOwner, client: &KeptKey, key: &KeptKey) -> Option<Bytes> {
        let mut inner = self.lock();
        inner.next += 1;
        let next = inner.next;
        let values = inner.by_owner.get_mut(owner)?;
        let of_client = values.clients.get_mut(client)?;
        let at = *of_client.by_key.get(key)?;
        if of_client.entries.get(&at)?.used.elapsed() > KEPT_IDLE {
            values.remove(client, key);
            return None;
        }
        let mut entry = of_client.entries.remove(&at)?;
        entry.used = Instant::now();
        for key in &entry.value.keys {
            of_client.by_key.insert(*key, next);
        }
        let sealed = entry.sealed.clone();
        of_client.entries.insert(next, entry);
        Some(sealed)
    }

    /// The current values of an owner, and a receiver of new ones.
    pub fn follow(&self, owner: &ValueOwner) -> (Vec<Arc<KeptValue>>, broadcast::Receiver<Arc<KeptValue>>) {
        let mut inner = self.lock();
        let of_gateway = inner.by_owner.entry(owner.clone()).or_default();
        let values = of_gateway.clients.values().flat_map(|client| client.entries.values());
        let values = values.filter(|entry| entry.used.elapsed() <= KEPT_IDLE);
        let values = values.map(|entry| Arc::clone(&entry.value)).collect();
        (values, of_gateway.news.subscribe())
    }

    /// Drops values that were not read in time, and owners that have none left.
    pub fn prune(&self) {
        let mut inner = self.lock();
        for values in inner.by_owner.values_mut() {
            let clients: Vec<KeptKey> = values.clients.keys().copied().collect();
            for client in clients {
                while values.oldest(&client).is_some_and(|used| used.elapsed() > KEPT_IDLE) {
                    values.remove_oldest(&client);
                }
            }
        }
        inner
            .by_owner
            .retain(|_, values| !values.clients.is_empty() || values.news.receiver_count() > 0);
    }

    /// Values and their bytes, for metrics.
    pub fn usage(&self) -> (usize, usize) {
        let inner = self.lock();
        let clients = inner.by_owner.values().flat_map(|values| values.clients.values());
        (
            clients.map(|client| client.entries.len()).sum(),
            self.memory.held_bytes(),
        )
    }

    /// A poisoned lock holds a consistent-enough cache: the worst case is a miss.
    fn lock(&self) -> MutexGuard<'_, StoredValues> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StoredValues {
    /// Evicts one value of the largest holder; false: there is none.
    fn evict(&mut self) -> bool {
        let largest = self.by_owner.values_mut().max_by_key(|values| values.bytes);
        let Some(values) = largest else { return false };
        let Some((_, client)) = values.by_bytes.last().copied() else {
            return false;
        };
        values.remove_oldest(&client);
        true
    }
}

impl GatewayValues {
    fn insert(&mut self, used: u64, entry: HeldValue) {
        let client = entry.value.client;
        let of_client = self.clients.entry(client).or_default();
        let before = of_client.bytes;
        of_client.bytes += entry.share.bytes();
        self.bytes += entry.share.bytes();
        for key in &entry.value.keys {
            of_client.by_key.insert(*key, used);
        }
        of_client.entries.insert(used, entry);
        self.by_bytes.remove(&(before, client));
        self.by_bytes.insert((of_client.bytes, client));
    }

    fn remove(&mut self, client: &KeptKey, key: &KeptKey) {
        let at = self.clients.get(client).and_then(|of_client| of_client.by_key.get(key));
        if let Some(at) = at.copied() {
            self.remove_at(client, at);
        }
    }

    fn remove_oldest(&mut self, client: &KeptKey) {
        let first = self
            .clients
            .get(client)
            .and_then(|of_client| of_client.entries.first_key_value());
        if let Some(at) = first.map(|(at, _)| *at) {
            self.remove_at(client, at);
        }
    }

    fn remove_at(&mut self, client: &KeptKey, at: u64) {
        let Some(of_client) = self.clients.get_mut(client) else {
            return;
        };
        let Some(entry) = of_client.entries.remove(&at) else {
            return;
        };
        for key in &entry.value.keys {
            of_client.by_key.remove(key);
        }
        self.by_bytes.remove(&(of_client.bytes, *client));
        of_client.bytes -= entry.share.bytes();
        self.bytes -= entry.share.bytes();
        if of_client.entries.is_empty() {
            self.clients.remove(client);
        } else {
            self.by_bytes.insert((of_client.bytes, *client));
        }
    }

    fn oldest(&self, client: &KeptKey) -> Option<Instant> {
        let entries = &self.clients.get(client)?.entries;
        entries.first_key_value().map(|(_, entry)| entry.used)
    }
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
