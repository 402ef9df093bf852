//! Sandboxes started ahead.
//!
//! Each slot is (interpreter or none). A sandbox is used once and replaced. Replacing costs as much CPU as a cold start,
//! so it waits until no run is active, or for a short time, and starts one sandbox after the other.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering as Memory};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::kind::SandboxKind;
use super::sandbox::{Blueprint, Sandbox};

/// How long a refill waits for running calls to end: as long as a cold start takes, so that back-to-back calls on one
/// core still get warm sandboxes.
const REFILL_PATIENCE: Duration = Duration::from_millis(30);

/// Quiet before a refill, so that the answer of the call that took the sandbox is sent first.
const REFILL_QUIET: Duration = Duration::from_millis(5);

/// Pause after a start that failed: a machine that is out of processes recovers in seconds.
const FAILURE_PAUSE: Duration = Duration::from_secs(2);

/// How often unused sandboxes are checked.
const IDLE_CHECK: Duration = Duration::from_secs(30);

/// Environments of packages for which sandboxes are kept ready at once: those of the skills of one conversation. Each
/// costs as many idle interpreters as the base has.
const MAX_ENVIRONMENTS: usize = 4;

/// The pool; see the module.
#[derive(Debug)]
pub(super) struct Pool {
    blueprint: Arc<Blueprint>,
    /// Sandboxes per slot.
    size: usize,
    max_idle: Duration,
    slots: Mutex<BTreeMap<SandboxKind, Slot>>,
    active: AtomicUsize,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Slot {
    ready: VecDeque<Sandbox>,
    /// Whether anyone used it lately.
    wanted: bool,
    /// When a run last used it, in uses of the pool; 0: never.
    used: u64,
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
        first: &[SandboxKind],
    ) -> (Arc<Self>, AbortOnDropHandle<()>) {
        let wanted = first
            .iter()
            .map(|kind| {
                (
                    kind.clone(),
                    Slot {
                        wanted: true,
                        ..Slot::default()
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
        self.active.fetch_add(1, Memory::Relaxed);
        Active(Arc::clone(self))
    }

    /// Takes a warm sandbox.
    pub(super) fn take(&self, kind: &SandboxKind) -> Option<Sandbox> {
        let mut slots = self.lock();
        let use_number = slots.values().map(|slot| slot.used).max().unwrap_or(0) + 1;
        let slot = slots.entry(kind.clone()).or_default();
        slot.wanted = true;
        slot.used = use_number;
        let mut taken = None;
        while let Some(mut sandbox) = slot.ready.pop_front() {
            if sandbox.is_alive() {
                taken = Some(sandbox);
                break;
            }
        }
        bound_environments(&mut slots);
        drop(slots);
        self.changed.notify_one();
        taken
    }

    /// Sandboxes that are ready.
    pub(super) fn ready(&self, kind: &SandboxKind) -> usize {
        self.lock().get(kind).map_or(0, |slot| slot.ready.len())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SandboxKind, Slot>> {
        // Slots are valid between any two statements.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_to_start(&self) -> Option<SandboxKind> {
        let slots = self.lock();
        slots
            .iter()
            .filter(|(_, slot)| slot.wanted && slot.ready.len() < self.size)
            .map(|(kind, _)| kind.clone())
            .next()
    }

    fn put(&self, kind: &SandboxKind, sandbox: Sandbox) {
        // The slot may have gone while the sandbox started: then nobody wants it.
        if let Some(slot) = self.lock().get_mut(kind) {
            slot.ready.push_back(sandbox);
        }
    }

    /// A start failed: none is kept ready until the slot is used again, so that others have their turn and a program that is gone
    /// is not tried for ever.
    fn give_up(&self, kind: &SandboxKind) {
        if let Some(slot) = self.lock().get_mut(kind) {
            slot.wanted = false;
        }
    }

    /// Closes sandboxes that were unused for long; the next use of the slot fills it again.
    fn close_idle(&self) {
        for slot in self.lock().values_mut() {
            let old = |sandbox: &Sandbox| sandbox.since.elapsed() > self.max_idle;
            if slot.ready.front().is_some_and(old) {
                slot.ready.retain(|sandbox| !old(sandbox));
                slot.wanted = false;
            }
        }
        // An environment is in use as long as something holds it.
        self.lock()
            .retain(|kind, slot| kind.environment.is_none() || slot.wanted || !slot.ready.is_empty());
    }
}

/// Closes the slots of the environments that were not used for the longest time.
fn bound_environments(slots: &mut BTreeMap<SandboxKind, Slot>) {
    loop {
        let with = |(kind, _): &(&SandboxKind, &Slot)| kind.environment.is_some();
        if slots.iter().filter(with).count() <= MAX_ENVIRONMENTS {
            return;
        }
        let oldest = slots
            .iter()
            .filter(with)
            .min_by_key(|(_, slot)| slot.used)
            .map(|(kind, _)| kind.clone());
        let Some(oldest) = oldest else { return };
        slots.remove(&oldest);
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Memory::Relaxed);
        self.0.changed.notify_one();
    }
}

async fn refill(pool: Arc<Pool>) {
    loop {
        let Some(kind) = pool.next_to_start() else {
            let changed = tokio::time::timeout(IDLE_CHECK, pool.changed.notified()).await;
            if changed.is_err() {
                pool.close_idle();
            }
            continue;
        };
        wait_for_quiet(&pool).await;
        match pool.blueprint.start(&kind).await {
            Ok(sandbox) => pool.put(&kind, sandbox),
            Err(error) => {
                tracing::warn!(%error, "a warm sandbox could not be started");
                pool.give_up(&kind);
                tokio::time::sleep(FAILURE_PAUSE).await;
            }
        }
    }
}

async fn wait_for_quiet(pool: &Pool) {
    let until = Instant::now() + REFILL_PATIENCE;
    loop {
        while pool.active.load(Memory::Relaxed) > 0 {
            if tokio::time::timeout_at(until, pool.changed.notified()).await.is_err() {
                return;
            }
        }
        tokio::time::sleep(REFILL_QUIET).await;
        if pool.active.load(Memory::Relaxed) == 0 {
            return;
        }
    }
}
