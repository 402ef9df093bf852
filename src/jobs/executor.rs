//! The executor of one runtime: ownership, records, queue, pool and conversation in one path.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use knack_execution::check::check;
use knack_execution::{
    Capabilities, ExecutionError, ExecutionId, ExecutionRecord, ExecutionRequest, ExecutionResult, Executor, now,
};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::ownership::Ownership;
use super::ownership::ownership_term::{KnownState, Term};
use super::ownership::serving_state::ServingState;
use super::request::{JobRequest, PoolCounts};
use super::resolved_runtime::ResolvedRuntime;
use super::run::event::Event;
use super::settings::{JobClients, JobSettings};
use crate::lease::ReadRequest;

/// How long a run waits for an owner that is taking over: reading the journals of a full runtime takes seconds. The head of its
/// answer does not wait for it.
const TAKE_OVER_PATIENCE: Duration = Duration::from_secs(20);
/// How long a look-up waits for it, whose caller asks again: most takeovers, those with few journals, are over by then.
const LOOKUP_PATIENCE: Duration = Duration::from_millis(500);

/// Runs executions as Jobs of one SkillRuntime; see the module.
#[derive(Debug)]
pub struct JobExecutor {
    resolved: Arc<ArcSwap<ResolvedRuntime>>,
    state: watch::Receiver<ServingState>,
    read_request: ReadRequest,
    shutdown: CancellationToken,
    retired: Arc<AtomicBool>,
    ownership: Mutex<Option<JoinHandle<()>>>,
}

/// An execution that its owner knows. What it asks was admitted when it came first.
pub struct KnownExecution {
    term: Arc<Term>,
    state: KnownState,
}

impl std::fmt::Debug for KnownExecution {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("KnownExecution").finish_non_exhaustive()
    }
}

impl KnownExecution {
    /// Waits for the outcome, as [`JobExecutor::execute_streaming`] does.
    pub async fn attend(
        self,
        cancel: CancellationToken,
        events: mpsc::Sender<Event>,
    ) -> Result<Arc<ExecutionResult>, ExecutionError> {
        match self.state {
            KnownState::Live(waiter, spool) => self.term.attend(waiter, spool, &cancel, &events).await,
            KnownState::Ended(outcome) => outcome,
        }
    }
}

impl JobExecutor {
    /// Opens the executor of a runtime and starts to compete for its ownership. Must be called inside a tokio runtime.
    #[must_use]
    pub fn new(clients: JobClients, resolved: ResolvedRuntime, settings: JobSettings) -> Arc<Self> {
        let resolved = Arc::new(ArcSwap::from_pointee(resolved));
        let shutdown = CancellationToken::new();
        let (sender, state) = watch::channel(ServingState::default());
        let retired = Arc::<AtomicBool>::default();
        let read_request = ReadRequest::default();
        let ownership = Ownership {
            read_request: read_request.clone(),
            clients,
            retired: Arc::clone(&retired),
            resolved: Arc::clone(&resolved),
            settings,
            state: sender,
            shutdown: shutdown.clone(),
            wall_clock: now,
        };
        Arc::new(Self {
            resolved,
            state,
            read_request,
            shutdown,
            retired,
            ownership: Mutex::new(Some(tokio::spawn(ownership.keep()))),
        })
    }

    /// Applies changed settings: to the next run, without a restart. Running executions keep theirs.
    ///
    /// Namespace, name and uid stay those of [`JobExecutor::new`].
    pub fn update(&self, resolved: ResolvedRuntime) {
        self.resolved.store(Arc::new(resolved));
        if let ServingState::Serving(term) = &*self.state.borrow() {
            term.renew();
        }
    }

    /// The settings in use.
    #[must_use]
    pub fn resolved(&self) -> Arc<ResolvedRuntime> {
        self.resolved.load_full()
    }

    /// Whether this replica owns the runtime now and serves it.
    #[must_use]
    pub fn is_owner(&self) -> bool {
        matches!(*self.state.borrow(), ServingState::Serving(_))
    }

    /// Whether this replica owns the runtime, or is about to: its end then leaves a gap.
    #[must_use]
    pub fn is_held(&self) -> bool {
        matches!(
            *self.state.borrow(),
            ServingState::Serving(_) | ServingState::TakingOver
        )
    }

    /// Where another replica answers that owns the runtime; `None`: there is none, or it does not say so.
    #[must_use]
    pub fn other_owner(&self) -> Option<String> {
        match &*self.state.borrow() {
            ServingState::Standby { owner } => owner.clone(),
            _ => None,
        }
    }

    /// Waits until this replica owns the runtime and serves it.
    pub async fn wait_until_owner(&self) {
        let mut state = self.state.clone();
        // The sender lives as long as the task that `shutdown` ends; after that no run is accepted.
        if state
            .wait_for(|state| matches!(state, ServingState::Serving(_)))
            .await
            .is_err()
        {
            std::future::pending::<()>().await;
        }
    }

    /// Waits until this replica does not serve the runtime any more; returns at once if it does not now.
    pub async fn wait_until_not_owner(&self) {
        let mut state = self.state.clone();
        // Without a sender no run is accepted any more.
        let _ = state.wait_for(|state| !matches!(state, ServingState::Serving(_))).await;
    }

    /// Counts for status and metrics; all zero while another replica owns the runtime.
    #[must_use]
    pub fn counts(&self) -> PoolCounts {
        match &*self.state.borrow() {
            ServingState::Serving(term) => term.counts(),
            _ => PoolCounts::default(),
        }
    }

    /// Runs the request as [`Executor::execute`] does and sends its events into `events`, from the first one, also to
    /// callers that repeat the id of a running execution. A slow receiver slows no other; dropping one ends nothing.
    ///
    /// The result comes after the last event was taken. `cancel` ends the run at once unless another caller waits for
    /// it; a dropped future ends it after [`JobSettings::orphan_grace`].
    pub async fn execute_streaming(
        &self,
        request: JobRequest,
        cancel: CancellationToken,
        events: mpsc::Sender<Event>,
    ) -> Result<Arc<ExecutionResult>, ExecutionError> {
        check(&request.execution)?;
        let resolved = self.resolved.load();
        if let Some(why) = &resolved.stopped {
            return Err(ExecutionError::Unavailable(why.clone()));
        }
        if request.execution.limits.timeout > resolved.max_timeout {
            return Err(ExecutionError::Invalid(format!(
                "limits.timeout: {} s, the runtime allows {} s (spec.sandbox.maxTimeoutSeconds); ask for less",
                request.execution.limits.timeout.as_secs(),
                resolved.max_timeout.as_secs()
            )));
        }
        let term = self.term(TAKE_OVER_PATIENCE).await?;
        term.execute(request, &cancel, events).await
    }

    /// The execution of an id that this replica knows, whatever may run now: that of a request that is repeated. `None`: a request
    /// with this id would be its first.
    ///
    /// Errors: another replica owns the runtime; the execution is gone.
    pub async fn known(&self, caller: &str, id: ExecutionId) -> Result<Option<KnownExecution>, ExecutionError> {
        let term = self.term(TAKE_OVER_PATIENCE).await?;
        let known = term.known(caller, id)?;
        Ok(known.map(|state| KnownExecution { term, state }))
    }

    /// Hands the runtime over: accepts no new runs, deletes idle pods, releases the Lease and leaves running executions
    /// to the next owner.
    pub async fn shutdown(&self) {
        self.shutdown.cancel();
        let task = self.ownership.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            // A task that panicked has nothing to hand over.
            let _ = task.await;
        }
    }

    /// The runtime is deleted: as [`JobExecutor::shutdown`], and running executions are ended. Their pods would
    /// otherwise continue until their time limits.
    pub async fn retire(&self) {
        self.retired.store(true, Ordering::Relaxed);
        self.shutdown().await;
    }

    /// The term, once this replica serves, within `patience`.
    async fn term(&self, patience: Duration) -> Result<Arc<Term>, ExecutionError> {
        let mut state = self.state.clone();
        let settled = state.wait_for(|state| !matches!(state, ServingState::TakingOver | ServingState::Unknown));
        match tokio::time::timeout(patience, settled).await {
            Ok(Ok(state)) => match &*state {
                ServingState::Serving(term) => Ok(Arc::clone(term)),
                ServingState::Standby { owner } => {
                    // The caller may have found that the owner is gone.
                    self.read_request.request();
                    Err(ExecutionError::NotOwner { owner: owner.clone() })
                }
                ServingState::TakingOver | ServingState::Unknown => Err(ExecutionError::NotOwner { owner: None }),
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
        let term = self.term(LOOKUP_PATIENCE).await?;
        term.records.get(knack_execution::now(), caller, id)
    }

    async fn cancel(&self, caller: &str, id: ExecutionId) -> Result<(), ExecutionError> {
        let term = self.term(LOOKUP_PATIENCE).await?;
        term.records.cancel(knack_execution::now(), caller, id)
    }

    fn capabilities(&self) -> Capabilities {
        let resolved = self.resolved();
        Capabilities {
            languages: resolved.languages.clone(),
            missing: None,
            notes: Vec::new(),
            concurrency: resolved.max_runs,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::jobs::pods::spec::tests::resolved;

    #[tokio::test(start_paused = true)]
    async fn look_ups_do_not_wait_for_a_takeover() {
        for state in [ServingState::TakingOver, ServingState::Unknown] {
            let (_sender, state) = watch::channel(state);
            let executor = JobExecutor {
                resolved: Arc::new(ArcSwap::from_pointee(resolved())),
                state,
                read_request: ReadRequest::default(),
                shutdown: CancellationToken::new(),
                retired: Arc::default(),
                ownership: Mutex::default(),
            };
            let id = ExecutionId::new(knack_execution::now(), "r", 0, "c");
            let nobody = Some(ExecutionError::NotOwner { owner: None });
            let begun = Instant::now();
            assert_eq!(executor.get("c", id).await.err(), nobody);
            assert_eq!(executor.cancel("c", id).await.err(), nobody);
            assert_eq!(begun.elapsed(), 2 * LOOKUP_PATIENCE);
            // A run that is asked for again waits, behind the head of its answer.
            assert_eq!(executor.known("c", id).await.err(), nobody);
            assert_eq!(begun.elapsed(), 2 * LOOKUP_PATIENCE + TAKE_OVER_PATIENCE);
        }
    }
}
