//! Refusals of the hub, as a machine and a person read them.

use serde::{Deserialize, Serialize};

/// The body of every answer that is not a success, and of the frame `error`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct HubRefusal {
    /// The code that programs act on.
    pub code: RefusalCode,
    /// The error, the object that it concerns, and its remedy. Names no secret and no upstream address.
    pub message: String,
    /// When to ask again, seconds; also the header `Retry-After`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<u64>,
    /// With [`RefusalCode::NotOwner`]: `ip:port` of the replica that runs executions of this runtime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The [`super::PROTOCOL`] of the hub that refuses, which its clients read from the head of the answer.
    #[serde(skip)]
    pub protocol: Option<u32>,
    /// With [`RefusalCode::Failed`] and [`RefusalCode::Unavailable`]: what the cluster says of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Box<FailureLine>>,
}

/// A failure that the cluster names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureLine {
    /// The kind of failure: `image_pull_failed`, `pod_evicted`, …
    pub kind: String,
    /// The reason in Kubernetes' own word.
    pub reason: String,
    /// Kubernetes' message, in one line.
    pub message: String,
    /// Whether code may have run; if not, the same id may be tried again.
    #[serde(default = "may_have_run")]
    pub may_have_run: bool,
}

/// Unless a hub says that nothing ran, something may have.
const fn may_have_run() -> bool {
    true
}

/// Kinds of refusals. Each has one HTTP status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalCode {
    /// 400: the request cannot be served as written.
    Invalid,
    /// 401: no token, an expired one, or one for another audience.
    Unauthenticated,
    /// 403: the caller may not use this runtime.
    Forbidden,
    /// 404: unknown, or not this caller's.
    NotFound,
    /// 408: the body did not arrive in time.
    TooSlow,
    /// 409: the execution was cancelled.
    Cancelled,
    /// 410: older than the retention window, or not known whether it ran.
    Gone,
    /// 413: larger than the hub takes.
    TooLarge,
    /// 421: another replica owns this runtime; see [`HubRefusal::owner`].
    NotOwner,
    /// 429: the queue is full or the wait was too long.
    TooManyRequests,
    /// 429: too many unknown callers use one address at this moment. The token was not checked: retry soon.
    Throttled,
    /// 500: the sandbox failed.
    Failed,
    /// 503: cannot be served now.
    Unavailable,
    /// A code of a newer hub.
    #[serde(other)]
    Unknown,
}

impl RefusalCode {
    /// HTTP status.
    pub const fn status(self) -> u16 {
        match self {
            Self::Invalid => 400,
            Self::Unauthenticated => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::TooSlow => 408,
            Self::Cancelled => 409,
            Self::Gone => 410,
            Self::TooLarge => 413,
            Self::NotOwner => 421,
            Self::TooManyRequests | Self::Throttled => 429,
            Self::Failed | Self::Unknown => 500,
            Self::Unavailable => 503,
        }
    }

    /// Metric label: the word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Unauthenticated => "unauthenticated",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not_found",
            Self::TooSlow => "too_slow",
            Self::Cancelled => "cancelled",
            Self::Gone => "gone",
            Self::TooLarge => "too_large",
            Self::NotOwner => "not_owner",
            Self::TooManyRequests => "too_many_requests",
            Self::Throttled => "throttled",
            Self::Failed => "failed",
            Self::Unavailable => "unavailable",
            Self::Unknown => "unknown",
        }
    }
}

impl HubRefusal {
    /// A refusal without further members.
    pub fn new(code: RefusalCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            retry_after_seconds: None,
            owner: None,
            protocol: None,
            failure: None,
        }
    }

    /// This refusal with a time to ask again.
    #[must_use]
    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after_seconds = Some(seconds);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_of_a_newer_hub_is_read_as_unknown() {
        let refusal: HubRefusal = serde_json::from_str(r#"{"code":"teapot","message":"m","more":1}"#).unwrap();
        assert_eq!(refusal.code, RefusalCode::Unknown);
    }

    #[test]
    fn codes_are_written_as_their_metric_label() {
        for code in [
            RefusalCode::Invalid,
            RefusalCode::NotOwner,
            RefusalCode::TooManyRequests,
            RefusalCode::Throttled,
            RefusalCode::TooSlow,
        ] {
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
        }
    }
}
