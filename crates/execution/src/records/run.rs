//! A run and its waiters: both refer to one live entry of the table.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::table::{ExecutionEntry, ExecutionKey, Live, Outcome, RecordTable, SharedTable};
use crate::ExecutionError;

/// The right, and the duty, to run one execution. Dropped without [`Run::finish`], it ends the record as an error.
#[derive(Debug)]
pub struct Run {
    table: Arc<SharedTable>,
    key: ExecutionKey,
    /// Cancelled when the execution must end: by `cancel`, or because there is no waiter left.
    pub cancel: CancellationToken,
    finished: bool,
}

/// A waiter for an outcome. When the last one is dropped, the run is cancelled.
#[derive(Debug)]
pub struct Waiter {
    table: Arc<SharedTable>,
    key: ExecutionKey,
    outcome: watch::Receiver<Option<Outcome>>,
}

/// Opens a live entry, with its first waiter.
pub(super) fn open(
    shared: &Arc<SharedTable>,
    table: &mut RecordTable,
    key: ExecutionKey,
    skill: Option<&str>,
) -> (Run, Waiter) {
    shared.live.fetch_add(1, Ordering::Relaxed);
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
    table.entries.insert(key.clone(), ExecutionEntry::Live(live));
    let expiry = key.1.time() + table.settings.horizon();
    table.expiry.insert((expiry, key.clone()));
    let run = Run {
        table: Arc::clone(shared),
        key: key.clone(),
        cancel,
        finished: false,
    };
    let waiter = Waiter {
        table: Arc::clone(shared),
        key,
        outcome,
    };
    (run, waiter)
}

impl Waiter {
    /// One more waiter of a live entry.
    pub(super) fn join(shared: &Arc<SharedTable>, key: ExecutionKey, live: &mut Live) -> Self {
        live.waiters += 1;
        Self {
            table: Arc::clone(shared),
            key,
            outcome: live.outcome.subscribe(),
        }
    }
}

impl Run {
    /// The name under which it runs, if that is not its caller: outcomes are kept evenly between names.
    pub fn shared_by(&self, sharer: &str) {
        if let Some(ExecutionEntry::Live(live)) = self.table.lock().entries.get_mut(&self.key) {
            live.sharer = Arc::from(sharer);
        }
    }

    /// Marks the execution as running.
    pub fn start(&self) {
        if let Some(ExecutionEntry::Live(live)) = self.table.lock().entries.get_mut(&self.key) {
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
        let mut table = self.table.lock();
        let Some(ExecutionEntry::Live(live)) = table.entries.get_mut(&self.key) else {
            return;
        };
        let (skill, sharer) = (live.skill.take(), Arc::clone(&live.sharer));
        live.outcome.send_replace(Some(outcome.clone()));
        if outcome.as_ref().is_err_and(never_started) {
            table.forget(&self.key);
            return;
        }
        // A run that outlives its id has been taken from the list of those that expire.
        let expiry = self.key.1.time() + table.settings.horizon();
        table.expiry.insert((expiry, self.key.clone()));
        let bytes = outcome.as_ref().map_or(0, |result| result.retained_bytes());
        let kept = match &self.table.memory {
            Some(memory) if bytes > 0 => match table.room(memory, &sharer, bytes) {
                None => {
                    table.entries.insert(self.key.clone(), ExecutionEntry::Tombstone);
                    return;
                }
                share => share,
            },
            _ => None,
        };
        let entry = ExecutionEntry::Ended {
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
        self.table.live.fetch_sub(1, Ordering::Relaxed);
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
        if let Some(ExecutionEntry::Live(live)) = self.table.lock().entries.get_mut(&self.key) {
            live.waiters = live.waiters.saturating_sub(1);
            if live.waiters == 0 {
                live.cancel.cancel();
            }
        }
    }
}
