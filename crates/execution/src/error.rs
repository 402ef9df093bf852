//! Why an execution has no result.

use std::time::Duration;

/// Why an execution has no result. The text of each says what to do; none names a host path or a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExecutionError {
    /// The queue is full: HTTP 429 `too_many_requests`.
    #[error("too_many_requests: the execution queue is full; try again in {} s", retry_after.as_secs())]
    QueueFull {
        /// For the `Retry-After` header, whole seconds, at least 1.
        retry_after: Duration,
    },
    /// No permit became free in time: HTTP 429 `too_many_requests`.
    #[error("too_many_requests: timed out waiting for a free execution slot; try again in {} s", retry_after.as_secs())]
    QueueTimeout {
        /// For the `Retry-After` header, whole seconds, at least 1.
        retry_after: Duration,
    },
    /// Code cannot be run here: HTTP 503.
    #[error("code cannot be run here: {0}")]
    Unavailable(Missing),
    /// The request itself cannot be run (a path that escapes, too many input files): HTTP 400.
    #[error("invalid execution: {0}")]
    Invalid(String),
    /// The id is older than the retention, or what an earlier owner of the runtime did with it cannot be read: HTTP 410. Never
    /// looked up, never run.
    #[error("the result of this execution is no longer kept, or it is unknown whether it ran; it is not run again")]
    Gone,
    /// Unknown id, or another caller's: HTTP 404.
    #[error("no such execution at this runtime, or it belongs to another caller; check its id")]
    NotFound,
    /// Cancelled by its caller.
    #[error("execution cancelled")]
    Cancelled,
    /// The cluster could not run it, or ended its pod; the Kubernetes reason says why. The hub answers 500 with the
    /// failure (docs/design/errors.md#errors-of-executions).
    #[error("{0}")]
    Cluster(ClusterFailure),
    /// This replica does not own the runtime: HTTP 421 with the owner's address.
    #[error("this replica does not own the runtime; {}", owner.as_deref().map_or_else(|| "no replica does at the moment".to_owned(), |owner| format!("ask {owner}")))]
    NotOwner {
        /// Where the owner answers, if there is one.
        owner: Option<String>,
    },
    /// The sandbox failed; the log has the cause: HTTP 500.
    #[error("the sandbox failed to run the program: {0}")]
    Internal(String),
}

impl ExecutionError {
    /// Metric label of the kind.
    #[must_use]
    pub const fn metric_label(&self) -> &'static str {
        match self {
            Self::QueueFull { .. } => "queue_full",
            Self::QueueTimeout { .. } => "queue_timeout",
            Self::Unavailable(_) => "unavailable",
            Self::Invalid(_) => "invalid",
            Self::Gone => "gone",
            Self::NotFound => "not_found",
            Self::Cancelled => "cancelled",
            Self::Cluster(failure) => failure.kind.as_str(),
            Self::NotOwner { .. } => "not_owner",
            Self::Internal(_) => "internal",
        }
    }
}

/// A failure that the cluster names: which one, its reason in Kubernetes' own word, and what it says about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message} (reason {reason})", kind.text())]
pub struct ClusterFailure {
    /// Which failure.
    pub kind: ClusterFailureKind,
    /// The reason as Kubernetes spells it, for example `OOMKilled` or `ErrImagePull`.
    pub reason: String,
    /// The message of Kubernetes, in one line.
    pub message: String,
    /// Whether code of the execution may have run. If not, the same id may be tried again.
    pub may_have_run: bool,
}

/// The kinds of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClusterFailureKind {
    /// The whole container was killed for memory, the runner included, and its journal does not show a run.
    OutOfMemory,
    /// The kubelet or the API evicted the pod.
    Evicted,
    /// The Job's own deadline ended the pod.
    DeadlineExceeded,
    /// The image cannot be pulled, or its name is no image.
    ImagePullFailed,
    /// No node takes the pod.
    Unschedulable,
    /// A quota refuses the pod.
    QuotaExceeded,
    /// The API server or an admission policy refuses the Job or the pod.
    Refused,
    /// The node of the pod is gone or does not answer.
    NodeLost,
    /// The pod was deleted from outside.
    PodDeleted,
    /// The container did not start, or ended without a result.
    ContainerFailed,
    /// The runner in the image speaks another protocol.
    RunnerTooOld,
    /// The pod runs but cannot be attached to.
    AttachRefused,
    /// The pod did not come up in time.
    StartTimeout,
    /// The API server does not answer.
    ApiUnavailable,
}

impl ClusterFailureKind {
    /// Every kind, for tables and tests.
    pub(crate) const ALL: [Self; 14] = [
        Self::OutOfMemory,
        Self::Evicted,
        Self::DeadlineExceeded,
        Self::ImagePullFailed,
        Self::Unschedulable,
        Self::QuotaExceeded,
        Self::Refused,
        Self::NodeLost,
        Self::PodDeleted,
        Self::ContainerFailed,
        Self::RunnerTooOld,
        Self::AttachRefused,
        Self::StartTimeout,
        Self::ApiUnavailable,
    ];

    /// Machine-readable word; also the metric label and the `code` of the executions API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OutOfMemory => "pod_out_of_memory",
            Self::Evicted => "pod_evicted",
            Self::DeadlineExceeded => "pod_deadline_exceeded",
            Self::ImagePullFailed => "image_pull_failed",
            Self::Unschedulable => "unschedulable",
            Self::QuotaExceeded => "quota_exceeded",
            Self::Refused => "job_refused",
            Self::NodeLost => "node_lost",
            Self::PodDeleted => "pod_deleted",
            Self::ContainerFailed => "container_failed",
            Self::RunnerTooOld => "runner_too_old",
            Self::AttachRefused => "attach_refused",
            Self::StartTimeout => "start_timeout",
            Self::ApiUnavailable => "api_unavailable",
        }
    }

    /// Reads the word back; `None` for any other.
    #[must_use]
    pub(crate) fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }

    /// The failure as a clause.
    #[must_use]
    const fn text(self) -> &'static str {
        match self {
            Self::OutOfMemory => "the sandbox pod ran out of memory",
            Self::Evicted => "the sandbox pod was evicted",
            Self::DeadlineExceeded => "the sandbox pod reached the deadline of its Job",
            Self::ImagePullFailed => "the sandbox image cannot be pulled",
            Self::Unschedulable => "no node can run the sandbox pod",
            Self::QuotaExceeded => "a quota of the namespace refuses the sandbox pod",
            Self::Refused => "the cluster refuses the sandbox Job",
            Self::NodeLost => "the node of the sandbox pod is gone",
            Self::PodDeleted => "the sandbox pod was deleted",
            Self::ContainerFailed => "the sandbox container failed",
            Self::RunnerTooOld => "the runner in the sandbox image is not compatible with this version of knack",
            Self::AttachRefused => "the sandbox pod cannot be attached to",
            Self::StartTimeout => "the sandbox pod was not ready in time",
            Self::ApiUnavailable => "the Kubernetes API does not answer",
        }
    }
}

/// A requirement of running code that this machine does not meet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}; {remedy}")]
pub struct Missing {
    /// The missing thing, one clause.
    pub what: String,
    /// The remedy, one clause.
    pub remedy: String,
}

impl Missing {
    /// Names what is missing and what to do about it.
    #[must_use]
    pub fn new(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            remedy: remedy.into(),
        }
    }
}
