//! What conditions of a status say, for controller and hub.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

/// The status of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConditionStatus {
    True,
    False,
    Unknown,
}

impl ConditionStatus {
    /// As Kubernetes writes it.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }

    /// Whether a condition has it.
    pub(crate) fn is_of(self, condition: &Condition) -> bool {
        condition.status == self.as_str()
    }
}

/// Whether what a condition says holds.
pub(crate) fn is_true(condition: &Condition) -> bool {
    ConditionStatus::True.is_of(condition)
}

/// What a condition says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConditionValue {
    pub(crate) status: ConditionStatus,
    /// One word.
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl ConditionValue {
    pub(crate) fn new(status: ConditionStatus, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            status,
            reason: reason.into(),
            message: message.into(),
        }
    }

    /// Whether a condition says this.
    pub(crate) fn is_said_by(&self, condition: &Condition) -> bool {
        self.status.is_of(condition) && condition.reason == self.reason && condition.message == self.message
    }

    /// The condition of an object of this generation. Its time is that of the condition `before`, and moves only when the
    /// status flips.
    pub(crate) fn into_condition(
        self,
        kind: &str,
        generation: Option<i64>,
        before: Option<&Condition>,
        now: Timestamp,
    ) -> Condition {
        let before = before.filter(|before| self.status.is_of(before));
        Condition {
            type_: kind.to_owned(),
            status: self.status.as_str().to_owned(),
            reason: self.reason,
            message: self.message,
            observed_generation: generation,
            last_transition_time: before.map_or(Time(now), |before| before.last_transition_time.clone()),
        }
    }
}
