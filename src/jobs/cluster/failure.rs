//! Maps the states and reasons of Kubernetes to the one error that a caller sees. Pure.

use std::time::Duration;

use knack_execution::{ClusterFailure, ClusterFailureKind, ExecutionError};

use super::out_of_memory;
use super::pod_facts::{Cause, ContainerFacts, Phase, PodFacts};

/// How long a pod may be unschedulable: other pods end, so a small node has room within seconds. An autoscaler takes
/// minutes; the pod stays for it, and the next try finds the node.
const UNSCHEDULABLE_PATIENCE: Duration = Duration::from_secs(10);

/// How long a first failed pull, or a container that could not be created, may last: the kubelet retries, and a
/// registry that was restarted answers again within seconds.
const RETRY_PATIENCE: Duration = Duration::from_secs(5);

/// Longest message taken over from Kubernetes, in characters.
const MAX_MESSAGE: usize = 300;

/// Something that is wrong with a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::jobs) struct PodFailure {
    /// Which failure it is if it lasts.
    pub(in crate::jobs) kind: ClusterFailureKind,
    /// Kubernetes' reason.
    pub(in crate::jobs) reason: String,
    /// Kubernetes' sentence, cut.
    pub(in crate::jobs) message: String,
    /// How long it may last before it is one.
    pub(in crate::jobs) grace: Duration,
}

impl PodFailure {
    fn now(kind: ClusterFailureKind, reason: &str, message: &str) -> Self {
        Self {
            kind,
            reason: reason.to_owned(),
            message: cut(message),
            grace: Duration::ZERO,
        }
    }

    const fn after(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// As the error of an execution.
    pub(in crate::jobs) fn error(self, may_have_run: bool) -> ExecutionError {
        failure(self.kind, &self.reason, &self.message, may_have_run)
    }
}

/// Makes the error.
pub(in crate::jobs) fn failure(
    kind: ClusterFailureKind,
    reason: &str,
    message: &str,
    may_have_run: bool,
) -> ExecutionError {
    ExecutionError::Cluster(ClusterFailure {
        kind,
        reason: reason.to_owned(),
        message: cut(message),
        may_have_run,
    })
}

/// The failure of a pod, if it has any. The most specific cause wins: a node that is gone also fails the pod, an
/// evicted container was also killed.
pub(in crate::jobs) fn pod_failure(facts: &PodFacts) -> Option<PodFailure> {
    if let Some(found) = facts.disruption.as_ref().and_then(of_disruption) {
        return Some(found);
    }
    if let Some(found) = facts.reason.as_deref().and_then(|reason| of_pod(reason, facts)) {
        return Some(found);
    }
    match &facts.container {
        // A pod that is deleted ends by a signal: that is no failure of its program.
        ContainerFacts::Terminated { cause, exit_code }
            if facts.is_deleting && cause.reason != out_of_memory::REASON && *exit_code != 0 =>
        {
            return Some(deleted());
        }
        ContainerFacts::Terminated { cause, exit_code } => return of_end(cause, *exit_code),
        ContainerFacts::Waiting(cause) => {
            if let Some(found) = of_waiting(cause) {
                return Some(found);
            }
        }
        ContainerFacts::Absent | ContainerFacts::Running => {}
    }
    match facts.phase {
        Phase::Unknown => Some(PodFailure::now(
            ClusterFailureKind::NodeLost,
            "NodeStatusUnknown",
            "the node of the pod does not answer",
        )),
        Phase::Failed => Some(PodFailure::now(
            ClusterFailureKind::ContainerFailed,
            facts.reason.as_deref().unwrap_or("Failed"),
            facts.message.as_deref().unwrap_or("the pod failed"),
        )),
        Phase::Pending if facts.node.is_none() => facts.unscheduled.as_ref().map(|cause| {
            PodFailure::now(ClusterFailureKind::Unschedulable, &cause.reason, &cause.message)
                .after(UNSCHEDULABLE_PATIENCE)
        }),
        _ if facts.is_deleting => Some(deleted()),
        _ => None,
    }
}

/// Why a pod is gone, from its last facts and the condition of its Job.
pub(in crate::jobs) fn vanished(facts: Option<&PodFacts>, job_failed: Option<&Cause>) -> PodFailure {
    if let Some(cause) = job_failed
        && cause.reason == "DeadlineExceeded"
    {
        return PodFailure::now(ClusterFailureKind::DeadlineExceeded, &cause.reason, &cause.message);
    }
    let last = facts.and_then(|facts| {
        let facts = PodFacts {
            is_deleting: true,
            ..facts.clone()
        };
        pod_failure(&facts)
    });
    last.unwrap_or_else(deleted)
}

fn deleted() -> PodFailure {
    PodFailure::now(
        ClusterFailureKind::PodDeleted,
        "Deleted",
        "the pod, its Job or its SkillRuntime was deleted",
    )
}

/// The failure in the API server's answer to a create.
pub(in crate::jobs) fn refusal(code: u16, reason: &str, message: &str) -> PodFailure {
    let kind = if message.contains("exceeded quota") {
        ClusterFailureKind::QuotaExceeded
    } else if matches!(code, 429 | 500..=599) {
        ClusterFailureKind::ApiUnavailable
    } else {
        ClusterFailureKind::Refused
    };
    PodFailure::now(kind, reason, message)
}

/// The failure in an Event of a Job without a pod.
pub(in crate::jobs) fn event(reason: &str, message: &str) -> Option<PodFailure> {
    if reason != "FailedCreate" {
        return None;
    }
    let kind = if message.contains("exceeded quota") {
        ClusterFailureKind::QuotaExceeded
    } else {
        ClusterFailureKind::Refused
    };
    Some(PodFailure::now(kind, reason, message))
}

fn of_disruption(cause: &Cause) -> Option<PodFailure> {
    let kind = match cause.reason.as_str() {
        // The garbage collector of pods deletes those whose node is gone; the taint manager those whose node does not
        // answer.
        "DeletionByPodGC" | "DeletionByTaintManager" => ClusterFailureKind::NodeLost,
        "PreemptionByScheduler" | "PreemptionByKubeScheduler" | "EvictionByEvictionAPI" | "TerminationByKubelet" => {
            ClusterFailureKind::Evicted
        }
        _ => return None,
    };
    Some(PodFailure::now(kind, &cause.reason, &cause.message))
}

fn of_pod(reason: &str, facts: &PodFacts) -> Option<PodFailure> {
    let message = facts.message.as_deref().unwrap_or_default();
    let kind = match reason {
        "Evicted" | "Preempting" => ClusterFailureKind::Evicted,
        "DeadlineExceeded" => ClusterFailureKind::DeadlineExceeded,
        "NodeLost" | "NodeShutdown" | "Shutdown" | "Terminated" => ClusterFailureKind::NodeLost,
        "NodeAffinity" | "UnexpectedAdmissionError" => ClusterFailureKind::Unschedulable,
        _ if reason.starts_with("OutOf") => ClusterFailureKind::Unschedulable,
        _ => return None,
    };
    Some(PodFailure::now(kind, reason, message))
}

/// The end of a container; exit code 0 is no failure.
fn of_end(cause: &Cause, exit_code: i32) -> Option<PodFailure> {
    match cause.reason.as_str() {
        out_of_memory::REASON => Some(PodFailure::now(
            ClusterFailureKind::OutOfMemory,
            &cause.reason,
            "the kernel killed the container for memory; its limit is sandbox.resources.limits.memory",
        )),
        _ if exit_code == 0 => None,
        reason => {
            let message = if cause.message.is_empty() {
                format!("the container ended with exit code {exit_code} and no result")
            } else {
                cause.message.clone()
            };
            let reason = if reason.is_empty() { "Error" } else { reason };
            Some(PodFailure::now(ClusterFailureKind::ContainerFailed, reason, &message))
        }
    }
}

fn of_waiting(cause: &Cause) -> Option<PodFailure> {
    let now = |kind| Some(PodFailure::now(kind, &cause.reason, &cause.message));
    match cause.reason.as_str() {
        "InvalidImageName" | "ErrImageNeverPull" | "ImageInspectError" | "ImagePullBackOff" => {
            now(ClusterFailureKind::ImagePullFailed)
        }
        "ErrImagePull" | "RegistryUnavailable" | "SignatureValidationFailed" => {
            now(ClusterFailureKind::ImagePullFailed).map(|found| found.after(RETRY_PATIENCE))
        }
        "CreateContainerConfigError" | "CreateContainerError" | "RunContainerError" | "StartError" => {
            now(ClusterFailureKind::ContainerFailed).map(|found| found.after(RETRY_PATIENCE))
        }
        "CrashLoopBackOff" => now(ClusterFailureKind::ContainerFailed),
        _ => None,
    }
}

/// One line of at most [`MAX_MESSAGE`] characters.
fn cut(message: &str) -> String {
    let line = message.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MAX_MESSAGE) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
#[path = "failure_tests.rs"]
mod tests;
