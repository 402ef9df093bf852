//! How a run ended whose stream did not show it: by the journal and the state of its pod.

use std::time::Duration;

use knack_execution::conversation::{ExecutionRef, RunEnd, run_end};
use knack_execution::{ClusterFailureKind, ExecutionError, Exit, StartKind};
use tokio::time::Instant;

use super::end_unstarted::end_unstarted;
use super::spool::EventWriter;
use crate::jobs::cluster::failure::{failure, pod_failure, vanished};
use crate::jobs::cluster::journal::{self, Journal, ReadExtent};
use crate::jobs::cluster::out_of_memory;
use crate::jobs::pods::launch::Launcher;
use crate::jobs::pods::pod_index::{PodRef, PodState};

/// How long a runner whose stream broke after `run` was sent may take to send `started`, which is its first frame.
const STARTED_PATIENCE: Duration = Duration::from_secs(2);
/// How long the API server, the kubelet or containerd may be away before the result of a run is given up: each is back
/// within a minute, or needs an administrator.
const SETTLE_PATIENCE: Duration = Duration::from_secs(90);
/// How much later than the executor's deadline a result may still come by the log, of a runner that gave it in time.
const LATE_GRACE: Duration = Duration::from_secs(5);
/// Between two tries to read a journal.
const SETTLE_RETRY: Duration = Duration::from_millis(500);
/// How long a pod may stay after its run was answered. Longer than a busy kubelet takes to report an exit: the log of a pod that is
/// over is kept for the next owner, and ends with a pod that is deleted.
const STAY_TIMEOUT: Duration = Duration::from_secs(30);

/// A run in a pod, and what its end is determined by where the stream does not show it.
pub(in crate::jobs) struct SettlingRun<'a> {
    /// The way to the cluster.
    pub(in crate::jobs) launcher: &'a Launcher,
    /// The pod.
    pub(in crate::jobs) pod: &'a PodRef,
    /// The execution.
    pub(in crate::jobs) reference: ExecutionRef,
    /// How the pod was started.
    pub(in crate::jobs) start: StartKind,
    /// What the run may take.
    pub(in crate::jobs) timeout: Duration,
    /// When its result is expected at the latest.
    pub(in crate::jobs) deadline: Instant,
}

impl SettlingRun<'_> {
    /// Determines from the journal and the pod how a run ended, where the stream did not show it. Never runs anything.
    ///
    /// A run whose journal can be read and has no result after the deadline is over its `timeout`: its runner is too busy to
    /// end it, or hangs. The pod is deleted.
    ///
    /// [`RunEnd::NotStarted`] only if the container is over, its whole journal has no `started`, and `has_started`, what was
    /// seen so far, is false.
    pub(in crate::jobs) async fn determine_end(&self, mut has_started: bool, events: &mut EventWriter) -> RunEnd {
        let (pod, start) = (self.pod, self.start);
        let (late, give_up) = (self.deadline + LATE_GRACE, self.deadline + SETTLE_PATIENCE);
        let mut unstarted_since: Option<Instant> = None;
        // A late journal was read and does not show the run.
        let mut is_undecided = false;
        loop {
            let pod_ended = pod.state.borrow().has_ended();
            let is_late = Instant::now() >= late && !is_undecided;
            let (until, bound) = match (pod_ended, has_started) {
                (true, _) => (ReadExtent::Now, give_up),
                (false, true) if is_late => (ReadExtent::Now, give_up),
                (false, true) if is_undecided => (ReadExtent::Result, give_up),
                (false, true) => (ReadExtent::Result, late),
                (false, false) => (ReadExtent::Started, Instant::now() + STARTED_PATIENCE),
            };
            events.restart();
            match tokio::time::timeout_at(bound, self.read_journal(until, events)).await {
                Ok(Ok(journal)) => {
                    has_started |= journal.may_have_started();
                    if is_late && !pod_ended && until == ReadExtent::Now && journal.is_without_end() {
                        if let Some(result) = journal.without_result(self.reference, Exit::Timeout, self.timeout, start)
                        {
                            self.delete_pod().await;
                            return RunEnd::Ended(result);
                        }
                        is_undecided = true;
                    } else if let Some(end) = self.end_by_journal(journal, has_started, pod_ended).await {
                        return end;
                    }
                }
                Ok(Err(error)) => {
                    tracing::debug!(pod = %pod.pod, %error, "a journal could not be read; retrying");
                    if pod.state.borrow().is_gone && journal::is_not_found(&error) {
                        // No journal is left to prove that nothing ran. That of a pod that is there may come back with its kubelet.
                        return self.end_without_result(true).await;
                    }
                }
                Err(_) if until == ReadExtent::Started => {
                    unstarted_since.get_or_insert_with(Instant::now);
                }
                Err(_) => {}
            }
            if Instant::now() >= give_up {
                // Long past the runner's own deadline.
                return self.fail(journal_unreadable()).await;
            }
            if unstarted_since.is_some() && !has_started {
                return end_unstarted(self.launcher, pod, true).await;
            }
            tokio::time::sleep(SETTLE_RETRY).await;
        }
    }

    /// The run has failed, and its pod must not continue.
    pub(in crate::jobs) async fn fail(&self, error: ExecutionError) -> RunEnd {
        self.delete_pod().await;
        RunEnd::Failed(error)
    }

    async fn delete_pod(&self) {
        self.launcher.cluster.delete_pod(&self.pod.pod, &self.pod.uid).await;
    }

    /// The end that a journal shows, which was read whole where `pod_ended`. `None`: none yet.
    async fn end_by_journal(&self, journal: Journal, has_started: bool, pod_ended: bool) -> Option<RunEnd> {
        let (reference, start) = (self.reference, self.start);
        if let Some(result) = &journal.result {
            if !pod_ended {
                tokio::spawn(end_if_it_stays(self.launcher.clone(), self.pod.clone()));
            }
            return Some(run_end(reference, result, journal.collected, start));
        }
        if let Some(error) = journal.violation {
            return Some(if pod_ended {
                RunEnd::Failed(error)
            } else {
                self.fail(error).await
            });
        }
        if !pod_ended {
            return None;
        }
        let facts = self.pod.state.borrow().facts.clone();
        let by_memory = facts.and_then(|facts| out_of_memory::end(&facts, journal, reference, start));
        Some(match by_memory {
            Some(end) => end,
            None => self.end_without_result(has_started).await,
        })
    }

    async fn read_journal(&self, until: ReadExtent, events: &mut EventWriter) -> kube::Result<Journal> {
        let journal = self.launcher.journal(&self.pod.uid);
        let pods = &self.launcher.cluster.pods;
        journal::read(pods, &self.pod.pod, journal, until, &mut |frame| {
            events.frame(frame);
        })
        .await
    }

    /// The end of a run whose container has ended and whose journal has no result.
    async fn end_without_result(&self, may_have_run: bool) -> RunEnd {
        let state = self.pod.state.borrow().clone();
        let found = state.facts.as_ref().and_then(pod_failure);
        // The Job says who deleted it: its own deadline, or another client.
        let is_leaving = state.is_gone || state.facts.as_ref().is_some_and(|facts| facts.is_deleting);
        let error = match found.filter(|_| !is_leaving) {
            Some(found) => found.error(may_have_run),
            None if is_leaving => {
                let job_failed = self.launcher.cluster.job_failed(&self.pod.job).await;
                vanished(state.facts.as_ref(), job_failed.as_ref()).error(may_have_run)
            }
            None => failure(
                ClusterFailureKind::ContainerFailed,
                "NoResult",
                "the container ended without a result",
                may_have_run,
            ),
        };
        if may_have_run {
            RunEnd::Failed(error)
        } else {
            RunEnd::NotStarted(error)
        }
    }
}

fn journal_unreadable() -> ExecutionError {
    failure(
        ClusterFailureKind::ApiUnavailable,
        "JournalUnreadable",
        "could not determine how the run ended from its pod",
        true,
    )
}

/// Ends a pod whose runner has answered and does not exit: whatever it still does was not requested.
pub(in crate::jobs) async fn end_if_it_stays(launcher: Launcher, pod: PodRef) {
    let mut state = pod.state;
    let ended = state.wait_for(PodState::has_ended);
    if tokio::time::timeout(STAY_TIMEOUT, ended).await.is_err() {
        tracing::warn!(pod = %pod.pod, "the runner sent its result but does not exit; deleting its pod");
        launcher.cluster.delete_pod(&pod.pod, &pod.uid).await;
    }
}

#[cfg(test)]
#[path = "settling_run_tests.rs"]
mod tests;
