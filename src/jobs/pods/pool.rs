//! Warm pods: attached, bound, locked, the interpreter started.
//!
//! One is used once and replaced. Replacing takes CPU that the next call needs, so it waits until no run is active, or
//! for a short time. What is held ready is decided by [`kinds`](super::kinds).

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use knack_execution::conversation::Transport as _;
use knack_execution::{ClusterFailureKind, ExecutionError};
use knack_runner::protocol::FromRunner;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::active_runs::{ActiveRun, ActiveRuns};
use super::kinds::{PodKind, USED_LATELY, shares};
use super::launch::{Launcher, Sandbox};
use super::pod_index::PodState;
use super::pod_requirements::{PodRequirements, Requester};
use super::spec::pool_key;
use crate::jobs::cluster::failure::pod_failure;
use crate::jobs::cluster::pod_facts::PodFacts;
use crate::jobs::nodes::probe_results::Clearance;
use crate::jobs::resolved_runtime::ResolvedRuntime;

/// Pods made at once: two cores start two containers as fast as one.
const REFILLERS: usize = 2;
/// Pause after a failed start, doubled up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// A cluster that cannot start pods gets two tries a minute.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How often warm pods are checked.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);
/// How long pods of a pool that is closed may take to end; an idle runner ends at once.
const CLOSE_PATIENCE: Duration = Duration::from_secs(5);
/// The time that a pod must have left beyond the run's time limit (docs/design/decisions.md#life-of-a-sandbox-pod).
const LIFETIME_MARGIN: Duration = Duration::from_secs(30);

/// The pool; see the module.
#[derive(Debug)]
pub(in crate::jobs) struct Pool {
    launcher: Launcher,
    resolved: Arc<ArcSwap<ResolvedRuntime>>,
    state: Mutex<PoolState>,
    runs: Arc<ActiveRuns>,
}

#[derive(Debug)]
struct PoolState {
    slots: Slots,
    /// No pod is taken in any more.
    is_closed: bool,
}

type Slots = BTreeMap<PodKind, Slot>;

#[derive(Debug, Default)]
struct Slot {
    ready: VecDeque<Idle>,
    starting: usize,
    /// Whether its interpreter is used here; only for a slot that is not on demand.
    is_wanted: bool,
    /// When a run took, or would have taken, one of its pods.
    used: Option<Instant>,
}

/// A warm pod, and the task that holds its stream.
#[derive(Debug)]
struct Idle {
    key: String,
    node: String,
    since: Instant,
    dies: Instant,
    take: oneshot::Sender<()>,
    held: JoinHandle<Option<Sandbox>>,
}

impl Pool {
    /// A pool of the runtime's own pods, refilled while the handles live.
    pub(in crate::jobs) fn start(
        launcher: Launcher,
        resolved: Arc<ArcSwap<ResolvedRuntime>>,
    ) -> (Arc<Self>, Vec<AbortOnDropHandle<()>>) {
        let mut slots = Slots::new();
        for (index, language) in resolved.load().languages.iter().enumerate() {
            slots.entry(PodKind::plain(Some(*language))).or_default().is_wanted = index == 0;
        }
        let pool = Arc::new(Self {
            launcher,
            resolved,
            state: Mutex::new(PoolState {
                slots,
                is_closed: false,
            }),
            runs: ActiveRuns::new(),
        });
        let refillers = (0..REFILLERS)
            .map(|_| AbortOnDropHandle::new(tokio::spawn(refill(Arc::clone(&pool)))))
            .collect();
        (pool, refillers)
    }

    /// Marks a run as active.
    pub(in crate::jobs) fn active(&self) -> ActiveRun {
        self.runs.begin()
    }

    /// Takes a warm pod that is of the kind (without language and values: of any interpreter), has enough time left for
    /// a run of `timeout`, and is on a node where it may be used, or may be soon.
    pub(in crate::jobs) async fn take(&self, kind: &PodKind, timeout: Duration) -> Option<Sandbox> {
        while let Some(idle) = self.pop(kind) {
            self.runs.notify();
            let is_fresh = idle.dies >= Instant::now() + timeout + LIFETIME_MARGIN;
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

    /// A run has had a pod of this kind: with granted values, packages or a named image, more of them are kept ready for a while. Called once one
    /// was ready, so that pods that cannot start, for example because a Secret is missing, are not retried without use.
    pub(in crate::jobs) fn used(&self, kind: &PodKind) {
        if kind.language.is_some() || kind.is_on_demand() {
            self.lock().slots.entry(kind.clone()).or_default().used = Some(Instant::now());
            self.runs.notify();
        }
    }

    /// Pods that are ready.
    pub(in crate::jobs) fn ready(&self) -> usize {
        let resolved = self.resolved.load();
        let state = self.lock();
        let of = |(kind, slot): (&PodKind, &Slot)| slot.count(&key(&resolved, kind));
        state.slots.iter().map(of).sum()
    }

    /// Pods that should be ready.
    pub(in crate::jobs) fn desired(&self) -> usize {
        let resolved = self.resolved.load();
        wanted(&self.lock().slots, &resolved, Instant::now()).values().sum()
    }

    /// The settings have changed: pods of others go, new ones come.
    pub(in crate::jobs) fn renew(&self) {
        self.runs.notify();
    }

    /// Lets every pod go, and waits until they have ended.
    pub(in crate::jobs) async fn close(&self) {
        let idle: Vec<Idle> = self
            .close_and_lock()
            .slots
            .values_mut()
            .flat_map(|slot| {
                slot.is_wanted = false;
                slot.used = None;
                std::mem::take(&mut slot.ready)
            })
            .collect();
        let ended = idle.into_iter().map(|idle| async {
            let _ = idle.take.send(());
            if let Ok(Some(mut sandbox)) = idle.held.await {
                self.launcher.cluster.delete_job(&sandbox.pod.job).await;
                // A next owner that finds it terminating may not be able to prove that nothing has run in it.
                let ended = sandbox.pod.state.wait_for(PodState::has_ended);
                let _ = tokio::time::timeout(CLOSE_PATIENCE, ended).await;
            }
        });
        futures::future::join_all(ended).await;
    }

    /// Releases every stream and touches no pod: another replica owns them now.
    pub(in crate::jobs) fn abandon(&self) {
        self.close_and_lock().slots.clear();
    }

    /// From now on no pod is taken in.
    fn close_and_lock(&self) -> MutexGuard<'_, PoolState> {
        let mut state = self.lock();
        state.is_closed = true;
        state
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        // Slots are valid between any two statements.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pod of these settings that [`choose_pod`] takes of a kind.
    fn pop(&self, kind: &PodKind) -> Option<Idle> {
        let resolved = self.resolved.load();
        let mut state = self.lock();
        let slots = &mut state.slots;
        let slot = if kind.language.is_some() || kind.is_on_demand() {
            let slot = slots.entry(kind.clone()).or_default();
            slot.is_wanted |= !kind.is_on_demand();
            slot
        } else {
            let plain = slots.iter_mut().filter(|(kind, _)| !kind.is_on_demand());
            plain.max_by_key(|(kind, slot)| slot.count(&key(&resolved, kind)))?.1
        };
        let key = key(&resolved, kind);
        let max_idle = kind.max_idle(&resolved);
        let candidates = slot.ready.iter().map(|idle| {
            // The sweep has not yet removed one that has just grown too old.
            let fits = idle.key == key && (!kind.is_granted() || idle.since.elapsed() < max_idle);
            fits.then(|| self.clearance(&resolved, idle))
        });
        let position = choose_pod(candidates)?;
        slot.ready.remove(position)
    }

    fn clearance(&self, resolved: &ResolvedRuntime, idle: &Idle) -> Clearance {
        let gate = &self.launcher.gate;
        gate.clearance(resolved.requires_isolation, &idle.node, idle.since.into_std())
    }

    fn discard(&self, sandbox: Sandbox) {
        let cluster = self.launcher.cluster.clone();
        tokio::spawn(async move { cluster.delete_job(&sandbox.pod.job).await });
    }

    /// Reserves the right to start one missing pod: of the kind that was used last.
    fn reserve(&self) -> Option<PodKind> {
        let resolved = self.resolved.load();
        let mut state = self.lock();
        if state.is_closed {
            return None;
        }
        let wanted = wanted(&state.slots, &resolved, Instant::now());
        let without_pod = state.slots.iter_mut().filter(|(kind, slot)| {
            let count = wanted.get(*kind).copied().unwrap_or_default();
            slot.count(&key(&resolved, kind)) + slot.starting < count
        });
        let (kind, slot) = without_pod.max_by_key(|(_, slot)| slot.used)?;
        slot.starting += 1;
        Some(kind.clone())
    }

    fn put(self: &Arc<Self>, kind: PodKind, key: String, sandbox: Sandbox) {
        let mut state = self.lock();
        if state.is_closed {
            drop(state);
            // Nobody else knows of it: it would stay until its deadline.
            self.discard(sandbox);
            return;
        }
        let (take, taken) = oneshot::channel();
        let (since, dies, node) = (sandbox.since, sandbox.dies, sandbox.node.clone());
        let held = tokio::spawn(hold(Arc::clone(self), sandbox, taken));
        let idle = Idle {
            key,
            node,
            since,
            dies,
            take,
            held,
        };
        if self.clearance(&self.resolved.load(), &idle) == Clearance::Ask {
            // Before a run waits for it.
            self.launcher.gate.request_probe(&idle.node);
        }
        state.slots.entry(kind).or_default().ready.push_back(idle);
    }

    /// Releases pods that are dead, too old, of other settings or too many.
    fn sweep(&self) {
        let resolved = self.resolved.load();
        let mut gone = Vec::new();
        let mut state = self.lock();
        let wanted = wanted(&state.slots, &resolved, Instant::now());
        state.slots.retain(|kind, slot| {
            let count = wanted.get(kind).copied().unwrap_or_default();
            let key = key(&resolved, kind);
            let mut kept = VecDeque::new();
            for idle in std::mem::take(&mut slot.ready) {
                let is_good = idle.key == key
                    && idle.since.elapsed() < kind.max_idle(&resolved)
                    && kept.len() < count
                    && self.clearance(&resolved, &idle) != Clearance::Open;
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
            !kind.is_on_demand() || count > 0 || slot.starting > 0
        });
        drop(state);
        for idle in gone {
            let cluster = self.launcher.cluster.clone();
            tokio::spawn(async move {
                let _ = idle.take.send(());
                if let Ok(Some(sandbox)) = idle.held.await {
                    cluster.delete_job(&sandbox.pod.job).await;
                }
            });
        }
    }
}

impl Slot {
    /// Warm pods of these settings.
    fn count(&self, key: &str) -> usize {
        self.ready.iter().filter(|idle| idle.key == key).count()
    }
}

/// Which pods a pool of this runtime may hold for a kind.
fn key(resolved: &ResolvedRuntime, kind: &PodKind) -> String {
    pool_key(resolved, kind.image(resolved), &resolved.resources, &kind.env)
}

/// The index of the pod to use. `pods`: the pods in the order of their age, each with what its node allows; `None`: it does not fit.
/// One that may be used at once comes before one that may be used soon, and of equal ones the oldest. None on a node that lets
/// sandboxes out, or of which nothing is known.
fn choose_pod(pods: impl Iterator<Item = Option<Clearance>>) -> Option<usize> {
    let fitting = pods
        .enumerate()
        .filter_map(|(position, clearance)| Some((clearance?, position)));
    let usable = fitting.filter(|(clearance, _)| !matches!(clearance, Clearance::Open | Clearance::Unknown));
    usable.min().map(|(_, position)| position)
}

/// How many pods of each kind should be ready.
fn wanted(slots: &Slots, resolved: &ResolvedRuntime, now: Instant) -> BTreeMap<PodKind, usize> {
    if resolved.stopped.is_some() {
        return BTreeMap::new();
    }
    let plain = slots.iter().filter(|(_, slot)| slot.is_wanted);
    let mut wanted: BTreeMap<PodKind, usize> = plain.map(|(kind, _)| (kind.clone(), resolved.warm_replicas)).collect();
    let used = |(kind, slot): (&PodKind, &Slot)| {
        let used = slot.used.filter(|used| now.duration_since(*used) < USED_LATELY)?;
        (kind.is_on_demand() && kind.is_allowed(resolved)).then(|| (used, kind.clone()))
    };
    let mut sets: Vec<_> = slots.iter().filter_map(used).collect();
    sets.sort_by(|one, other| other.cmp(one));
    sets.truncate(resolved.warm_environments);
    let counts = shares(resolved.warm_replicas, resolved.most_on_demand(), sets.len());
    wanted.extend(sets.into_iter().map(|(_, kind)| kind).zip(counts));
    wanted
}

/// Holds the stream of a warm pod until it is taken; `None` if the pod dies first.
async fn hold(pool: Arc<Pool>, mut sandbox: Sandbox, taken: oneshot::Receiver<()>) -> Option<Sandbox> {
    let Sandbox { attached, pod, .. } = &mut sandbox;
    let mut why = String::new();
    let died = async {
        loop {
            tokio::select! {
                frame = attached.next() => match frame {
                    // Its interpreter has ended, for example. The stream stays open until the runner has waited for its `ack`.
                    Ok(FromRunner::Result(result)) => {
                        why = format!("its runner has ended: {:?}", result.exit);
                        return;
                    }
                    Ok(_) => {}
                    Err(error) => {
                        why = error.to_string();
                        return;
                    }
                },
                changed = pod.state.changed() => {
                    let state = pod.state.borrow();
                    let is_bad = |facts: &PodFacts| facts.has_ended() || pod_failure(facts).is_some();
                    if changed.is_err() || state.is_gone || state.facts.as_ref().is_some_and(is_bad) {
                        let found = state.facts.as_ref().and_then(pod_failure);
                        why = found.map_or_else(|| "it is over".to_owned(), |found| found.message);
                        return;
                    }
                }
            }
        }
    };
    if taken_before_death(taken, died).await {
        return Some(sandbox);
    }
    tracing::info!(job = %pod.job, %why, "a pod of the pool is lost");
    // The run that takes the next one does not wait for it.
    pool.discard(sandbox);
    pool.runs.notify();
    None
}

/// Whether a pod is taken before it has `died`; a run that is given a dead one would lose a try.
async fn taken_before_death(taken: oneshot::Receiver<()>, died: impl Future<Output = ()>) -> bool {
    tokio::select! {
        biased;
        () = died => false,
        _ = taken => true,
    }
}

async fn refill(pool: Arc<Pool>) {
    let mut pause = FIRST_PAUSE;
    let mut changes = pool.runs.listen();
    loop {
        changes.mark_unchanged();
        pool.sweep();
        let Some(kind) = pool.reserve() else {
            let _ = tokio::time::timeout(SWEEP_INTERVAL, changes.changed()).await;
            continue;
        };
        let reserved = StartReservation {
            pool: &pool,
            kind: kind.clone(),
        };
        pool.runs.wait().await;
        let resolved = pool.resolved.load_full();
        let key = key(&resolved, &kind);
        let requirements = PodRequirements::of_pool(&resolved, &kind);
        let launched = pool
            .launcher
            .launch(&resolved, &requirements, Requester::Pool, &|_| {})
            .await;
        match launched {
            Ok(sandbox) => {
                pause = FIRST_PAUSE;
                pool.put(kind, key, sandbox);
            }
            Err(error) => {
                tracing::warn!(runtime = %resolved.reference(), %error, "a warm pod could not be created");
                if kind.is_on_demand() {
                    // Its Secret or its image may be gone. The next run with it gets the error; pods of other kinds are started
                    // meanwhile.
                    pool.lock().slots.entry(kind).or_default().used = None;
                    continue;
                }
                if lacks_interpreter(&error) {
                    pool.lock().slots.entry(kind).or_default().is_wanted = false;
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
struct StartReservation<'a> {
    pool: &'a Pool,
    kind: PodKind,
}

impl Drop for StartReservation<'_> {
    fn drop(&mut self) {
        let mut state = self.pool.lock();
        if let Some(slot) = state.slots.get_mut(&self.kind) {
            slot.starting = slot.starting.saturating_sub(1);
        }
    }
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
