//! What the executor knows of a pod: a value taken from the watch, so that every judgement on it is a pure function.

use k8s_openapi::api::core::v1::{ContainerState, Pod};

use super::names::{CONTAINER, LABEL_PROBE};
use crate::api::vocabulary::LABEL_POOL;

/// A pod as it was seen last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PodFacts {
    /// Its name.
    pub(super) name: String,
    /// Its uid; the journal's key is made from it.
    pub(super) uid: String,
    /// The Job that controls it: labels can be written by whoever makes pods.
    pub(super) job: String,
    /// The uid of that Job.
    pub(super) job_uid: String,
    /// Its node, once it is bound.
    pub(super) node: Option<String>,
    /// The user id of its container.
    pub(super) run_as: Option<u32>,
    /// The pool that it was made for.
    pub(super) pool: Option<String>,
    /// Whether it is a probe.
    pub(super) is_probe: bool,
    /// Seconds since the epoch.
    pub(super) created: i64,
    /// Where it stands.
    pub(super) phase: Phase,
    /// Why, in Kubernetes' word.
    pub(super) reason: Option<String>,
    /// The same in a sentence.
    pub(super) message: Option<String>,
    /// `PodScheduled` is False.
    pub(super) unscheduled: Option<Cause>,
    /// `DisruptionTarget` is True.
    pub(super) disruption: Option<Cause>,
    /// Its container.
    pub(super) container: ContainerFacts,
    /// It was deleted and is on its way out.
    pub(super) is_deleting: bool,
}

/// A reason and its sentence.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Cause {
    /// In Kubernetes' word.
    pub(super) reason: String,
    /// In a sentence.
    pub(super) message: String,
}

/// The phase of a pod.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Phase {
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
pub(super) enum ContainerFacts {
    /// Nothing is known.
    #[default]
    Absent,
    /// It does not run yet.
    Waiting(Cause),
    /// It runs.
    Running,
    /// It has ended.
    Terminated {
        /// Why.
        cause: Cause,
        /// With which code.
        exit_code: i32,
    },
}

impl PodFacts {
    /// Takes the facts of a pod of ours; `None` if it belongs to no Job.
    pub(super) fn of(pod: &Pod) -> Option<Self> {
        let labels = pod.metadata.labels.as_ref()?;
        let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
        let job = owners
            .iter()
            .find(|owner| owner.controller == Some(true) && owner.kind == "Job" && owner.api_version == "batch/v1")?;
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
            .and_then(|container| container.state)
            .map(container_facts)
            .unwrap_or_default();
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
            phase: match status.phase.as_deref() {
                Some("Running") => Phase::Running,
                Some("Succeeded") => Phase::Succeeded,
                Some("Failed") => Phase::Failed,
                Some("Unknown") => Phase::Unknown,
                _ => Phase::Pending,
            },
            reason: status.reason,
            message: status.message,
            unscheduled: condition("PodScheduled", "False"),
            disruption: condition("DisruptionTarget", "True"),
            container,
            is_deleting: pod.metadata.deletion_timestamp.is_some(),
        })
    }

    /// Whether its container has ended, or will never run.
    pub(super) fn is_over(&self) -> bool {
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
