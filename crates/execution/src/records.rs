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

mod run;
mod settings;
mod table;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use knack_memory::MemoryBudget;

use super::{ExecutionError, ExecutionId, ExecutionRecord, ExecutionStatus};
use run::open;
pub use run::{Run, Waiter};
pub use settings::RecordSettings;
pub use table::Outcome;
use table::{ExecutionEntry, ExecutionKey, RecordTable, SharedTable};

/// How long a caller should wait when the table is full: tombstones leave in seconds at that rate.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// The records; see the module. All times are since the Unix epoch and passed in.
#[derive(Debug)]
pub struct Records(Arc<SharedTable>);

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
        Arc::new(Self(Arc::new(SharedTable::new(settings, memory))))
    }

    /// Takes another retention and admission over. What was forgotten under the last ones is refused from now on, however
    /// long ids are accepted.
    pub fn renew(&self, now: Duration, retention: Duration, admission: Duration) {
        let mut table = self.0.lock();
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
        &self,
        now: Duration,
        caller: &str,
        id: ExecutionId,
        skill: Option<&str>,
    ) -> Result<Claim, ExecutionError> {
        let key: ExecutionKey = (Arc::from(caller), id);
        let mut table = self.0.lock();
        if let Some(known) = known(&self.0, &mut table, now, &key)? {
            return Ok(known);
        }
        if table.entries.len() >= table.settings.max_entries {
            return Err(ExecutionError::QueueFull {
                retry_after: RETRY_AFTER,
            });
        }
        let (run, waiter) = open(&self.0, &mut table, key, skill);
        Ok(Claim::First(run, waiter))
    }

    /// The claim of an id that was claimed before; `None`: it would be the first.
    ///
    /// Errors: [`ExecutionError::Gone`] and [`ExecutionError::Invalid`], as [`Records::claim`].
    pub fn claim_known(&self, now: Duration, caller: &str, id: ExecutionId) -> Result<Option<Claim>, ExecutionError> {
        known(&self.0, &mut self.0.lock(), now, &(Arc::from(caller), id))
    }

    /// Returns the record of an id. Errors: [`ExecutionError::Gone`], [`ExecutionError::NotFound`].
    pub fn get(&self, now: Duration, caller: &str, id: ExecutionId) -> Result<ExecutionRecord, ExecutionError> {
        let mut table = self.0.lock();
        table.check_age(now, id)?;
        table.prune(now);
        match table.entries.get(&(Arc::from(caller), id)) {
            Some(ExecutionEntry::Live(live)) => {
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
            Some(ExecutionEntry::Ended {
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
            Some(ExecutionEntry::Ended {
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
            Some(ExecutionEntry::Tombstone) => Err(ExecutionError::Gone),
            None if table.refused.contains(&id) => Err(ExecutionError::Gone),
            None => Err(ExecutionError::NotFound),
        }
    }

    /// Cancels a live execution; an ended one stays as it is. Errors as [`Records::get`].
    pub fn cancel(&self, now: Duration, caller: &str, id: ExecutionId) -> Result<(), ExecutionError> {
        let table = self.0.lock();
        table.check_age(now, id)?;
        match table.entries.get(&(Arc::from(caller), id)) {
            Some(ExecutionEntry::Live(live)) => {
                live.cancel.cancel();
                Ok(())
            }
            Some(ExecutionEntry::Ended { .. }) => Ok(()),
            Some(ExecutionEntry::Tombstone) => Err(ExecutionError::Gone),
            None => Err(ExecutionError::NotFound),
        }
    }

    /// Opens a live entry for a run that an earlier owner began. Without a waiter it continues until a waiter comes and
    /// leaves, or it ends. `None`: the id is known already.
    pub fn adopt(&self, caller: &str, id: ExecutionId, skill: Option<&str>) -> Option<(Run, Waiter)> {
        let key: ExecutionKey = (Arc::from(caller), id);
        let mut table = self.0.lock();
        if table.entries.contains_key(&key) {
            return None;
        }
        Some(open(&self.0, &mut table, key, skill))
    }

    /// Answers unknown ids from before `floor` as gone: an earlier owner may have run them. It is never lowered. An id that was
    /// ahead of that owner's clock is later than its run began, by [`RecordSettings::CLOCK_SKEW`] at most.
    pub fn raise_floor(&self, floor: Duration) {
        let mut table = self.0.lock();
        table.floor = table.floor.max(floor);
    }

    /// Answers this id as gone, for every caller, unless it is known: an earlier owner has started it.
    pub fn refuse(&self, id: ExecutionId) {
        self.0.lock().refused.insert(id);
    }

    /// Executions that have not ended.
    pub fn live(&self) -> usize {
        self.0.live.load(Ordering::Relaxed)
    }
}

fn known(
    shared: &Arc<SharedTable>,
    table: &mut RecordTable,
    now: Duration,
    key: &ExecutionKey,
) -> Result<Option<Claim>, ExecutionError> {
    table.check_age(now, key.1)?;
    table.prune(now);
    let is_lost = key.1.time() < table.floor || table.refused.contains(&key.1);
    match table.entries.get_mut(key) {
        Some(ExecutionEntry::Live(live)) => Ok(Some(Claim::Known(Waiter::join(shared, key.clone(), live)))),
        Some(ExecutionEntry::Ended { outcome, .. }) => Ok(Some(Claim::Ended(outcome.clone()))),
        Some(ExecutionEntry::Tombstone) => Err(ExecutionError::Gone),
        None if is_lost => Err(ExecutionError::Gone),
        None => Ok(None),
    }
}

#[cfg(test)]
#[path = "records_tests.rs"]
mod tests;
