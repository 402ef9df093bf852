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
    /// No place became free in time: HTTP 429 `too_many_requests`.
    #[error("too_many_requests: no place for the execution became free in time; try again in {} s", retry_after.as_secs())]
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
    /// The id is older than the retention: HTTP 410. Never looked up, never run.
    #[error("execution is older than the retention window; its result is gone and it is not run again")]
    Gone,
    /// Unknown id, or another caller's: HTTP 404.
    #[error("no such execution")]
    NotFound,
    /// Cancelled by its caller.
    #[error("execution cancelled")]
    Cancelled,
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
            Self::Internal(_) => "internal",
        }
    }

    /// The `Retry-After` of the explicit back-pressure kinds.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::QueueFull { retry_after } | Self::QueueTimeout { retry_after } => Some(*retry_after),
            _ => None,
        }
    }
}

/// Something that running code needs and this machine lacks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}; {remedy}")]
pub struct Missing {
    /// What is missing, one clause.
    pub what: String,
    /// What to do about it, one clause.
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
