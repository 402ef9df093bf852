//! The executor of one runtime: ownership, records, queue, pool and conversation in one path.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::event::Event;
use super::recovery::recover;
use super::settings::{JobClients, JobSettings};
use super::term::{Foundation, Term};
use super::view::{PodResources, RuntimeView};
use crate::api::vocabulary::LEASE_RUNTIME_PREFIX;
use crate::execution::check::check;
use crate::execution::{
    Capabilities, ExecutionError, ExecutionId, ExecutionRecord, ExecutionRequest, ExecutionResult, Executor, Missing,
};
use crate::lease::{Claim, Lease, LeaseSettings, Nudge};
use crate::serving::bodies::Holding;

/// How long a caller waits for an owner that is taking over: reading the journals of a full runtime takes seconds.
const TAKE_OVER_PATIENCE: Duration = Duration::from_secs(20);

/// An execution at a runtime: the request and what it asks of its pod.
#[derive(Debug, Clone)]
pub struct JobRequest {
    /// What to run.
    pub execution: ExecutionRequest,
    /// Namespace of the skill that the run belongs to; with [`JobRequest::skill`] the Job's labels, and nothing else: a right
    /// to values has only `execution.tool`.
    pub skill_namespace: Option<String>,
    /// Name of the skill.
    pub skill: Option<String>,
    /// Revision of the skill: what the artifact's name ends in.
    pub revision: Option<String>,
    /// Another image than the runtime's, if the runtime allows it. Goes cold.
    pub image: Option<String>,
    /// Other resources than the runtime's, under its ceiling. Goes cold.
    pub resources: Option<PodResources>,
    /// In whose name it waits for a place: places are shared evenly between names.
    pub sharer: String,
    /// Its share of the process's memory, held until the run has ended.
    pub memory: Option<Arc<Holding>>,
}

impl From<ExecutionRequest> for JobRequest {
    /// As the runtime says, for the skill that the request names (`namespace/name`).
    fn from(execution: ExecutionRequest) -> Self {
        let parts = execution.skill.as_deref().and_then(|skill| skill.split_once('/'));
        let (skill_namespace, skill) = match parts {
            Some((namespace, name)) => (Some(namespace.to_owned()), Some(name.to_owned())),
            None => (None, execution.skill.clone()),
        };
        Self {
            sharer: execution.caller.clone(),
            memory: None,
            execution,
            skill_namespace,
            skill,
            revision: None,
            image: None,
            resources: None,
        }
    }
}

/// Runs executions as Jobs of one SkillRuntime; see the module.
#[derive(Debug)]
pub struct JobExecutor {
    view: Arc<ArcSwap<RuntimeView>>,
    state: watch::Receiver<State>,
    nudge: Nudge,
    shutdown: CancellationToken,
    retired: Arc<AtomicBool>,
    ownership: Mutex<Option<JoinHandle<()>>>,
}

/// Whether this replica serves the runtime.
#[derive(Debug, Clone, Default)]
enum State {
    /// Nobody is known to.
    #[default]
    Unknown,
    /// Another one does.
    Standby { owner: Option<String> },
    /// This one is reading what the last owner left.
    TakingOver,
    /// This one does.
    Serving(Arc<Term>),
}

/// Counts for status and metrics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolCounts {
    /// Pods that stand ready.
    pub ready: usize,
    /// Pods that shall stand ready.
    pub desired: usize,
    /// Executions that run.
    pub running: usize,
    /// Executions that wait for a place.
    pub queued: usize,
}

impl JobExecutor {
    /// Opens the executor of a runtime and starts to compete for its ownership. Must be called inside a tokio runtime.
    #[must_use]
    pub fn new(clients: JobClients, view: RuntimeView, settings: JobSettings) -> Arc<Self> {
        let view = Arc::new(ArcSwap::from_pointee(view));
        let shutdown = CancellationToken::new();
        let (sender, state) = watch::channel(State::default());
        let retired = Arc::<AtomicBool>::default();
        let nudge = Nudge::default();
        let ownership = Ownership {
            nudge: nudge.clone(),
            clients,
            retired: Arc::clone(&retired),
            view: Arc::clone(&view),
            settings,
            state: sender,
            shutdown: shutdown.clone(),
        };
        Arc::new(Self {
            view,
            state,
            nudge,
            shutdown,
            retired,
            ownership: Mutex::new(Some(tokio::spawn(ownership.keep()))),
        })
    }

    /// Takes changed settings over: for the next run, without a restart. Runs under way keep theirs.
    ///
    /// Namespace, name and uid stay those of [`JobExecutor::new`].
    pub fn update(&self, view: RuntimeView) {
        self.view.store(Arc::new(view));
        if let State::Serving(term) = &*self.state.borrow() {
            term.renew();
        }
    }

    /// The settings in use.
    #[must_use]
    pub fn view(&self) -> Arc<RuntimeView> {
        self.view.load_full()
    }

    /// Whether this replica owns the runtime now and serves it.
    #[must_use]
    pub fn is_owner(&self) -> bool {
        matches!(*self.state.borrow(), State::Serving(_))
    }

    /// `Some` if another replica owns the runtime: where it answers, if it says so.
    #[must_use]
    pub fn other_owner(&self) -> Option<Option<String>> {
        match &*self.state.borrow() {
            State::Standby { owner } => Some(owner.clone()),
            _ => None,
        }
    }

    /// Waits until this replica owns the runtime and serves it.
    pub async fn wait_until_owner(&self) {
        let mut state = self.state.clone();
        // The sender lives as long as the task that `shutdown` ends; then nobody serves any more.
        if state
            .wait_for(|state| matches!(state, State::Serving(_)))
            .await
            .is_err()
        {
            std::future::pending::<()>().await;
        }
    }

    /// Waits until this replica does not serve the runtime any more; returns at once if it does not now.
    pub async fn wait_until_not_owner(&self) {
        let mut state = self.state.clone();
        // Without a sender nobody serves any more.
        let _ = state.wait_for(|state| !matches!(state, State::Serving(_))).await;
    }

    /// Counts for status and metrics; all zero while another replica owns the runtime.
    #[must_use]
    pub fn counts(&self) -> PoolCounts {
        match &*self.state.borrow() {
            State::Serving(term) => term.counts(),
            _ => PoolCounts::default(),
        }
    }

    /// Runs the request as [`Executor::execute`] does and tells what happens into `events`, from the beginning, also to
    /// those who ask again for an id that runs. A receiver that is slow slows nobody; one that is dropped ends nothing.
    ///
    /// The result comes after the last event was taken. `cancel` ends the run at once unless somebody else waits for it; a
    /// future that is dropped ends it after [`JobSettings::orphan_grace`].
    pub async fn execute_streaming(
        &self,
        request: JobRequest,
        cancel: CancellationToken,
        events: mpsc::Sender<Event>,
    ) -> Result<Arc<ExecutionResult>, ExecutionError> {
        check(&request.execution)?;
        let view = self.view.load();
        if view.suspended {
            return Err(ExecutionError::Unavailable(Missing::new(
                format!("SkillRuntime {} is suspended", view.reference()),
                "set spec.suspend to false",
            )));
        }
        if request.execution.limits.timeout > view.max_timeout {
            return Err(ExecutionError::Invalid(format!(
                "a time limit of {} s, the runtime allows {} s",
                request.execution.limits.timeout.as_secs(),
                view.max_timeout.as_secs()
            )));
        }
        let term = self.term().await?;
        term.execute(request, &cancel, events).await
    }

    /// Hands the runtime over: takes no new runs, deletes what stands idle, lets go of the Lease and leaves what runs to
    /// the next owner.
    pub async fn shutdown(&self) {
        self.shutdown.cancel();
        let task = self.ownership.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            // A task that panicked has nothing to hand over.
            let _ = task.await;
        }
    }

    /// The runtime is deleted: as [`JobExecutor::shutdown`], and what runs is ended. Its pods would go on for as long as their
    /// runs may.
    pub async fn retire(&self) {
        self.retired.store(true, Ordering::Relaxed);
        self.shutdown().await;
    }

    /// The term, once this replica serves.
    async fn term(&self) -> Result<Arc<Term>, ExecutionError> {
        let mut state = self.state.clone();
        let settled = state.wait_for(|state| !matches!(state, State::TakingOver | State::Unknown));
        match tokio::time::timeout(TAKE_OVER_PATIENCE, settled).await {
            Ok(Ok(state)) => match &*state {
                State::Serving(term) => Ok(Arc::clone(term)),
                State::Standby { owner } => {
                    // Whoever asks here may have found the owner gone.
                    self.nudge.look();
                    Err(ExecutionError::NotOwner { owner: owner.clone() })
                }
                State::TakingOver | State::Unknown => Err(ExecutionError::NotOwner { owner: None }),
            },
            _ => Err(ExecutionError::NotOwner { owner: None }),
        }
    }
}

impl Drop for JobExecutor {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

#[async_trait]
impl Executor for JobExecutor {
    async fn execute(
        &self,
        request: ExecutionRequest,
        cancel: CancellationToken,
    ) -> Result<Arc<ExecutionResult>, ExecutionError> {
        let (events, _) = mpsc::channel(1);
        self.execute_streaming(request.into(), cancel, events).await
    }

    async fn get(&self, caller: &str, id: ExecutionId) -> Result<ExecutionRecord, ExecutionError> {
        self.term().await?.records.get(crate::execution::now(), caller, id)
    }

    async fn cancel(&self, caller: &str, id: ExecutionId) -> Result<(), ExecutionError> {
        self.term().await?.records.cancel(crate::execution::now(), caller, id)
    }

    fn capabilities(&self) -> Capabilities {
        let view = self.view();
        Capabilities {
            languages: view.languages.clone(),
            missing: None,
            notes: Vec::new(),
            concurrency: view.max_runs,
        }
    }
}

/// The task that keeps the Lease and serves while it is held.
struct Ownership {
    nudge: Nudge,
    clients: JobClients,
    view: Arc<ArcSwap<RuntimeView>>,
    settings: JobSettings,
    state: watch::Sender<State>,
    shutdown: CancellationToken,
    /// The runtime is deleted.
    retired: Arc<AtomicBool>,
}

impl Ownership {
    async fn keep(self) {
        let view = self.view.load_full();
        let lease = LeaseSettings {
            address: Some(self.settings.address.clone()),
            // It goes with its runtime.
            owner: Some(super::spec::owner(&view)),
            duration: self.settings.lease_duration,
            // Of 15 s: a runtime that does nothing costs one write in 5 s, and each standby one read in 7.5 s.
            interval: self.settings.lease_duration / 3,
            standby: self.settings.lease_duration / 2,
            nudge: self.nudge.clone(),
            ..LeaseSettings::new(
                &view.namespace,
                format!("{LEASE_RUNTIME_PREFIX}{}", view.name),
                &self.settings.replica,
            )
        };
        let (lease, mut claim) = Lease::new(self.clients.api.clone(), lease);
        let release = CancellationToken::new();
        let renewing = tokio::spawn(lease.run(release.clone()));
        loop {
            tokio::select! {
                () = self.shutdown.cancelled() => break,
                () = self.wait_for_lease(&mut claim) => {}
            }
            self.serve(claim.clone()).await;
            if self.shutdown.is_cancelled() {
                break;
            }
        }
        self.state.send_replace(State::Standby { owner: None });
        release.cancel();
        // It only fails if it panicked; the Lease then runs out by itself.
        let _ = renewing.await;
    }

    /// Waits until the Lease is ours and tells meanwhile whose it is.
    async fn wait_for_lease(&self, claim: &mut watch::Receiver<Claim>) {
        loop {
            let now = claim.borrow_and_update().clone();
            if now.is_mine(tokio::time::Instant::now()) {
                return;
            }
            if now.holder.is_some() {
                self.state.send_replace(State::Standby { owner: now.address });
            }
            if claim.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// One term: recovers, serves, and lets go when the Lease is lost or the process ends.
    async fn serve(&self, claim: watch::Receiver<Claim>) {
        self.state.send_replace(State::TakingOver);
        let over = CancellationToken::new();
        let _ended = over.clone().drop_guard();
        let view = self.view.load_full();
        let begin = async {
            let foundation = Foundation::lay(&self.clients, &view, &self.settings).await;
            recover(&foundation, &view, &self.settings, &over).await;
            Term::begin(
                foundation,
                Arc::clone(&self.view),
                &self.settings,
                claim.clone(),
                over.clone(),
            )
        };
        let term = tokio::select! {
            term = begin => term,
            () = lost(claim.clone()) => return,
            () = self.shutdown.cancelled() => return,
        };
        tracing::info!(runtime = %view.reference(), "serves the runtime");
        self.state.send_replace(State::Serving(Arc::clone(&term)));
        tokio::select! {
            () = lost(claim) => {
                tracing::warn!(runtime = %view.reference(), "lost the runtime");
                self.state.send_replace(State::Standby { owner: None });
                over.cancel();
                term.pool.abandon();
            }
            () = self.shutdown.cancelled() => {
                self.state.send_replace(State::Standby { owner: None });
                over.cancel();
                term.pool.close().await;
                if self.retired.load(Ordering::Relaxed) {
                    term.end_pods().await;
                }
            }
        }
    }
}

/// Returns when the Lease is not ours any more, by its own clock.
async fn lost(mut claim: watch::Receiver<Claim>) {
    loop {
        let until = claim.borrow_and_update().mine_until;
        let Some(until) = until else { return };
        tokio::select! {
            changed = claim.changed() => if changed.is_err() { return },
            () = tokio::time::sleep_until(until) => {
                if !claim.borrow().is_mine(tokio::time::Instant::now()) {
                    return;
                }
            }
        }
    }
}
