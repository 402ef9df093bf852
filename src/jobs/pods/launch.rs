//! Starts a pod, from the Job to an attached, bound and locked runner.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use knack_execution::conversation::{CollectedFrames, Transport as _, lock_report};
use knack_execution::{ClusterFailureKind, ExecutionError, LockReport};
use knack_memory::MemoryBudget;
use knack_runner::protocol::{Exit, FromRunner, ToRunner};
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use uuid::Uuid;

use super::attach::Attachment;
use super::attach_pace::Pace;
use super::handshake::{bind, missing_lock, stream_ended};
use super::pod_index::{PodIndex, PodRef, PodState};
use super::pod_requirements::{PodRequirements, Requester};
use super::sandboxes_ready::StartReports;
use super::spec::{JobIdentity, JobPurpose, job_spec};
use super::start::start_frame;
use super::start_failures::StartFailures;
use crate::jobs::cluster::failure::{PodFailure, failure, pod_failure, vanished};
use crate::jobs::cluster::journal::Journal;
use crate::jobs::cluster::pod_facts::{ContainerFacts, PodFacts};
use crate::jobs::cluster::{Cluster, api_failure};
use crate::jobs::keys::Keys;
use crate::jobs::nodes::node_gate::NodeGate;
use crate::jobs::resolved_runtime::{EnvGrant, ResolvedRuntime};

/// How long one try may take.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a container that is reported as running may refuse to be attached to: containerd reports "running" a moment before it
/// accepts an attach, and the kubelet reports it for as long after its end as it takes to check again, a second, or
/// several on a busy node. What it then reports says why the container has ended.
const ATTACH_PATIENCE: Duration = Duration::from_secs(15);
/// How long an interpreter may take until it is ready: 15 to 40 ms are usual.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
/// When the Events of a Job without a pod are read, and how often: the Job controller makes the pod within 20 ms.
const EVENTS_AFTER: Duration = Duration::from_secs(1);
/// Longest part of the runtime's name in a Job's name, so that the pod's name, 6 longer, fits a label.
const NAME_PART_BYTES: usize = 40;

/// A pod that waits for its only run.
#[derive(Debug)]
pub(in crate::jobs) struct Sandbox {
    /// The stream to its runner.
    pub(in crate::jobs) attached: Attachment,
    /// The pod that the runner is in.
    pub(in crate::jobs) pod: PodRef,
    /// The node that its pod is on.
    pub(in crate::jobs) node: String,
    /// The values from Secrets that it carries.
    pub(in crate::jobs) env: Vec<EnvGrant>,
    /// The locks that hold.
    pub(in crate::jobs) locks: Option<LockReport>,
    /// When the Job's deadline ends it.
    pub(in crate::jobs) dies: Instant,
    /// When it became ready.
    pub(in crate::jobs) since: Instant,
}

/// Pods that stay and wait for a node after their callers got an error, at most. They make an autoscaler add one; more
/// of them would fill the namespace's quota.
const MAX_LINGERING: usize = 4;

/// Makes pods; see the module.
#[derive(Debug, Clone)]
pub(in crate::jobs) struct Launcher {
    pub(in crate::jobs) cluster: Cluster,
    pub(in crate::jobs) index: Arc<PodIndex>,
    pub(in crate::jobs) keys: Keys,
    pub(in crate::jobs) replica: String,
    pub(in crate::jobs) start_timeout: Duration,
    pub(in crate::jobs) starts: StartReports,
    /// The memory budget of the output and files of runs, from their first byte until their last reader is done.
    pub(in crate::jobs) results: Option<MemoryBudget>,
    /// The state of the nodes.
    pub(in crate::jobs) gate: Arc<NodeGate>,
    lingering: Arc<Semaphore>,
}

impl Launcher {
    /// A launcher of one replica.
    pub(in crate::jobs) fn new(
        cluster: Cluster,
        index: Arc<PodIndex>,
        keys: Keys,
        replica: String,
        start_timeout: Duration,
        results: Option<MemoryBudget>,
    ) -> Self {
        Self {
            cluster,
            index,
            keys,
            replica,
            start_timeout,
            results,
            starts: StartReports::default(),
            gate: Arc::default(),
            lingering: Arc::new(Semaphore::new(MAX_LINGERING)),
        }
    }

    /// The journal of a pod, to be read: its output counts in the memory for results.
    pub(in crate::jobs) fn journal(&self, pod_uid: &str) -> Journal {
        Journal::new(
            &self.keys.runner(pod_uid),
            CollectedFrames::of_unknown(self.results.as_ref()),
        )
    }

    /// Makes a Job and waits until its runner is ready; `progress` is called at each step. On an error, and if the
    /// future is dropped, the Job is deleted, except for a pod that waits for a node.
    pub(in crate::jobs) async fn launch(
        &self,
        resolved: &ResolvedRuntime,
        requirements: &PodRequirements,
        requester: Requester,
        progress: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<Sandbox, ExecutionError> {
        let launched = self.try_launch(resolved, requirements, requester, progress).await;
        match &launched {
            Ok(_) => self.starts.succeeded(&requirements.image),
            Err(error) => {
                self.starts.failed(error);
                if requirements.packages.is_some() {
                    self.starts.unpulled(error, &requirements.image, Timestamp::now());
                }
            }
        }
        launched
    }

    async fn try_launch(
        &self,
        resolved: &ResolvedRuntime,
        requirements: &PodRequirements,
        requester: Requester,
        progress: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<Sandbox, ExecutionError> {
        let identity = JobIdentity {
            name: job_name(&resolved.name),
            uid: self.pick_uid(resolved),
            requirements: requirements.clone(),
            owner: self.replica.clone(),
            avoid: self.gate.avoided(resolved.requires_isolation),
            purpose: JobPurpose::Run,
        };
        let mut cleanup = Cleanup {
            launcher: Some(self.clone()),
            job: identity.name.clone(),
        };
        let mut state = self.index.follow(&identity.name);
        let began = Instant::now();
        let uid = self.cluster.create(&job_spec(resolved, &identity)).await?;
        self.index.bind(&identity.name, uid);
        progress("created");
        let deadline = began + self.start_timeout;
        let mut failures = StartFailures::of(requester);
        let attaching = self.attach(&identity.name, &mut state, &mut failures, progress);
        let (facts, attached) = match tokio::time::timeout_at(deadline, attaching).await {
            Ok(Ok(attached)) => attached,
            Ok(Err(error)) => {
                if matches!(&error, ExecutionError::Cluster(found) if found.kind == ClusterFailureKind::Unschedulable) {
                    cleanup.linger(state, deadline);
                }
                return Err(error);
            }
            Err(_) => return Err(failures.timeout(self.start_timeout)),
        };
        let mut sandbox = Sandbox {
            attached,
            pod: PodRef {
                job: identity.name,
                pod: facts.name,
                uid: facts.uid,
                state,
            },
            node: facts.node.unwrap_or_default(),
            env: requirements.env.clone(),
            locks: None,
            dies: began + resolved.active_deadline(),
            since: began,
        };
        self.start(&mut sandbox, resolved, requirements).await?;
        sandbox.since = Instant::now();
        cleanup.launcher = None;
        Ok(sandbox)
    }

    /// Waits for the pod and attaches as soon as it takes it.
    async fn attach(
        &self,
        job: &str,
        state: &mut watch::Receiver<PodState>,
        failures: &mut StartFailures,
        progress: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<(PodFacts, Attachment), ExecutionError> {
        let mut pace: Option<Pace> = None;
        let mut refused_since: Option<Instant> = None;
        loop {
            let now = state.borrow_and_update().clone();
            self.judge(job, &now, failures).await?;
            let Some(facts) = now.facts.filter(|facts| facts.node.is_some()) else {
                // Bound or failing: either is a change. Without a pod nothing changes, so the Job's Events are read.
                let changed = tokio::time::timeout(EVENTS_AFTER, state.changed()).await;
                if changed.is_err()
                    && state.borrow().facts.is_none()
                    && let Some(found) = self.cluster.job_trouble(job).await
                {
                    return Err(found.error(false));
                }
                continue;
            };
            if pace.is_none() {
                progress("bound");
            }
            let pace = pace.get_or_insert_with(|| Pace::new(Instant::now()));
            let is_running = facts.container == ContainerFacts::Running;
            if Instant::now() < pace.due(is_running) {
                // The watch may report sooner that it runs, or why not.
                let _ = tokio::time::timeout_at(pace.due(is_running), state.changed()).await;
                continue;
            }
            let opening = Attachment::open(&self.cluster.attach, &facts.name, self.keys.runner(&facts.uid));
            match tokio::time::timeout(ATTACH_TIMEOUT, opening).await {
                Ok(Ok(mut attached)) => {
                    refused_since = None;
                    if bind(&mut attached).await? {
                        progress("running");
                        return Ok((facts, attached));
                    }
                    // Accepted before the container ran, and ended at once: not ready.
                }
                Ok(Err(error)) => {
                    let since = is_running.then(|| *refused_since.get_or_insert_with(Instant::now));
                    if is_forbidden(&error) || since.is_some_and(|since| since.elapsed() > ATTACH_PATIENCE) {
                        return Err(attach_refused(&error));
                    }
                }
                Err(_) => {}
            }
            pace.tried(is_running, Instant::now());
        }
    }

    /// Fails if the pod has a failure that has lasted too long.
    async fn judge(&self, job: &str, state: &PodState, failures: &mut StartFailures) -> Result<(), ExecutionError> {
        if state.is_gone {
            let job_failed = self.cluster.job_failed(job).await;
            return Err(vanished(state.facts.as_ref(), job_failed.as_ref()).error(false));
        }
        let Some(facts) = &state.facts else { return Ok(()) };
        let found = pod_failure(facts).or_else(|| {
            facts.has_ended().then(|| PodFailure {
                kind: ClusterFailureKind::ContainerFailed,
                reason: "Completed".to_owned(),
                message: "the container ended before the hub had attached to it".to_owned(),
                grace: Duration::ZERO,
            })
        });
        match failures.lasting(found) {
            Some(found) if failures.waits_for(&found) => {
                self.starts.failed(&found.error(false));
                Ok(())
            }
            Some(found) => Err(found.error(false)),
            None => Ok(()),
        }
    }

    /// Sends `start` and waits until the interpreter is ready.
    async fn start(
        &self,
        sandbox: &mut Sandbox,
        resolved: &ResolvedRuntime,
        requirements: &PodRequirements,
    ) -> Result<(), ExecutionError> {
        let frame = ToRunner::Start(start_frame(resolved, requirements));
        let sent = sandbox.attached.send_frame(&frame).await;
        sent.map_err(|error| stream_ended(&error))?;
        let answer = async {
            loop {
                match sandbox.attached.next().await? {
                    FromRunner::Ready(ready) => return Ok(ready.locks),
                    FromRunner::Result(result) => {
                        let (word, reason) = match result.exit {
                            Exit::NotStarted { reason, .. } => ("NotStarted", reason),
                            Exit::LocksMissing { reason } => (LOCKS_MISSING, reason),
                            other => ("NotStarted", format!("{other:?}")),
                        };
                        return Err(failure(ClusterFailureKind::ContainerFailed, word, &reason, false));
                    }
                    FromRunner::Rejected(rejected) => {
                        return Err(failure(
                            ClusterFailureKind::RunnerTooOld,
                            "Rejected",
                            &rejected.message,
                            false,
                        ));
                    }
                    _ => {}
                }
            }
        };
        let answered = tokio::time::timeout(READY_TIMEOUT, answer).await;
        match answered {
            Ok(Ok(locks)) => {
                sandbox.locks = locks.map(lock_report);
                match missing_lock(sandbox.locks.as_ref(), resolved.requires_landlock) {
                    Some(what) => Err(failure(ClusterFailureKind::ContainerFailed, LOCKS_MISSING, what, false)),
                    None => Ok(()),
                }
            }
            Ok(Err(error @ ExecutionError::Cluster(_))) => Err(error),
            // The stream ended: the pod's state says why.
            Ok(Err(error)) => match sandbox.pod.state.borrow().facts.as_ref().and_then(pod_failure) {
                Some(found) => Err(found.error(false)),
                None => Err(stream_ended(&error)),
            },
            Err(_) => Err(failure(
                ClusterFailureKind::ContainerFailed,
                "NoAnswer",
                "the runner did not report that it is ready",
                false,
            )),
        }
    }

    /// Deletes a Job whose pod did not become ready. Its program may not be a runner and need its whole grace period to
    /// end, so the pod is deleted first.
    async fn discard(&self, job: &str) {
        for facts in self.index.of_job(job).iter().filter(|facts| !facts.has_ended()) {
            self.cluster.delete_pod(&facts.name, &facts.uid).await;
        }
        self.cluster.delete_job(job).await;
    }

    /// A user id that no pod of the runtime has. Two runtimes may meet in one by chance; they share the process limit then.
    fn pick_uid(&self, resolved: &ResolvedRuntime) -> u32 {
        let used = self.index.uids();
        let (first, last) = (resolved.uids.first, resolved.uids.last.max(resolved.uids.first));
        let size = u128::from(last - first) + 1;
        let start = Uuid::new_v4().as_u128() % size;
        let free = (0..size.min(1024))
            .filter_map(|step| u32::try_from((start + step) % size).ok())
            .map(|offset| first + offset)
            .find(|uid| !used.contains(uid));
        free.unwrap_or(first)
    }
}

/// The error for a sandbox that is not used: a lock that it must have is not on.
const LOCKS_MISSING: &str = "LocksMissing";

fn attach_refused(error: &kube::Error) -> ExecutionError {
    let found = api_failure(error);
    failure(ClusterFailureKind::AttachRefused, &found.reason, &found.message, false)
}

fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 401 | 403))
}

/// `<runtime>-<10 random characters>`, at most 51 bytes: a pod's name adds 6, and a label holds 63.
pub(in crate::jobs) fn job_name(runtime: &str) -> String {
    let part = runtime
        .get(..NAME_PART_BYTES)
        .unwrap_or(runtime)
        .trim_end_matches(['-', '.']);
    let random = Uuid::new_v4().simple().to_string();
    format!("{}-{}", part.replace('.', "-"), &random[..10])
}

/// Deletes the Job unless it was disarmed.
struct Cleanup {
    launcher: Option<Launcher>,
    job: String,
}

impl Cleanup {
    /// Leaves a pod that waits for a node until it has one, or its time is over: autoscalers add nodes for pending
    /// pods.
    fn linger(&mut self, mut state: watch::Receiver<PodState>, until: Instant) {
        let Some(launcher) = self.launcher.take() else { return };
        let Ok(permit) = Arc::clone(&launcher.lingering).try_acquire_owned() else {
            self.launcher = Some(launcher);
            return;
        };
        let job = self.job.clone();
        tokio::spawn(async move {
            let has_node = |state: &PodState| {
                let is_bound = |facts: &PodFacts| facts.node.is_some() || facts.has_ended();
                state.is_gone || state.facts.as_ref().is_some_and(is_bound)
            };
            let _ = tokio::time::timeout_at(until, state.wait_for(has_node)).await;
            launcher.discard(&job).await;
            drop(permit);
        });
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        if let Some(launcher) = self.launcher.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let job = std::mem::take(&mut self.job);
            runtime.spawn(async move { launcher.discard(&job).await });
        }
    }
}

#[cfg(test)]
#[path = "launch_tests.rs"]
mod tests;
