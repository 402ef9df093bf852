//! Pods that stand ready: attached, claimed, locked, the interpreter started.
//!
//! One is used once and replaced. Replacing takes CPU that the next call needs, so it waits until no run is active, or
//! for a short time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::facts::PodFacts;
use super::failure::trouble;
use super::launch::{Launcher, Patience, Plan, Sandbox};
use super::quiet::{Active, Quiet};
use super::spec::pool_key;
use super::view::RuntimeView;
use crate::execution::conversation::Transport as _;
use crate::execution::{ClusterFailureKind, ExecutionError, Language};

/// Pods made at once: two cores start two containers as fast as one.
const REFILLERS: usize = 2;
/// Pause after a failed start, doubled up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// A cluster that cannot start pods is asked twice a minute.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How often standing pods are looked at.
const CHECK: Duration = Duration::from_secs(5);
/// What a pod must have left beyond the run's time limit (docs/design/decisions.md#life-of-a-sandbox-pod).
pub(super) const SPARE: Duration = Duration::from_secs(30);

/// The pool; see the module.
#[derive(Debug)]
pub(super) struct Pool {
    launcher: Launcher,
    view: Arc<ArcSwap<RuntimeView>>,
    slots: Mutex<BTreeMap<Language, Slot>>,
    quiet: Arc<Quiet>,
}

#[derive(Debug, Default)]
struct Slot {
    ready: VecDeque<Idle>,
    starting: usize,
    is_wanted: bool,
}

/// A pod that stands, and the task that holds its stream.
#[derive(Debug)]
struct Idle {
    key: String,
    since: Instant,
    dies: Instant,
    take: oneshot::Sender<()>,
    held: JoinHandle<Option<Sandbox>>,
}

impl Pool {
    /// A pool of the runtime's own pods, refilled while the handles live.
    pub(super) fn start(
        launcher: Launcher,
        view: Arc<ArcSwap<RuntimeView>>,
    ) -> (Arc<Self>, Vec<AbortOnDropHandle<()>>) {
        let mut slots = BTreeMap::<Language, Slot>::new();
        for (index, language) in view.load().languages.iter().enumerate() {
            slots.entry(*language).or_default().is_wanted = index == 0;
        }
        let pool = Arc::new(Self {
            launcher,
            view,
            slots: Mutex::new(slots),
            quiet: Quiet::new(),
        });
        let refillers = (0..REFILLERS)
            .map(|_| AbortOnDropHandle::new(tokio::spawn(refill(Arc::clone(&pool)))))
            .collect();
        (pool, refillers)
    }

    /// Marks a run as active.
    pub(super) fn active(&self) -> Active {
        self.quiet.begin()
    }

    /// Takes a pod that stands ready, has the interpreter (any, for commands) and enough time left for a run of
    /// `timeout`.
    pub(super) async fn take(&self, language: Option<Language>, timeout: Duration) -> Option<Sandbox> {
        let key = self.key();
        while let Some(idle) = self.pop(language, &key) {
            self.quiet.tell();
            let is_fresh = idle.dies >= Instant::now() + timeout + SPARE;
            let _ = idle.take.send(());
            match idle.held.await {
                Ok(Some(sandbox)) if is_fresh => return Some(sandbox),
                Ok(Some(sandbox)) => self.discard(sandbox),
                // It has died just now.
                _ => {}
            }
        }
        None
    }

    /// Pods that stand ready.
    pub(super) fn ready(&self) -> usize {
        let key = self.key();
        self.lock()
            .values()
            .flat_map(|slot| &slot.ready)
            .filter(|idle| idle.key == key)
            .count()
    }

    /// Pods that shall stand ready.
    pub(super) fn desired(&self) -> usize {
        let replicas = self.view.load().warm_replicas;
        self.lock().values().filter(|slot| slot.is_wanted).count() * replicas
    }

    /// The settings have changed: pods of others go, new ones come.
    pub(super) fn renew(&self) {
        self.quiet.tell();
    }

    /// Lets every pod go.
    pub(super) async fn close(&self) {
        let idle: Vec<Idle> = self
            .lock()
            .values_mut()
            .flat_map(|slot| {
                slot.is_wanted = false;
                std::mem::take(&mut slot.ready)
            })
            .collect();
        for idle in idle {
            let _ = idle.take.send(());
            if let Ok(Some(sandbox)) = idle.held.await {
                self.launcher.cluster.delete_job(&sandbox.job).await;
            }
        }
    }

    /// Lets go of every stream and touches no pod: another replica owns them now.
    pub(super) fn abandon(&self) {
        self.lock().clear();
    }

    fn key(&self) -> String {
        let view = self.view.load();
        pool_key(&view, &view.image, &view.resources, &[])
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Language, Slot>> {
        // Slots are valid between any two statements.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The oldest pod of these settings of a language, or of the slot that has most of them.
    fn pop(&self, language: Option<Language>, key: &str) -> Option<Idle> {
        let mut slots = self.lock();
        let slot = match language {
            Some(language) => {
                let slot = slots.entry(language).or_default();
                slot.is_wanted = true;
                Some(slot)
            }
            None => slots
                .values_mut()
                .max_by_key(|slot| slot.ready.iter().filter(|idle| idle.key == key).count()),
        }?;
        let position = slot.ready.iter().position(|idle| idle.key == key)?;
        slot.ready.remove(position)
    }

    fn discard(&self, sandbox: Sandbox) {
        let cluster = self.launcher.cluster.clone();
        tokio::spawn(async move { cluster.delete_job(&sandbox.job).await });
    }

    /// Reserves the start of a pod that lacks.
    fn reserve(&self) -> Option<Language> {
        let view = self.view.load();
        if view.suspended {
            return None;
        }
        let key = self.key();
        let mut slots = self.lock();
        let lacking = |slot: &Slot| {
            let ready = slot.ready.iter().filter(|idle| idle.key == key).count();
            slot.is_wanted && ready + slot.starting < view.warm_replicas
        };
        let (language, slot) = slots.iter_mut().find(|(_, slot)| lacking(slot))?;
        slot.starting += 1;
        Some(*language)
    }

    fn put(self: &Arc<Self>, language: Language, key: String, sandbox: Sandbox) {
        let (take, taken) = oneshot::channel();
        let (since, dies) = (sandbox.since, sandbox.dies);
        let held = tokio::spawn(hold(Arc::clone(self), sandbox, taken));
        self.lock().entry(language).or_default().ready.push_back(Idle {
            key,
            since,
            dies,
            take,
            held,
        });
    }

    /// Lets go of what is dead, too old, of other settings or too many.
    fn sweep(&self) {
        let view = self.view.load();
        let key = self.key();
        let mut gone = Vec::new();
        for slot in self.lock().values_mut() {
            let mut kept = VecDeque::new();
            for idle in std::mem::take(&mut slot.ready) {
                let is_good = idle.key == key
                    && idle.since.elapsed() < view.max_idle
                    && kept.len() < view.warm_replicas
                    && !view.suspended;
                if idle.held.is_finished() {
                    continue;
                }
                if is_good {
                    kept.push_back(idle);
                } else {
                    gone.push(idle);
                }
            }
            slot.ready = kept;
        }
        for idle in gone {
            let cluster = self.launcher.cluster.clone();
            tokio::spawn(async move {
                let _ = idle.take.send(());
                if let Ok(Some(sandbox)) = idle.held.await {
                    cluster.delete_job(&sandbox.job).await;
                }
            });
        }
    }
}

/// Holds the stream of a standing pod until it is taken; `None` if the pod dies first.
async fn hold(pool: Arc<Pool>, mut sandbox: Sandbox, taken: oneshot::Receiver<()>) -> Option<Sandbox> {
    let Sandbox {
        attached, state, job, ..
    } = &mut sandbox;
    let died = async {
        loop {
            tokio::select! {
                frame = attached.next() => if frame.is_err() { return },
                changed = state.changed() => {
                    let state = state.borrow();
                    let is_bad = |facts: &PodFacts| facts.is_over() || trouble(facts).is_some();
                    if changed.is_err() || state.is_gone || state.facts.as_ref().is_some_and(is_bad) {
                        return;
                    }
                }
            }
        }
    };
    tokio::select! {
        biased;
        _ = taken => return Some(sandbox),
        () = died => {}
    }
    tracing::info!(%job, "a pod of the pool is lost");
    pool.launcher.cluster.delete_job(job).await;
    pool.quiet.tell();
    None
}

async fn refill(pool: Arc<Pool>) {
    let mut pause = FIRST_PAUSE;
    let mut changes = pool.quiet.listen();
    loop {
        changes.mark_unchanged();
        pool.sweep();
        let Some(language) = pool.reserve() else {
            let _ = tokio::time::timeout(CHECK, changes.changed()).await;
            continue;
        };
        let reserved = Reserved { pool: &pool, language };
        pool.quiet.wait().await;
        let view = pool.view.load_full();
        let key = pool_key(&view, &view.image, &view.resources, &[]);
        let plan = Plan::of_pool(&view, Some(language));
        let launched = pool.launcher.launch(&view, &plan, Patience::Pool, &|_| {}).await;
        match launched {
            Ok(sandbox) => {
                pause = FIRST_PAUSE;
                pool.put(language, key, sandbox);
            }
            Err(error) => {
                tracing::warn!(runtime = %view.reference(), %error, "a pod of the pool could not be made");
                if lacks_interpreter(&error) {
                    pool.lock().entry(language).or_default().is_wanted = false;
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
        drop(reserved);
    }
}

/// The image has no such interpreter: the next pod has none either.
fn lacks_interpreter(error: &ExecutionError) -> bool {
    matches!(error, ExecutionError::Cluster(failure)
        if failure.kind == ClusterFailureKind::ContainerFailed && failure.reason == "NotStarted")
}

/// The right to start one pod of a slot.
struct Reserved<'a> {
    pool: &'a Pool,
    language: Language,
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        let mut slots = self.pool.lock();
        let slot = slots.entry(self.language).or_default();
        slot.starting = slot.starting.saturating_sub(1);
    }
}
