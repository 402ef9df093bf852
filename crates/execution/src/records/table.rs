//! The table behind the records: entries, kept outcomes, and what is forgotten when.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use knack_memory::{MemoryBudget, MemoryShare};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::settings::RecordSettings;
use crate::{ExecutionError, ExecutionId, ExecutionResult};

/// The end of an execution.
pub type Outcome = Result<Arc<ExecutionResult>, ExecutionError>;

/// The caller and the id.
pub(super) type ExecutionKey = (Arc<str>, ExecutionId);

/// The table, shared by the records, their runs and their waiters.
#[derive(Debug)]
pub(super) struct SharedTable {
    /// The memory for the kept outcomes of all tables of this process.
    pub(super) memory: Option<MemoryBudget>,
    table: Mutex<RecordTable>,
    /// Runs that have not ended.
    pub(super) live: AtomicUsize,
}

impl SharedTable {
    /// An empty table.
    pub(super) fn new(settings: RecordSettings, memory: Option<MemoryBudget>) -> Self {
        Self {
            memory,
            live: AtomicUsize::new(0),
            table: Mutex::new(RecordTable::new(settings)),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, RecordTable> {
        // The table is valid between any two statements that could panic, so a poisoned lock is usable.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub(super) struct RecordTable {
    pub(super) settings: RecordSettings,
    pub(super) entries: HashMap<ExecutionKey, ExecutionEntry>,
    /// Ended entries with a kept outcome, in order of their end.
    pub(super) kept: VecDeque<(Duration, ExecutionKey)>,
    pub(super) kept_bytes: u64,
    /// Ended entries with a kept outcome, by the names under which they ran.
    pub(super) kept_by: HashMap<Arc<str>, SharerOutcomes>,
    /// Every key by the time that its id stops being accepted.
    pub(super) expiry: BTreeSet<(Duration, ExecutionKey)>,
    /// Unknown ids from before this time are gone: what an earlier owner ran then is not known any more.
    pub(super) floor: Duration,
    /// Ids that an earlier owner started for an unknown caller. At most one for each of its pods.
    pub(super) refused: BTreeSet<ExecutionId>,
}

/// The kept outcomes of one sharer, oldest first. Those that have become tombstones meanwhile are passed over.
#[derive(Debug, Default)]
pub(super) struct SharerOutcomes {
    pub(super) bytes: u64,
    pub(super) keys: VecDeque<ExecutionKey>,
}

#[derive(Debug)]
pub(super) enum ExecutionEntry {
    Live(Live),
    Ended {
        skill: Option<String>,
        outcome: Outcome,
        bytes: u64,
        sharer: Arc<str>,
        /// Its share of what all tables of the process may keep.
        _kept: Option<MemoryShare>,
    },
    Tombstone,
}

#[derive(Debug)]
pub(super) struct Live {
    pub(super) skill: Option<String>,
    pub(super) sharer: Arc<str>,
    pub(super) running: bool,
    pub(super) waiters: usize,
    pub(super) outcome: watch::Sender<Option<Outcome>>,
    pub(super) cancel: CancellationToken,
}

impl RecordTable {
    fn new(settings: RecordSettings) -> Self {
        Self {
            settings,
            entries: HashMap::new(),
            kept: VecDeque::new(),
            kept_bytes: 0,
            kept_by: HashMap::new(),
            expiry: BTreeSet::new(),
            floor: Duration::ZERO,
            refused: BTreeSet::new(),
        }
    }

    pub(super) fn check_age(&self, now: Duration, id: ExecutionId) -> Result<(), ExecutionError> {
        if id.time() + self.settings.horizon() < now {
            return Err(ExecutionError::Gone);
        }
        if RecordSettings::is_ahead(id, now) {
            let seconds = id.time().saturating_sub(now).as_secs();
            return Err(ExecutionError::Invalid(format!(
                "the time in the execution id is {seconds} s in the future; correct the clock of the machine that sent \
                 the request, or of the one that runs code"
            )));
        }
        Ok(())
    }

    /// Turns outcomes past their retention into tombstones and forgets tombstones whose ids are refused by age. Those ids are refused
    /// from then on also by the floor: a clock that is stepped back would accept them again.
    pub(super) fn prune(&mut self, now: Duration) {
        while let Some((ended, _)) = self.kept.front()
            && *ended + self.settings.retention < now
        {
            let Some((_, key)) = self.kept.pop_front() else { break };
            self.remember_gone(&key);
        }
        while self.kept_bytes > self.settings.max_bytes && self.evict() {}
        while self.expiry.first().is_some_and(|(expiry, _)| *expiry < now) {
            let Some((_, key)) = self.expiry.pop_first() else { break };
            let after = key.1.time() + Duration::from_millis(1);
            match self.entries.get(&key) {
                // A run outlives its id only if its limit is longer than the retention; it is forgotten at its end.
                Some(ExecutionEntry::Live(_)) | None => {}
                Some(ExecutionEntry::Ended { .. }) => {
                    self.remember_gone(&key);
                    self.entries.remove(&key);
                    self.floor = self.floor.max(after);
                }
                Some(ExecutionEntry::Tombstone) => {
                    self.entries.remove(&key);
                    self.floor = self.floor.max(after);
                }
            }
        }
    }

    /// Makes the oldest outcome of the sharer with the most bytes a tombstone. False: there is none.
    fn evict(&mut self) -> bool {
        let most = self.kept_by.iter().max_by_key(|(_, kept)| kept.bytes);
        let Some(sharer) = most.map(|(sharer, _)| Arc::clone(sharer)) else {
            return false;
        };
        let Some(key) = self.kept_by.get_mut(&sharer).and_then(|kept| kept.keys.pop_front()) else {
            return self.kept_by.remove(&sharer).is_some();
        };
        self.remember_gone(&key);
        true
    }

    fn remember_gone(&mut self, key: &ExecutionKey) {
        if let Some(entry) = self.entries.get_mut(key)
            && let ExecutionEntry::Ended { bytes, sharer, .. } = entry
        {
            self.kept_bytes = self.kept_bytes.saturating_sub(*bytes);
            if let Some(kept) = self.kept_by.get_mut(sharer) {
                kept.bytes = kept.bytes.saturating_sub(*bytes);
                if kept.keys.front() == Some(key) {
                    kept.keys.pop_front();
                }
                if kept.keys.is_empty() {
                    self.kept_by.remove(sharer);
                }
            }
            *entry = ExecutionEntry::Tombstone;
        }
    }

    /// Room for an outcome in what all tables keep together; its own sharer's oldest make way for it.
    pub(super) fn room(&mut self, memory: &MemoryBudget, sharer: &Arc<str>, bytes: u64) -> Option<MemoryShare> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        loop {
            match memory.try_take(bytes) {
                Ok(share) => return Some(share),
                Err(over) if over.is_final() => return None,
                Err(_) => {}
            }
            let own = self.kept_by.get_mut(sharer).and_then(|kept| kept.keys.pop_front());
            match own {
                Some(key) => self.remember_gone(&key),
                None if self.evict() => {}
                // Other runtimes hold it all.
                None => return None,
            }
        }
    }

    pub(super) fn forget(&mut self, key: &ExecutionKey) {
        self.entries.remove(key);
        self.expiry
            .remove(&(key.1.time() + self.settings.horizon(), key.clone()));
    }
}
