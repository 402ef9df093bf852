//! Conditions as kstatus reads them. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use knack_vocabulary::{CONDITION_ACCEPTED, CONDITION_READY, CONDITION_RECONCILING, CONDITION_STALLED};

use super::reason::ConditionReason;
use crate::condition_value::{ConditionStatus, ConditionValue};
use crate::shortened::cut;

/// Longest message: the field holds 32,768, a table row far less.
const MESSAGE_MAX: usize = 2_000;

/// How an object fares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VerdictState {
    /// Done.
    Ready,
    /// Seen, not done.
    Progressing,
    /// Failed, and tried again by itself.
    Retrying,
    /// Failed until a person changes something.
    Stalled,
}

/// A state with its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) state: VerdictState,
    pub(super) reason: ConditionReason,
    pub(super) message: String,
}

impl Verdict {
    pub(super) fn new(state: VerdictState, reason: ConditionReason, message: impl Into<String>) -> Self {
        Self {
            state,
            reason,
            message: message.into(),
        }
    }
}

/// Condition `Accepted`, which does not affect readiness.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Acceptance {
    pub(super) accepted: bool,
    pub(super) reason: ConditionReason,
    pub(super) message: String,
}

/// The conditions of an object. Abnormal ones are absent unless True; a time moves only when a status flips.
pub(super) fn conditions(
    before: &[Condition],
    generation: i64,
    verdict: &Verdict,
    acceptance: Option<&Acceptance>,
    now: Timestamp,
) -> Vec<Condition> {
    let ready = match verdict.state {
        VerdictState::Ready => ConditionStatus::True,
        VerdictState::Progressing => ConditionStatus::Unknown,
        VerdictState::Retrying | VerdictState::Stalled => ConditionStatus::False,
    };
    // Whole seconds, as Kubernetes writes them.
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let make = |kind: &str, status: ConditionStatus, reason: ConditionReason, message: &str| {
        let same = |condition: &&Condition| condition.type_ == kind && status.is_of(condition);
        let value = ConditionValue::new(status, reason.as_str(), cut(message, MESSAGE_MAX));
        value.into_condition(kind, Some(generation), before.iter().find(same), now)
    };
    let of_verdict = |kind: &str, status| make(kind, status, verdict.reason, &verdict.message);
    let mut made = vec![of_verdict(CONDITION_READY, ready)];
    match verdict.state {
        VerdictState::Ready => {}
        VerdictState::Progressing | VerdictState::Retrying => {
            made.push(of_verdict(CONDITION_RECONCILING, ConditionStatus::True));
        }
        VerdictState::Stalled => made.push(of_verdict(CONDITION_STALLED, ConditionStatus::True)),
    }
    if let Some(acceptance) = acceptance {
        let status = if acceptance.accepted {
            ConditionStatus::True
        } else {
            ConditionStatus::False
        };
        made.push(make(CONDITION_ACCEPTED, status, acceptance.reason, &acceptance.message));
    }
    made
}

/// Whether a condition of this type has this reason for this generation. Not its message: that of a call that failed has ports and
/// numbers, which differ with each attempt, and every write of a status begins another one.
pub(super) fn has_reason(
    conditions: &[Condition],
    kind: &str,
    reason: ConditionReason,
    generation: Option<i64>,
) -> bool {
    let mut found = conditions.iter().filter(|condition| condition.type_ == kind);
    found.any(|condition| condition.reason == reason.as_str() && condition.observed_generation == generation)
}

/// Whether readiness changed: another status or another reason. Events report such changes.
pub(super) fn transition(before: &[Condition], after: &[Condition]) -> bool {
    let ready = |list: &[Condition]| {
        list.iter()
            .find(|condition| condition.type_ == CONDITION_READY)
            .map(|condition| (condition.status.clone(), condition.reason.clone()))
    };
    ready(before) != ready(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Status as `kstatus` computes it, for conditions whose generation is current (docs/design/decisions.md#status-and-conditions).
    fn kstatus(conditions: &[Condition]) -> &'static str {
        for condition in conditions {
            match (condition.type_.as_str(), condition.status.as_str()) {
                ("Reconciling", "True") => return "InProgress",
                ("Stalled", "True") => return "Failed",
                _ => {}
            }
        }
        match conditions.iter().find(|condition| condition.type_ == "Ready") {
            Some(ready) if ready.status == "True" => "Current",
            Some(_) => "InProgress",
            None => "Current",
        }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn every_state_reads_as_kstatus_expects() {
        for (state, ready, expected) in [
            (VerdictState::Ready, "True", "Current"),
            (VerdictState::Progressing, "Unknown", "InProgress"),
            (VerdictState::Retrying, "False", "InProgress"),
            (VerdictState::Stalled, "False", "Failed"),
        ] {
            let made = conditions(
                &[],
                3,
                &Verdict::new(state, ConditionReason::Delivered, "m"),
                None,
                at(1),
            );
            assert_eq!(kstatus(&made), expected);
            assert_eq!(made[0].status, ready);
            assert!(made.iter().all(|c| c.observed_generation == Some(3)));
            assert!(
                !made.iter().any(|c| c.type_ != "Ready" && c.status == "False"),
                "abnormal is True or absent"
            );
        }
    }

    #[test]
    fn times_move_with_the_status_only() {
        let first = conditions(
            &[],
            1,
            &Verdict::new(VerdictState::Stalled, ConditionReason::InvalidSkill, "a"),
            None,
            at(10),
        );
        let second = conditions(
            &first,
            2,
            &Verdict::new(VerdictState::Stalled, ConditionReason::TooLarge, "b"),
            None,
            at(20),
        );
        let third = conditions(
            &second,
            3,
            &Verdict::new(VerdictState::Ready, ConditionReason::Delivered, "c"),
            None,
            at(30),
        );
        let time = |list: &[Condition]| list[0].last_transition_time.0.as_second();
        assert_eq!((time(&first), time(&second), time(&third)), (10, 10, 30));
        assert!(transition(&[], &first) && transition(&first, &second) && transition(&second, &third));
        assert!(!transition(&third, &third));
    }
}
