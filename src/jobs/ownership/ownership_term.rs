//! One term of ownership: everything that a replica holds while it owns a runtime, and lets go of when it does not.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use knack_execution::conversation::RunEnd;
use knack_execution::queue::{Queue, QueueSettings};
use knack_execution::records::{Claim, Outcome, Records, Run, Waiter};
use knack_execution::{ExecutionError, ExecutionId, Language, Missing, Program, StartKind, now};
use knack_memory::MemoryBudget;
use knack_vocabulary::LABEL_RUNTIME;
use kube::api::ListParams;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::term_services::TermServices;
use super::waiter_grace::WaiterGrace;
use crate::jobs::cluster::call;
use crate::jobs::isolation;
use crate::jobs::nodes::node_gate::NodeRefusal;
use crate::jobs::pods::handshake::STREAM_ENDED;
use crate::jobs::pods::kinds::PodKind;
use crate::jobs::pods::launch::{Launcher, Sandbox};
use crate::jobs::pods::pod_requirements::{PodRequirements, Requester};
use crate::jobs::pods::pool::Pool;
use crate::jobs::pods::sandboxes_ready;
use crate::jobs::records::finished_jobs;
use crate::jobs::records::job_record::{self, PendingWrites};
use crate::jobs::records::lease_notes;
use crate::jobs::request::{JobRequest, PoolCounts};
use crate::jobs::resolved_runtime::ResolvedRuntime;
use crate::jobs::run::event::Event;
use crate::jobs::run::spool::Spool;
use crate::jobs::run::{self, PodRun, RunCancellation};
use crate::jobs::settings::JobSettings;
use crate::lease::LeaseHolder;

/// Pods tried for one execution: one that dies before its run started is bad luck, three are a state of the cluster.
const MAX_PODS: u32 = 3;

/// When the record of a run is written: after the next call of a chain, so that the Job controller's work does not take
/// its CPU; at once if the term ends.
const RECORD_DELAY: Duration = Duration::from_millis(400);

/// How long a run waits for others to return the memory of what they send. Sending takes milliseconds.
const SEND_PATIENCE: Duration = Duration::from_secs(2);
/// How often it tries again. It does not wait in the queue of the budget: that keeps what is free for whoever waits, so
/// every smaller request of the process would be refused meanwhile.
const SEND_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The term; see the module.
#[derive(Debug)]
pub(in crate::jobs) struct Term {
    pub(in crate::jobs) resolved: Arc<ArcSwap<ResolvedRuntime>>,
    pub(in crate::jobs) launcher: Launcher,
    pub(in crate::jobs) records: Arc<Records>,
    unwritten: PendingWrites,
    pub(in crate::jobs) pool: Arc<Pool>,
    queue: Queue,
    spools: Mutex<HashMap<(String, ExecutionId), Arc<Spool>>>,
    orphan_grace: Duration,
    /// The memory for what is on its way to pods.
    memory: Option<MemoryBudget>,
    /// Cancelled when the term has ended.
    pub(in crate::jobs) ended: CancellationToken,
    lease: watch::Receiver<LeaseHolder>,
    running: AtomicUsize,
    /// Callers that are being answered.
    attended: AtomicUsize,
    /// Executions that were asked for, in all.
    asked: AtomicUsize,
    /// How long Jobs that are made now are kept, but for the skew of clocks.
    retention_seconds: AtomicU64,
    _tasks: Vec<AbortOnDropHandle<()>>,
}

/// How far an execution is that is asked for again.
pub(in crate::jobs) enum KnownState {
    /// It waits or runs; its events, if it began here.
    Live(WaiterGrace, Option<Arc<Spool>>),
    /// It has ended.
    Ended(Outcome),
}

impl Term {
    /// Begins to serve.
    pub(super) fn begin(
        services: TermServices,
        resolved: Arc<ArcSwap<ResolvedRuntime>>,
        settings: &JobSettings,
        lease: watch::Receiver<LeaseHolder>,
        term_ended: CancellationToken,
    ) -> Arc<Self> {
        let queue = Queue::new(queue_settings(&resolved.load()));
        let (pool, mut tasks) = Pool::start(services.launcher.clone(), Arc::clone(&resolved));
        tasks.push(services.watch);
        let watching = sandboxes_ready::watch(
            services.launcher.cluster.clone(),
            Arc::clone(&resolved),
            services.launcher.starts.clone(),
        );
        tasks.push(AbortOnDropHandle::new(tokio::spawn(watching)));
        let capped = finished_jobs::cap(
            services.launcher.cluster.clone(),
            Arc::clone(&resolved),
            settings.max_finished,
        );
        tasks.push(AbortOnDropHandle::new(tokio::spawn(capped)));
        if let Some(target) = settings.probe.clone() {
            let launcher = services.launcher.clone();
            // Before the first run asks: it waits for a probe then, and is not refused.
            launcher.gate.open();
            let probes = Arc::clone(&settings.probes);
            let watched = isolation::watch(launcher, Arc::clone(&resolved), target, probes, term_ended.clone());
            tasks.push(AbortOnDropHandle::new(tokio::spawn(watched)));
        }
        Arc::new(Self {
            resolved,
            launcher: services.launcher,
            records: services.records,
            unwritten: services.unwritten,
            pool,
            queue,
            spools: Mutex::default(),
            orphan_grace: settings.orphan_grace,
            memory: settings.memory.as_ref().map(|memory| memory.whole.clone()),
            ended: term_ended,
            lease,
            running: AtomicUsize::new(0),
            attended: AtomicUsize::new(0),
            asked: AtomicUsize::new(0),
            retention_seconds: AtomicU64::new(services.retention.as_secs()),
            _tasks: tasks,
        })
    }

    /// Takes changed settings over.
    pub(in crate::jobs) fn renew(&self) {
        let resolved = self.resolved.load_full();
        self.records.renew(now(), resolved.ttl, resolved.admission);
        let before = self.retention_seconds.swap(resolved.ttl.as_secs(), Ordering::Relaxed);
        if resolved.ttl.as_secs() < before {
            let (cluster, resolved) = (self.launcher.cluster.clone(), Arc::clone(&resolved));
            self.unwritten
                .spawn(async move { lease_notes::lower_retention(&cluster, &resolved).await });
        }
        self.queue.resize(queue_settings(&resolved));
        self.pool.renew();
        // Conditions of the generation before would count as of none.
        self.launcher.starts.notify_edited();
        self.launcher.gate.notify_edited();
    }

    /// Counts for status and metrics.
    pub(in crate::jobs) fn counts(&self) -> PoolCounts {
        PoolCounts {
            ready: self.pool.ready(),
            desired: self.pool.desired(),
            running: self.running.load(Ordering::Relaxed),
            queued: self.queue.waiting(),
        }
    }

    /// Executions that wait, run, or whose callers get the result at this moment.
    pub(super) fn in_flight(&self) -> usize {
        self.records.live().max(self.attended.load(Ordering::Relaxed))
    }

    /// How many executions were asked for in this term.
    pub(in crate::jobs) fn requested(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    /// Claims and runs, or joins the run of the same id.
    pub(in crate::jobs) async fn execute(
        self: &Arc<Self>,
        request: JobRequest,
        cancel: &CancellationToken,
        events: mpsc::Sender<Event>,
    ) -> Outcome {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if let Some(missing) = self.refusal() {
            return Err(ExecutionError::Unavailable(missing));
        }
        let execution = &request.execution;
        let key = (execution.caller.clone(), execution.id);
        let skill = execution.skill.as_ref().map(ToString::to_string);
        let claim = self
            .records
            .claim(now(), &execution.caller, execution.id, skill.as_deref())?;
        let (waiter, spool) = match claim {
            Claim::Ended(outcome) => return outcome,
            Claim::Known(waiter) => (waiter, self.spool(&key)),
            Claim::First(run, waiter) => {
                let spool = Spool::new(self.launcher.results.clone());
                run.shared_by(&request.sharer);
                self.lock().insert(key.clone(), Arc::clone(&spool));
                // From its begin on: the record of a run that ends as the term does is waited for, too.
                self.unwritten
                    .spawn(Arc::clone(self).drive(run, request, Arc::clone(&spool)));
                (waiter, Some(spool))
            }
        };
        self.attend(self.with_grace(waiter), spool, cancel, &events).await
    }

    /// The execution of an id that is known here; `None`: it is none yet.
    pub(in crate::jobs) fn known(&self, caller: &str, id: ExecutionId) -> Result<Option<KnownState>, ExecutionError> {
        let state = match self.records.claim_known(now(), caller, id)? {
            Some(Claim::Known(waiter)) => {
                KnownState::Live(self.with_grace(waiter), self.spool(&(caller.to_owned(), id)))
            }
            Some(Claim::Ended(outcome)) => KnownState::Ended(outcome),
            Some(Claim::First(..)) | None => return Ok(None),
        };
        self.asked.fetch_add(1, Ordering::Relaxed);
        Ok(Some(state))
    }

    /// A caller that disconnects without cancelling leaves the run going for a while.
    fn with_grace(&self, waiter: Waiter) -> WaiterGrace {
        WaiterGrace {
            waiter: Some(waiter),
            grace: self.orphan_grace,
        }
    }

    fn spool(&self, key: &(String, ExecutionId)) -> Option<Arc<Spool>> {
        self.lock().get(key).cloned()
    }

    /// Waits for the outcome and hands the events on meanwhile.
    pub(in crate::jobs) async fn attend(
        &self,
        mut waiting: WaiterGrace,
        spool: Option<Arc<Spool>>,
        cancel: &CancellationToken,
        events: &mpsc::Sender<Event>,
    ) -> Outcome {
        let _attended = CountGuard::add(&self.attended);
        let forwarded = async {
            if let Some(spool) = spool {
                spool.forward(events).await;
            }
        };
        let outcome = async {
            match waiting.waiter.as_mut() {
                Some(waiter) => waiter.wait().await,
                None => Err(ExecutionError::NotFound),
            }
        };
        tokio::select! {
            (outcome, ()) = async { tokio::join!(outcome, forwarded) } => outcome,
            () = self.ended.cancelled() => Err(ExecutionError::NotOwner { owner: None }),
            () = cancel.cancelled() => {
                drop(waiting.waiter.take());
                Err(ExecutionError::Cancelled)
            }
        }
    }

    /// Ends every pod of the runtime that is there. One of the same name that was made after it may have pods, too.
    pub(super) async fn end_pods(&self) {
        // The pods first: their Jobs were made before.
        let pods = self.launcher.index.all();
        let (cluster, resolved) = (&self.launcher.cluster, self.resolved.load());
        let parameters = ListParams::default().labels(&format!("{LABEL_RUNTIME}={}", resolved.name));
        let others = match call(cluster.jobs.list_metadata(&parameters)).await {
            Ok(jobs) => jobs_of_others(jobs.items.iter().map(|job| &job.metadata), &resolved.uid),
            Err(error) => {
                tracing::warn!(%error, "the Jobs of a runtime that is gone cannot be listed; its pods end with them");
                return;
            }
        };
        for facts in pods
            .iter()
            .filter(|facts| !facts.has_ended() && !others.contains(&facts.job_uid))
        {
            cluster.delete_pod(&facts.name, &facts.uid).await;
        }
    }

    async fn drive(self: Arc<Self>, run: Run, request: JobRequest, spool: Arc<Spool>) {
        let key = (request.execution.caller.clone(), request.execution.id);
        let cancel = run.cancel.clone();
        let entered = tokio::select! {
            entered = self.queue.enter(&request.sharer) => entered,
            () = cancel.cancelled() => Err(ExecutionError::Cancelled),
            () = self.ended.cancelled() => Err(ExecutionError::NotOwner { owner: None }),
        };
        let outcome = match entered {
            Err(error) => Err(error),
            Ok(permit) => {
                run.start();
                let _running = CountGuard::add(&self.running);
                let began = Instant::now();
                let outcome = self.run(&request, &cancel, &spool).await;
                outcome.map(|mut result| {
                    result.timings.queue_wait = permit.waited;
                    result.timings.total = began.elapsed();
                    Arc::new(result)
                })
            }
        };
        run.finish(now(), outcome);
        spool.close();
        self.lock().remove(&key);
    }

    /// Runs in a warm pod if there is one, else, or if that one fails before the start, in a new one.
    async fn run(
        self: &Arc<Self>,
        request: &JobRequest,
        cancel: &CancellationToken,
        spool: &Arc<Spool>,
    ) -> Result<knack_execution::ExecutionResult, ExecutionError> {
        let _active = self.pool.active();
        let resolved = self.resolved.load_full();
        let requirements = requirements(&resolved, request);
        let kind = PodKind::of(&requirements, &resolved);
        let is_of_pool = requirements == PodRequirements::of_pool(&resolved, &kind);
        let cancellation = RunCancellation {
            cancel: cancel.clone(),
            lost: self.ended.clone(),
        };
        let mut tried = 0;
        loop {
            tried += 1;
            self.check_stopped()?;
            // Before a pod is taken, which could be used for nothing else. It is not held for the time that a pod may need to start.
            self.memory_to_send(request, |memory, bytes| (memory.free_bytes() >= bytes).then_some(()))
                .await?;
            let warm = if is_of_pool {
                self.pool.take(&kind, request.execution.limits.timeout).await
            } else {
                None
            };
            let start = warm.as_ref().map_or(StartKind::Cold, |_| StartKind::Warm);
            spool.push(placed(start, is_of_pool));
            let sandbox = match warm {
                Some(sandbox) => sandbox,
                None => match self.launch(&resolved, &requirements, &cancellation, spool).await {
                    Err(ExecutionError::Cluster(failure)) if failure.reason == STREAM_ENDED && tried < MAX_PODS => {
                        continue;
                    }
                    launched => launched?,
                },
            };
            if is_of_pool {
                self.pool.used(&kind);
            }
            let sandbox = match self.admit(&resolved, sandbox, &cancellation).await? {
                Ok(sandbox) => sandbox,
                // The next one keeps off that node.
                Err(refused) if refused.is_of_node && tried < MAX_PODS && self.refusal().is_none() => continue,
                Err(refused) => return Err(ExecutionError::Unavailable(refused.missing)),
            };
            let job = sandbox.pod.job.clone();
            let room = self
                .memory_to_send(request, |memory, bytes| memory.try_take(bytes).ok())
                .await;
            // After the last wait.
            self.check_ownership()?;
            let room = match room.and_then(|room| self.check_stopped().map(|()| room)) {
                Ok(room) => room,
                Err(error) => {
                    self.launcher.cluster.delete_job(&job).await;
                    return Err(error);
                }
            };
            let run = PodRun { request, room, start };
            let end = run::run(&self.launcher, sandbox, run, &cancellation, spool).await;
            self.record(job, request, &end);
            let error = match end {
                RunEnd::Ended(result) => return Ok(result),
                RunEnd::Failed(error) => return Err(error),
                RunEnd::NotStarted(error) => error,
            };
            if matches!(error, ExecutionError::Invalid(_) | ExecutionError::NotOwner { .. }) || tried >= MAX_PODS {
                return Err(error);
            }
            tracing::warn!(%error, "a pod failed before the run started; trying another one");
        }
    }

    /// What `attempt` makes of the budget for what is on its way to a pod, and of the bytes that it needs, as soon as it makes anything.
    /// Errors: there is no memory for it.
    async fn memory_to_send<T>(
        &self,
        request: &JobRequest,
        attempt: impl Fn(&MemoryBudget, usize) -> Option<T>,
    ) -> Result<Option<T>, ExecutionError> {
        let Some(memory) = &self.memory else { return Ok(None) };
        let bytes = run::sending_bytes(&request.execution);
        let begun = Instant::now();
        loop {
            if let Some(made) = attempt(memory, bytes) {
                return Ok(Some(made));
            }
            if begun.elapsed() >= SEND_PATIENCE {
                break;
            }
            tokio::time::sleep(SEND_POLL_INTERVAL).await;
        }
        tracing::warn!(bytes, "a run is refused: there is no memory to send its files");
        let what = "the hub has no memory to send the files of the run to its sandbox at this moment";
        Err(ExecutionError::Unavailable(Missing::new(
            what,
            "try again in a few seconds",
        )))
    }

    async fn launch(
        self: &Arc<Self>,
        resolved: &ResolvedRuntime,
        requirements: &PodRequirements,
        cancellation: &RunCancellation,
        spool: &Arc<Spool>,
    ) -> Result<Sandbox, ExecutionError> {
        let progress = |step: &str| spool.push(Event::Progress(step.to_owned()));
        let launched = tokio::select! {
            launched = self.launcher.launch(resolved, requirements, Requester::Caller, &progress) => launched,
            () = cancellation.cancel.cancelled() => Err(ExecutionError::Cancelled),
            () = cancellation.lost.cancelled() => Err(ExecutionError::NotOwner { owner: None }),
        };
        if let Err(error @ ExecutionError::Cluster(_)) = &launched {
            self.publish(error.clone());
        }
        launched
    }

    /// Waits until the pod's node is known to isolate it, where that is demanded. A pod that is refused is ended.
    async fn admit(
        &self,
        resolved: &ResolvedRuntime,
        sandbox: Sandbox,
        cancellation: &RunCancellation,
    ) -> Result<Result<Sandbox, NodeRefusal>, ExecutionError> {
        let admitted = self
            .launcher
            .gate
            .admit(resolved.requires_isolation, &sandbox.node, sandbox.since.into_std());
        let refused = tokio::select! {
            admitted = admitted => match admitted {
                Ok(()) => return Ok(Ok(sandbox)),
                Err(refused) => Ok(Err(refused)),
            },
            () = cancellation.cancel.cancelled() => Err(ExecutionError::Cancelled),
            () = cancellation.lost.cancelled() => return Err(ExecutionError::NotOwner { owner: None }),
        };
        self.launcher.cluster.delete_job(&sandbox.pod.job).await;
        refused
    }

    /// Why the runtime runs nothing now.
    fn refusal(&self) -> Option<Missing> {
        self.launcher.gate.refusal(self.resolved.load().requires_isolation)
    }

    /// Waiting for a permit or a pod takes minutes: meanwhile the fence may have gone, or the runtime been suspended.
    fn check_stopped(&self) -> Result<(), ExecutionError> {
        let stopped = self.resolved.load().stopped.clone();
        stopped.map_or(Ok(()), |why| Err(ExecutionError::Unavailable(why)))
    }

    /// Nothing is claimed with a Lease that may have run out, or in a term that has ended with its Lease held: another owner, or the next
    /// term, may be reading the journals.
    fn check_ownership(&self) -> Result<(), ExecutionError> {
        if !self.ended.is_cancelled() && self.lease.borrow().is_mine(Instant::now()) {
            Ok(())
        } else {
            Err(ExecutionError::NotOwner { owner: None })
        }
    }

    /// Writes the record of a run, after [`RECORD_DELAY`]; where nothing ran, no next call of a chain waits for the CPU.
    pub(in crate::jobs) fn record(self: &Arc<Self>, job: String, request: &JobRequest, end: &RunEnd) {
        let error = match end {
            RunEnd::Ended(_) => None,
            RunEnd::Failed(error) | RunEnd::NotStarted(error) => Some(error),
        };
        if matches!(error, Some(ExecutionError::NotOwner { .. })) {
            return;
        }
        if let Some(error @ ExecutionError::Cluster(_)) = error {
            self.publish(error.clone());
        }
        let (cluster, resolved) = (self.launcher.cluster.clone(), self.resolved.load_full());
        let job_execution = job_record::JobExecution::of(request);
        let (summary, term_ended) = (job_record::Summary::of_end(end), self.ended.clone());
        let delay = match end {
            RunEnd::NotStarted(_) => Duration::ZERO,
            RunEnd::Ended(_) | RunEnd::Failed(_) => RECORD_DELAY,
        };
        self.unwritten.spawn(async move {
            let _ = tokio::time::timeout(delay, term_ended.cancelled()).await;
            job_record::write(&cluster, &resolved, &job, &job_execution, &summary).await;
        });
    }

    fn publish(&self, error: ExecutionError) {
        let (cluster, resolved) = (self.launcher.cluster.clone(), self.resolved.load_full());
        self.unwritten
            .spawn(async move { job_record::publish_failure(&cluster, &resolved, &error).await });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(String, ExecutionId), Arc<Spool>>> {
        // The map is valid between any two statements.
        self.spools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The uids of the Jobs that another runtime than that of this uid controls.
fn jobs_of_others<'a>(jobs: impl Iterator<Item = &'a ObjectMeta>, runtime: &str) -> BTreeSet<String> {
    let is_ours = |job: &&ObjectMeta| job.owner_references.iter().flatten().any(|owner| owner.uid == runtime);
    jobs.filter(|job| !is_ours(job))
        .filter_map(|job| job.uid.clone())
        .collect()
}

/// Which pod a request needs.
fn requirements(resolved: &ResolvedRuntime, request: &JobRequest) -> PodRequirements {
    let language = match &request.execution.program {
        Program::Code { language, .. } => Some(*language),
        Program::Command { .. } => None,
    };
    let of_packages = request.packages.as_ref().map(|packages| &packages.image);
    let image = request.image.as_ref().or(of_packages).unwrap_or(&resolved.image);
    PodRequirements {
        image: image.clone(),
        packages: request.packages.clone(),
        resources: request.resources.clone().unwrap_or_else(|| resolved.resources.clone()),
        env: resolved.grants_of(request.execution.tool.as_deref()),
        language: language.filter(|language: &Language| *language == Language::Python || *language == Language::Node),
    }
}

fn placed(start: StartKind, is_of_pool: bool) -> Event {
    Event::Placed {
        start,
        note: (!is_of_pool).then(|| "the skill needs a pod of another kind than the warm ones".to_owned()),
    }
}

fn queue_settings(resolved: &ResolvedRuntime) -> QueueSettings {
    QueueSettings {
        concurrency: resolved.max_runs,
        max_queued: resolved.max_queued,
        queue_timeout: resolved.queue_timeout,
    }
}

/// Counts a run or a caller while it lives.
struct CountGuard<'a>(&'a AtomicUsize);

impl<'a> CountGuard<'a> {
    fn add(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for CountGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
