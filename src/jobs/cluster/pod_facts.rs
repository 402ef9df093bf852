//! The executor's view of a pod: a value taken from the watch, so that every decision about it is a pure function.

use k8s_openapi::api::core::v1::{ContainerState, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use knack_vocabulary::LABEL_POOL;

use crate::jobs::names::{CONTAINER, LABEL_PROBE};

/// The last observed state of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::jobs) struct PodFacts {
    /// The pod's name.
    pub(in crate::jobs) name: String,
    /// Its uid; the journal's key is made from it.
    pub(in crate::jobs) uid: String,
    /// The Job that controls it: labels can be written by any client that makes pods.
    pub(in crate::jobs) job: String,
    /// The uid of that Job.
    pub(in crate::jobs) job_uid: String,
    /// Its node, once it is bound.
    pub(in crate::jobs) node: Option<String>,
    /// The user id of its container.
    pub(in crate::jobs) run_as: Option<u32>,
    /// The pool that it was made for.
    pub(in crate::jobs) pool: Option<String>,
    /// Whether it is a probe.
    pub(in crate::jobs) is_probe: bool,
    /// Seconds since the epoch.
    pub(in crate::jobs) created: i64,
    /// The node that it runs on.
    pub(in crate::jobs) phase: Phase,
    /// Kubernetes' reason.
    pub(in crate::jobs) reason: Option<String>,
    /// Kubernetes' message.
    pub(in crate::jobs) message: Option<String>,
    /// `PodScheduled` is False.
    pub(in crate::jobs) unscheduled: Option<Cause>,
    /// `DisruptionTarget` is True.
    pub(in crate::jobs) disruption: Option<Cause>,
    /// The state of the pod's container.
    pub(in crate::jobs) container: ContainerFacts,
    /// When the container started and ended, in seconds since the epoch; absent while it runs, and of one that never ran.
    pub(in crate::jobs) container_times: Option<(i64, i64)>,
    /// The container runs, or has run. One that never did ends as terminated too, with its pod, but has no time of its start.
    pub(in crate::jobs) has_begun: bool,
    /// It was deleted and is terminating.
    pub(in crate::jobs) is_deleting: bool,
}

/// A reason and its sentence.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::jobs) struct Cause {
    /// Kubernetes' reason.
    pub(in crate::jobs) reason: String,
    /// In a sentence.
    pub(in crate::jobs) message: String,
}

/// The phase of a pod.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::jobs) enum Phase {
    /// Not started.
    #[default]
    Pending,
    /// Started.
    Running,
    /// Ended with exit code 0.
    Succeeded,
    /// Ended otherwise.
    Failed,
    /// Its node does not answer.
    Unknown,
}

/// The state of the container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::jobs) enum ContainerFacts {
    /// Nothing is known.
    #[default]
    Absent,
    /// It does not run yet.
    Waiting(Cause),
    /// It runs.
    Running,
    /// It has ended.
    Terminated {
        /// The reason that it ended.
        cause: Cause,
        /// With which code.
        exit_code: i32,
    },
}

impl Phase {
    fn of(word: Option<&str>) -> Self {
        match word {
            Some("Running") => Self::Running,
            Some("Succeeded") => Self::Succeeded,
            Some("Failed") => Self::Failed,
            Some("Unknown") => Self::Unknown,
            _ => Self::Pending,
        }
    }
}

/// The Job that controls a pod.
fn job_of(pod: &Pod) -> Option<&OwnerReference> {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true) && owner.kind == "Job" && owner.api_version == "batch/v1")
}

impl PodFacts {
    /// Takes the facts of a sandbox pod; `None` if it belongs to no Job.
    pub(in crate::jobs) fn of(pod: &Pod) -> Option<Self> {
        let labels = pod.metadata.labels.as_ref()?;
        let job = job_of(pod)?;
        let status = pod.status.clone().unwrap_or_default();
        let spec = pod.spec.as_ref();
        let conditions = status.conditions.unwrap_or_default();
        let condition = |name: &str, wanted: &str| {
            let found = conditions
                .iter()
                .find(|condition| condition.type_ == name && condition.status == wanted)?;
            Some(Cause {
                reason: found.reason.clone().unwrap_or_default(),
                message: found.message.clone().unwrap_or_default(),
            })
        };
        let container = status
            .container_statuses
            .unwrap_or_default()
            .into_iter()
            .find(|container| container.name == CONTAINER)
            .and_then(|container| container.state);
        let has_begun = container.as_ref().is_some_and(|state| {
            let ended = state.terminated.as_ref();
            state.running.is_some() || ended.is_some_and(|ended| ended.started_at.is_some())
        });
        let ended = container.as_ref().and_then(|state| state.terminated.as_ref());
        let seconds = |time: &Option<Time>| time.as_ref().map(|time| time.0.as_second());
        let container_times = ended.and_then(|ended| Some((seconds(&ended.started_at)?, seconds(&ended.finished_at)?)));
        Some(Self {
            name: pod.metadata.name.clone()?,
            uid: pod.metadata.uid.clone()?,
            job: job.name.clone(),
            job_uid: job.uid.clone(),
            node: spec.and_then(|spec| spec.node_name.clone()),
            run_as: spec
                .and_then(|spec| spec.security_context.as_ref()?.run_as_user)
                .and_then(|uid| u32::try_from(uid).ok()),
            pool: labels.get(LABEL_POOL).cloned(),
            is_probe: labels.contains_key(LABEL_PROBE),
            created: pod
                .metadata
                .creation_timestamp
                .as_ref()
                .map_or(0, |time| time.0.as_second()),
            phase: Phase::of(status.phase.as_deref()),
            reason: status.reason,
            message: status.message,
            unscheduled: condition("PodScheduled", "False"),
            disruption: condition("DisruptionTarget", "True"),
            container: container.map(container_facts).unwrap_or_default(),
            container_times,
            has_begun,
            is_deleting: pod.metadata.deletion_timestamp.is_some(),
        })
    }

    /// Whether its container has ended, or will never run.
    pub(in crate::jobs) fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Succeeded | Phase::Failed)
            || matches!(self.container, ContainerFacts::Terminated { .. })
    }
}

fn container_facts(state: ContainerState) -> ContainerFacts {
    if let Some(ended) = state.terminated {
        return ContainerFacts::Terminated {
            cause: Cause {
                reason: ended.reason.unwrap_or_default(),
                message: ended.message.unwrap_or_default(),
            },
            exit_code: ended.exit_code,
        };
    }
    if state.running.is_some() {
        return ContainerFacts::Running;
    }
    state.waiting.map_or(ContainerFacts::Absent, |waiting| {
        ContainerFacts::Waiting(Cause {
            reason: waiting.reason.unwrap_or_default(),
            message: waiting.message.unwrap_or_default(),
        })
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_container_has_begun_if_it_runs_or_its_end_has_a_start() {
        let never = json!({"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown", "startedAt": null}});
        for (state, expected) in [
            (json!({"waiting": {"reason": "ContainerCreating"}}), false),
            (json!({"running": {"startedAt": "2026-11-01T00:00:00Z"}}), true),
            (
                json!({"terminated": {"exitCode": 0, "startedAt": "2026-11-01T00:00:00Z"}}),
                true,
            ),
            (never, false),
            (Value::Null, false),
        ] {
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {
                    "name": "p", "uid": "u", "labels": {},
                    "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": true}],
                },
                "status": {"containerStatuses": [{
                    "name": CONTAINER, "image": "i", "imageID": "i", "ready": false, "restartCount": 0, "state": state,
                }]},
            });
            let facts = PodFacts::of(&serde_json::from_value(pod).unwrap()).unwrap();
            assert_eq!(facts.has_begun, expected, "{state}");
        }
    }
}
