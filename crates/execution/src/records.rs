//! At most one run per (caller, id), and its result for asking again.
//!
//! ```text
//! claim ──▶ First(run)   ── start ──▶ finish(outcome) ──▶ kept for the retention ──▶ tombstone ──▶ forgotten
//!       ──▶ Known(waiter) ◀──────────── same outcome
//! ```
//!
//! An entry, or at least its tombstone, outlives every moment at which its id could be accepted: an id is accepted until
//! [`RecordSettings::admission`] + [`RecordSettings::retention`] after the time that it carries, and a tombstone stays
//! until then. So "gone" never needs a look-up, and an id never runs twice.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use knack_memory::{MemoryBudget, MemoryShare};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{ExecutionError, ExecutionId, ExecutionRecord, ExecutionResult, ExecutionStatus};

/// Bounds of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordSettings {
    /// How long a result can be asked for after its end (`ttlSecondsAfterFinished`).
    pub retention: Duration,
    /// How old an id may be at its first run: an id carries its gateway request's start, and a request may run code
    /// until its own deadline (`gateway.injection.deadlineSeconds`).
    pub admission: Duration,
    /// Bytes of kept results together; the oldest results become tombstones first.
    pub max_bytes: u64,
    /// Entries and tombstones together; beyond it new executions are refused as if the queue were full.
    pub max_entries: usize,
}

impl RecordSettings {
    /// Age of an id at its first run that is always accepted: the default deadline of a gateway's request.
    pub const ADMISSION: Duration = Duration::from_mins(9);

    /// How long an id is accepted after the time that it carries.
    fn horizon(&self) -> Duration {
        self.admission + self.retention
    }
}

impl Default for RecordSettings {
    fn default() -> Self {
        Self {
            retention: Duration::from_mins(5),
            admission: Self::ADMISSION,
            // 16 results of the largest default size (4 MiB of files); usual results are a few KiB.
            max_bytes: 64 << 20,
            // About 120 new executions per second for the whole window, at about 200 bytes per tombstone.
            max_entries: 100_000,
        }
    }
}

/// How far ahead of this clock an id may be: clocks of gateways differ.
const MAX_CLOCK_SKEW: Duration = Duration::from_mins(1);

/// How long a caller should wait when the table is full: tombstones leave in seconds at that rate.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// The end of an execution.
pub type Outcome = Result<Arc<ExecutionResult>, ExecutionError>;

type ExecutionKey = (Arc<str>, ExecutionId);

/// The table; see the module. All times are since the Unix epoch and passed in.
#[derive(Debug)]
pub struct Records {
    /// What all tables of this process may keep together.
    memory: Option<MemoryBudget>,
    table: Mutex<RecordTable>,
    /// Runs that have not ended.
    live: AtomicUsize,
}

#[derive(Debug)]
struct RecordTable {
    settings: RecordSettings,
    entries: HashMap<ExecutionKey, KeptRecord>,
    /// Ended entries with a kept outcome, in order of their end.
    kept: VecDeque<(Duration, ExecutionKey)>,
    kept_bytes: u64,
    /// The same by the names under which they ran.
    kept_by: HashMap<Arc<str>, KeptBy>,
    /// Every key by the time that its id stops being accepted.
    expiry: BTreeSet<(Duration, ExecutionKey)>,
    /// Unknown ids from before this time are gone: what an earlier owner ran then is not known any more.
    floor: Duration,
    /// Ids that an earlier owner started for an unknown caller. At most one for each of its pods.
    refused: BTreeSet<ExecutionId>,
}

/// The kept outcomes of one sharer, oldest first. Those that have become tombstones meanwhile are passed over.
#[derive(Debug, Default)]
struct KeptBy {
    bytes: u64,
    keys: VecDeque<ExecutionKey>,
}

#[derive(Debug)]
enum KeptRecord {
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
struct Live {
    skill: Option<String>,
    sharer: Arc<str>,
    running: bool,
    waiters: usize,
    outcome: watch::Sender<Option<Outcome>>,
    cancel: CancellationToken,
}

/// The answer to a claim.
#[derive(Debug)]
pub enum Claim {
    /// The first request of this id: the caller must run it, and wait like the others.
    First(Run, Waiter),
    /// A repeated request: wait for the run of the first.
    Known(Waiter),
    /// It has ended.
    Ended(Outcome),
}

/// The right, and the duty, to run one execution. Dropped without [`Run::finish`], it ends the record as an error.
#[derive(Debug)]
pub struct Run {
    records: Arc<Records>,
    key: ExecutionKey,
    /// Cancelled when the execution must end: by `cancel`, or because there is no waiter left.
    pub cancel: CancellationToken,
    finished: bool,
}

/// A waiter for an outcome. When the last one is dropped, the run is cancelled.
#[derive(Debug)]
pub struct Waiter {
    records: Arc<Records>,
    key: ExecutionKey,
    outcome: watch::Receiver<Option<Outcome>>,
}

impl Records {
    /// An empty table.
    #[must_use]
    pub fn new(settings: RecordSettings) -> Arc<Self> {
        Self::sharing(settings, None)
    }

    /// An empty table that shares the memory for kept outcomes with other tables. A table that finds none free drops
    /// its own oldest outcomes, and then keeps none: waiters get the outcome nevertheless.
    #[must_use]
    pub fn sharing(settings: RecordSettings, memory: Option<MemoryBudget>) -> Arc<Self> {
        Arc::new(Self {
            memory,
            live: AtomicUsize::new(0),
            table: Mutex::new(RecordTable {
                settings,
                entries: HashMap::new(),
                kept: VecDeque::new(),
                kept_bytes: 0,
                kept_by: HashMap::new(),
                expiry: BTreeSet::new(),
                floor: Duration::ZERO,
                refused: BTreeSet::new(),
            }),
        })
    }

    /// Takes another retention and admission over. What was forgotten under the last ones is refused from now on, however
    /// long ids are accepted.
    pub fn renew(&self, now: Duration, retention: Duration, admission: Duration) {
        let mut table = self.lock();
        let last = table.settings.horizon();
        table.settings.retention = retention;
        table.settings.admission = admission;
        let horizon = table.settings.horizon();
        if horizon == last {
            return;
        }
        table.floor = table.floor.max(now.saturating_sub(last));
        let expiry = table.entries.keys().map(|key| (key.1.time() + horizon, key.clone()));
        table.expiry = expiry.collect();
    }

    /// Claims an id at time `now`.
    ///
    /// Errors: [`ExecutionError::Gone`] (id too old, or its result no longer kept), [`ExecutionError::Invalid`] (id from
    /// the future), [`ExecutionError::QueueFull`] (table full).
    pub fn claim(
        self: &Arc<Self>,
        now: Duration,
        caller: &str,
        id: ExecutionId,
        skill: Option<&str>,
    ) -> Result<Claim, ExecutionError> {
        let key: ExecutionKey = (Arc::from(caller), id);
        let mut table = self.lock();
        table.check_age(now, id)?;
        table.prune(now);
        let full = table.entries.len() >= table.settings.max_entries;
        let is_lost = id.time() < table.floor || table.refused.contains(&id);
        match table.entries.get_mut(&key) {
            Some(KeptRecord::Live(live)) => {
                live.waiters += 1;
                let outcome = live.outcome.subscribe();
                Ok(Claim::Known(Waiter {
                    records: Arc::clone(self),
                    key,
                    outcome,
                }))
            }
            Some(KeptRecord::Ended { outcome, .. }) => Ok(Claim::Ended(outcome.clone())),
            Some(KeptRecord::Tombstone) => Err(ExecutionError::Gone),
            None if is_lost => Err(ExecutionError::Gone),
            None if full => Err(ExecutionError::QueueFull {
                retry_after: RETRY_AFTER,
            }),
            None => Ok(self.open(&mut table, key, skill)),
        }
    }

    /// Returns the record of an id. Errors: [`ExecutionError::Gone`], [`ExecutionError::NotFound`].
    pub fn get(&self, now: Duration, caller: &str, id: ExecutionId) -> Result<ExecutionRecord, ExecutionError> {
        let mut table = self.lock();
        table.check_age(now, id)?;
        table.prune(now);
        match table.entries.get(&(Arc::from(caller), id)) {
            Some(KeptRecord::Live(live)) => {
                let status = if live.running {
                    ExecutionStatus::Running
                } else {
                    ExecutionStatus::Pending
                };
                Ok(ExecutionRecord {
                    id,
                    skill: live.skill.clone(),
                    status,
                    result: None,
                    error: None,
                })
            }
            Some(KeptRecord::Ended {
                skill,
                outcome: Ok(result),
                ..
            }) => Ok(ExecutionRecord {
                id,
                skill: skill.clone(),
                status: result.status(),
                result: Some(Arc::clone(result)),
                error: None,
            }),
            Some(KeptRecord::Ended {
                skill,
                outcome: Err(error),
                ..
            }) => Ok(ExecutionRecord {
                id,
                skill: skill.clone(),
                status: ExecutionStatus::Error,
                result: None,
                error: Some(error.to_string()),
            }),
            Some(KeptRecord::Tombstone) => Err(ExecutionError::Gone),
            None if table.refused.contains(&id) => Err(ExecutionError::Gone),
            None => Err(ExecutionError::NotFound),
        }
    }

    /// Cancels a live execution; an ended one stays as it is. Errors as [`Records::get`].
    pub fn cancel(&self, now: Duration, caller: &str, id: ExecutionId) -> Result<(), ExecutionError> {
        let table = self.lock();
        table.check_age(now, id)?;
        match table.entries.get(&(Arc::from(caller), id)) {
            Some(KeptRecord::Live(live)) => {
                live.cancel.cancel();
                Ok(())
            }
            Some(KeptRecord::Ended { .. }) => Ok(()),
            Some(KeptRecord::Tombstone) => Err(ExecutionError::Gone),
            None => Err(ExecutionError::NotFound),
        }
    }

    /// Opens a live entry for a run that an earlier owner began. Without a waiter it continues until a waiter comes and
    /// leaves, or it ends. `None`: the id is known already.
    pub fn adopt(self: &Arc<Self>, caller: &str, id: ExecutionId, skill: Option<&str>) -> Option<(Run, Waiter)> {
        let key: ExecutionKey = (Arc::from(caller), id);
        let mut table = self.lock();
        if table.entries.contains_key(&key) {
            return None;
        }
        match self.open(&mut table, key, skill) {
            Claim::First(run, waiter) => Some((run, waiter)),
            Claim::Known(_) | Claim::Ended(_) => None,
        }
    }

    /// Answers unknown ids from before `floor` as gone: an earlier owner may have run them. It is never lowered.
    pub fn raise_floor(&self, floor: Duration) {
        let mut table = self.lock();
        table.floor = table.floor.max(floor);
    }

    /// Answers this id as gone, for every caller, unless it is known: an earlier owner has started it.
    pub fn refuse(&self, id: ExecutionId) {
        self.lock().refused.insert(id);
    }

    /// Executions that have not ended.
    pub fn live(&self) -> usize {
        self.live.load(Ordering::Relaxed)
    }

    fn open(self: &Arc<Self>, table: &mut RecordTable, key: ExecutionKey, skill: Option<&str>) -> Claim {
        self.live.fetch_add(1, Ordering::Relaxed);
        let (sender, outcome) = watch::channel(None);
        let cancel = CancellationToken::new();
        let live = Live {
            sharer: Arc::clone(&key.0),
            skill: skill.map(str::to_owned),
            running: false,
            waiters: 1,
            outcome: sender,
            cancel: cancel.clone(),
        };
        table.entries.insert(key.clone(), KeptRecord::Live(live));
        let expiry = key.1.time() + table.settings.horizon();
        table.expiry.insert((expiry, key.clone()));
        let run = Run {
            records: Arc::clone(self),
            key: key.clone(),
            cancel,
            finished: false,
        };
        Claim::First(
            run,
            Waiter {
                records: Arc::clone(self),
                key,
                outcome,
            },
        )
    }

    fn lock(&self) -> MutexGuard<'_, RecordTable> {
        // The table is valid between any two statements that could panic, so a poisoned lock is usable.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RecordTable {
    fn check_age(&self, now: Duration, id: ExecutionId) -> Result<(), ExecutionError> {
        if id.time() + self.settings.horizon() < now {
            return Err(ExecutionError::Gone);
        }
        if id.time() > now + MAX_CLOCK_SKEW {
            return Err(ExecutionError::Invalid(
                "the execution id carries a time in the future; check the clock".into(),
            ));
        }
        Ok(())
    }

    /// Turns outcomes past their retention into tombstones and forgets tombstones whose ids are refused by age.
    fn prune(&mut self, now: Duration) {
        while let Some((ended, _)) = self.kept.front()
            && *ended + self.settings.retention < now
        {
            let Some((_, key)) = self.kept.pop_front() else { break };
            self.bury(&key);
        }
        while self.kept_bytes > self.settings.max_bytes && self.evict() {}
        while self.expiry.first().is_some_and(|(expiry, _)| *expiry < now) {
            let Some((_, key)) = self.expiry.pop_first() else { break };
            match self.entries.get(&key) {
                // A run outlives its id only if its limit is longer than the retention; it is forgotten at its end.
                Some(KeptRecord::Live(_)) | None => {}
                Some(KeptRecord::Ended { .. }) => {
                    self.bury(&key);
                    self.entries.remove(&key);
                }
                Some(KeptRecord::Tombstone) => {
                    self.entries.remove(&key);
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
        self.bury(&key);
        true
    }

    fn bury(&mut self, key: &ExecutionKey) {
        if let Some(entry) = self.entries.get_mut(key)
            && let KeptRecord::Ended { bytes, sharer, .. } = entry
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
            *entry = KeptRecord::Tombstone;
        }
    }

    /// Room for an outcome in what all tables keep together; its own sharer's oldest make way for it.
    fn room(&mut self, memory: &MemoryBudget, sharer: &Arc<str>, bytes: u64) -> Option<MemoryShare> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        loop {
            match memory.try_take(bytes) {
                Ok(share) => return Some(share),
                Err(over) if over.is_final() => return None,
                Err(_) => {}
            }
            let own = self.kept_by.get_mut(sharer).and_then(|kept| kept.keys.pop_front());
            match own {
                Some(key) => self.bury(&key),
                None if self.evict() => {}
                // Other runtimes hold it all.
                None => return None,
            }
        }
    }

    fn forget(&mut self, key: &ExecutionKey) {
        self.entries.remove(key);
        self.expiry
            .remove(&(key.1.time() + self.settings.horizon(), key.clone()));
    }
}

impl Run {
    /// The name under which it runs, if that is not its caller: outcomes are kept evenly between names.
    pub fn shared_by(&self, sharer: &str) {
        if let Some(KeptRecord::Live(live)) = self.records.lock().entries.get_mut(&self.key) {
            live.sharer = Arc::from(sharer);
        }
    }

    /// Marks the execution as running.
    pub fn start(&self) {
        if let Some(KeptRecord::Live(live)) = self.records.lock().entries.get_mut(&self.key) {
            live.running = true;
        }
    }

    /// Ends the execution at time `now` and wakes all waiters. An error that came before any code ran (queue,
    /// unavailable, invalid) frees the id for another try; every other outcome is final.
    pub fn finish(mut self, now: Duration, outcome: Outcome) {
        self.end(now, outcome);
    }

    fn end(&mut self, now: Duration, outcome: Outcome) {
        self.finished = true;
        let mut table = self.records.lock();
        let Some(KeptRecord::Live(live)) = table.entries.get_mut(&self.key) else {
            return;
        };
        let (skill, sharer) = (live.skill.take(), Arc::clone(&live.sharer));
        live.outcome.send_replace(Some(outcome.clone()));
        if outcome.as_ref().is_err_and(never_started) {
            table.forget(&self.key);
            return;
        }
        let bytes = outcome.as_ref().map_or(0, |result| result.retained_bytes());
        let kept = match &self.records.memory {
            Some(memory) if bytes > 0 => match table.room(memory, &sharer, bytes) {
                None => {
                    table.entries.insert(self.key.clone(), KeptRecord::Tombstone);
                    return;
                }
                share => share,
            },
            _ => None,
        };
        let entry = KeptRecord::Ended {
            skill,
            outcome,
            bytes,
            sharer: Arc::clone(&sharer),
            _kept: kept,
        };
        table.entries.insert(self.key.clone(), entry);
        table.kept_bytes += bytes;
        table.kept.push_back((now, self.key.clone()));
        let by = table.kept_by.entry(sharer).or_default();
        by.bytes += bytes;
        by.keys.push_back(self.key.clone());
        table.prune(now);
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.records.live.fetch_sub(1, Ordering::Relaxed);
        if !self.finished {
            // Only a panic or a runtime shutting down gets here; the id's own time is as good as any for the retention.
            let now = self.key.1.time();
            self.end(now, Err(ExecutionError::Internal("the run was abandoned".into())));
        }
    }
}

const fn never_started(error: &ExecutionError) -> bool {
    match error {
        ExecutionError::QueueFull { .. }
        | ExecutionError::QueueTimeout { .. }
        | ExecutionError::Unavailable(_)
        | ExecutionError::NotOwner { .. }
        | ExecutionError::Invalid(_) => true,
        ExecutionError::Cluster(failure) => !failure.may_have_run,
        _ => false,
    }
}

impl Waiter {
    /// Waits for the outcome.
    pub async fn wait(&mut self) -> Outcome {
        match self.outcome.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone().unwrap_or(Err(ExecutionError::NotFound)),
            Err(_) => Err(ExecutionError::Internal("the run was abandoned".into())),
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        // An id freed for another try may be live again: that run is not this waiter's.
        if self.outcome.borrow().is_some() {
            return;
        }
        if let Some(KeptRecord::Live(live)) = self.records.lock().entries.get_mut(&self.key) {
            live.waiters = live.waiters.saturating_sub(1);
            if live.waiters == 0 {
                live.cancel.cancel();
            }
        }
    }
}

#[cfg(test)]
#[path = "records_tests.rs"]
mod tests;
