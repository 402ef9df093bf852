//! The answer of an API, before it has the shape of a dialect.

use serde_json::Value;

use crate::error::StoreError;
use crate::model::{SkillEntry, Version};
use crate::page::Paged;

/// The outcome of a call.
pub(crate) enum ApiOutcome {
    Skill(SkillEntry),
    Version(SkillEntry, Version),
    Skills(Paged<SkillEntry>),
    Versions(SkillEntry, Paged<Version>),
    Deleted(SkillEntry),
    VersionDeleted(Version),
    Zip(Vec<u8>),
}

/// Status and body of an answer of an API that has no other parts.
pub(crate) type Answer = (u16, Option<Value>);

/// The kind of a refusal; status and words of each dialect follow from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalKind {
    /// 400.
    Invalid,
    /// 401: there is no credential, or an unknown one.
    NoCredential,
    /// 403.
    Forbidden,
    /// 404.
    NotFound,
    /// 405, with the methods of the path.
    NotAllowed(&'static str),
    /// 408: the body of the request did not arrive in time.
    Late,
    /// 409.
    Conflict,
    /// 413.
    TooLarge,
    /// 429.
    Throttled,
    /// 503: at this time.
    Unavailable,
    /// 507.
    Full,
    /// 500.
    Failed,
    /// 502.
    BadGateway,
    /// It was asked before, and has no result to repeat.
    Repeated(RepeatRefusal),
}

/// Why a repeated request has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepeatRefusal {
    /// 409: it is being done.
    InProgress,
    /// 409: what was asked before under its key is another request.
    OtherRequest,
    /// 504: it took too long.
    TimedOut,
    /// 500: its program failed.
    Failed,
    /// 500: how it ended is not known.
    Lost,
}

impl RefusalKind {
    pub(crate) const fn status(self) -> u16 {
        match self {
            Self::Invalid => 400,
            Self::NoCredential => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::NotAllowed(_) => 405,
            Self::Late => 408,
            Self::Conflict | Self::Repeated(RepeatRefusal::InProgress | RepeatRefusal::OtherRequest) => 409,
            Self::TooLarge => 413,
            Self::Throttled => 429,
            Self::Failed | Self::Repeated(RepeatRefusal::Failed | RepeatRefusal::Lost) => 500,
            Self::BadGateway => 502,
            Self::Unavailable => 503,
            Self::Repeated(RepeatRefusal::TimedOut) => 504,
            Self::Full => 507,
        }
    }
}

impl RepeatRefusal {
    /// OmniRoute's code.
    pub(crate) const fn code(self) -> &'static str {
        match self {
            Self::InProgress => "TOOL_IN_PROGRESS",
            Self::OtherRequest => "IDENTITY_CONFLICT",
            Self::TimedOut => "TOOL_EXECUTION_TIMEOUT",
            Self::Failed => "TOOL_EXECUTION_ERROR",
            Self::Lost => "TOOL_STATE_UNKNOWN",
        }
    }
}

/// A refusal: what is wrong, with which field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) kind: RefusalKind,
    /// The field or parameter; empty if none.
    pub(crate) field: String,
    pub(crate) message: String,
}

impl Refusal {
    pub(crate) fn new(kind: RefusalKind, field: &str, message: impl Into<String>) -> Self {
        Self {
            kind,
            field: field.to_owned(),
            message: message.into(),
        }
    }

    pub(crate) fn invalid(field: &str, message: impl Into<String>) -> Self {
        Self::new(RefusalKind::Invalid, field, message)
    }

    /// No such skill: one answer for what is missing and what is another's.
    pub(crate) fn missing(id: &str) -> Self {
        Self::new(RefusalKind::NotFound, "skill_id", format!("No such skill: {id}"))
    }

    /// A store's error about the skill that the path names.
    pub(crate) fn of(error: StoreError, id: &str) -> Self {
        match error {
            StoreError::NotFound => Self::missing(id),
            StoreError::NameTaken { .. } | StoreError::Managed { .. } | StoreError::Conflict { .. } => {
                Self::new(RefusalKind::Conflict, "name", error.to_string())
            }
            StoreError::VersionTaken { .. } => Self::new(RefusalKind::Conflict, "version", error.to_string()),
            StoreError::Unfit(_) => Self::invalid("files", error.to_string()),
            StoreError::Forbidden(_) => Self::new(RefusalKind::Forbidden, "", error.to_string()),
            StoreError::Unavailable(_) => Self::new(RefusalKind::Unavailable, "", error.to_string()),
            StoreError::OtherName { .. } | StoreError::LongName { .. } => Self::invalid("name", error.to_string()),
            StoreError::TooManyVersions { .. } => Self::invalid("versions", error.to_string()),
            StoreError::Full(_) => Self::new(RefusalKind::Full, "", error.to_string()),
            StoreError::Failed(cause) => {
                tracing::error!(%cause, "the store of skills failed");
                Self::new(
                    RefusalKind::Failed,
                    "",
                    "The store of skills failed; the log of the server has the cause.",
                )
            }
        }
    }
}

/// A Unix time in microseconds as RFC 3339.
pub(crate) fn rfc3339(micros: i64) -> String {
    jiff::Timestamp::from_microsecond(micros).map_or_else(|_| micros.to_string(), |time| time.to_string())
}
