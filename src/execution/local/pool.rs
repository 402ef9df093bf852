//! Sandboxes started ahead.
//!
//! Each slot is (interpreter or none). A sandbox is used once and replaced. Replacing costs as much CPU as a cold start,
//! so it waits until no run is active, or for a short time, and starts one sandbox after the other.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::super::Language;
use super::sandbox::{Blueprint, Sandbox};

/// How long a refill waits for running calls to end: as long as a cold start takes, so that calls back to back on one
/// core are not starved of warm sandboxes for ever.
const REFILL_PATIENCE: Duration = Duration::from_millis(30);

/// Quiet before a refill, so that the answer of the call that emptied the place is out first.
const REFILL_QUIET: Duration = Duration::from_millis(5);

/// Pause after a start that failed: a machine that is out of processes recovers in seconds.
const FAILURE_PAUSE: Duration = Duration::from_secs(2);

/// How often unused sandboxes are looked at.
const IDLE_CHECK: Duration = Duration::from_secs(30);

/// What stands ready in a sandbox: an interpreter, or nothing but the locks, for commands.
pub(super) type Kind = Option<Language>;

/// The pool; see the module.
#[derive(Debug)]
pub(super) struct Pool {
    blueprint: Arc<Blueprint>,
    /// Sandboxes per slot.
    size: usize,
    max_idle: Duration,
    slots: Mutex<BTreeMap<Kind, Slot>>,
    active: AtomicUsize,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Slot {
    ready: VecDeque<Sandbox>,
    /// Whether anyone used it lately.
    wanted: bool,
}

/// Counts a run as active while it lives.
#[derive(Debug)]
pub(super) struct Active(Arc<Pool>);

impl Pool {
    /// A pool that starts filling `first` at once; other slots after their first use. It is refilled while the handle
    /// lives.
    pub(super) fn start(
        blueprint: Arc<Blueprint>,
        size: usize,
        max_idle: Duration,
        first: &[Kind],
    ) -> (Arc<Self>, AbortOnDropHandle<()>) {
        let wanted = first
            .iter()
            .map(|kind| {
                (
                    *kind,
                    Slot {
                        ready: VecDeque::new(),
                        wanted: true,
                    },
                )
            })
            .collect();
        let pool = Arc::new(Self {
            blueprint,
            size,
            max_idle,
            slots: Mutex::new(wanted),
            active: AtomicUsize::new(0),
            changed: Notify::new(),
        });
        let refilled = AbortOnDropHandle::new(tokio::spawn(refill(Arc::clone(&pool))));
        (pool, refilled)
    }

    /// Marks a run as active.
    pub(super) fn active(self: &Arc<Self>) -> Active {
        self.active.fetch_add(1, Ordering::Relaxed);
        Active(Arc::clone(self))
    }

    /// Takes a sandbox that stands ready.
    pub(super) fn take(&self, kind: Kind) -> Option<Sandbox> {
        let mut slots = self.lock();
        let slot = slots.entry(kind).or_default();
        slot.wanted = true;
        let mut taken = None;
        while let Some(mut sandbox) = slot.ready.pop_front() {
            if sandbox.is_alive() {
                taken = Some(sandbox);
                break;
            }
        }
        drop(slots);
        self.changed.notify_one();
        taken
    }

    /// Sandboxes that stand ready.
    pub(super) fn ready(&self, kind: Kind) -> usize {
        self.lock().get(&kind).map_or(0, |slot| slot.ready.len())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Kind, Slot>> {
        // Slots are valid between any two statements.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lacking(&self) -> Option<Kind> {
        let slots = self.lock();
        slots
            .iter()
            .filter(|(_, slot)| slot.wanted && slot.ready.len() < self.size)
            .map(|(kind, _)| *kind)
            .next()
    }

    fn put(&self, kind: Kind, sandbox: Sandbox) {
        self.lock().entry(kind).or_default().ready.push_back(sandbox);
    }

    /// Closes what nobody used for long; the next use of the slot fills it again.
    fn close_idle(&self) {
        for slot in self.lock().values_mut() {
            let old = |sandbox: &Sandbox| sandbox.since.elapsed() > self.max_idle;
            if slot.ready.front().is_some_and(old) {
                slot.ready.retain(|sandbox| !old(sandbox));
                slot.wanted = false;
            }
        }
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Ordering::Relaxed);
        self.0.changed.notify_one();
    }
}

async fn refill(pool: Arc<Pool>) {
    loop {
        let Some(kind) = pool.lacking() else {
            let changed = tokio::time::timeout(IDLE_CHECK, pool.changed.notified()).await;
            if changed.is_err() {
                pool.close_idle();
            }
            continue;
        };
        wait_for_quiet(&pool).await;
        match pool.blueprint.start(kind).await {
            Ok(sandbox) => pool.put(kind, sandbox),
            Err(error) => {
                tracing::warn!(%error, "a sandbox could not be started ahead");
                tokio::time::sleep(FAILURE_PAUSE).await;
            }
        }
    }
}

async fn wait_for_quiet(pool: &Pool) {
    let until = Instant::now() + REFILL_PATIENCE;
    loop {
        while pool.active.load(Ordering::Relaxed) > 0 {
            if tokio::time::timeout_at(until, pool.changed.notified()).await.is_err() {
                return;
            }
        }
        tokio::time::sleep(REFILL_QUIET).await;
        if pool.active.load(Ordering::Relaxed) == 0 {
            return;
        }
    }
}
