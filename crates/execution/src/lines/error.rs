//! Errors of executions as refusals of the hub, and back.

use std::time::Duration;

use knack_hub_api::{FailureLine, HubRefusal, RefusalCode};

use crate::{ClusterFailure, ClusterFailureKind, ExecutionError, Missing};

/// The content of a hub's error.
pub fn refusal_of_error(error: &ExecutionError) -> HubRefusal {
    let message = error.to_string();
    match error {
        ExecutionError::QueueFull { retry_after } | ExecutionError::QueueTimeout { retry_after } => {
            HubRefusal::new(RefusalCode::TooManyRequests, message).retry_after(retry_after.as_secs().max(1))
        }
        ExecutionError::Unavailable(missing) => {
            HubRefusal::new(RefusalCode::Unavailable, missing.to_string()).retry_after(UNAVAILABLE_RETRY_SECONDS)
        }
        ExecutionError::Invalid(what) => HubRefusal::new(RefusalCode::Invalid, what.clone()),
        ExecutionError::Gone => HubRefusal::new(RefusalCode::Gone, message),
        ExecutionError::NotFound => HubRefusal::new(RefusalCode::NotFound, message),
        ExecutionError::Cancelled => HubRefusal::new(RefusalCode::Cancelled, message),
        ExecutionError::NotOwner { owner } => HubRefusal {
            owner: owner.clone(),
            // The owner's address is for programs that trust the hub's authorities, not for a text.
            ..HubRefusal::new(
                RefusalCode::NotOwner,
                "another replica of the hub runs this runtime's code",
            )
        },
        ExecutionError::Cluster(failure) => HubRefusal {
            failure: Some(Box::new(FailureLine {
                kind: failure.kind.as_str().to_owned(),
                reason: failure.reason.clone(),
                message: failure.message.clone(),
                may_have_run: failure.may_have_run,
            })),
            ..HubRefusal::new(RefusalCode::Failed, message)
        },
        ExecutionError::Internal(what) => HubRefusal::new(RefusalCode::Failed, what.clone()),
    }
}

/// A runtime that is suspended or not isolated stays so until a person acts: no need to ask often.
const UNAVAILABLE_RETRY_SECONDS: u64 = 5;

/// The error for the caller of the execution that a hub's refusal means.
pub fn error_of_refusal(refusal: HubRefusal) -> ExecutionError {
    let retry_after = Duration::from_secs(refusal.retry_after_seconds.unwrap_or(1).max(1));
    match refusal.code {
        RefusalCode::Invalid | RefusalCode::TooLarge => ExecutionError::Invalid(refusal.message),
        RefusalCode::NotFound => ExecutionError::NotFound,
        RefusalCode::Gone => ExecutionError::Gone,
        RefusalCode::Cancelled => ExecutionError::Cancelled,
        RefusalCode::TooManyRequests => ExecutionError::QueueFull { retry_after },
        RefusalCode::NotOwner => ExecutionError::NotOwner { owner: refusal.owner },
        RefusalCode::Unauthenticated | RefusalCode::Forbidden => ExecutionError::Unavailable(Missing::new(
            format!("the hub refuses this gateway: {}", refusal.message),
            "an administrator can allow it on the SkillRuntime (allowedCallers) or by RBAC (verb use)",
        )),
        RefusalCode::Unavailable | RefusalCode::TooSlow | RefusalCode::Throttled => match refusal.failure {
            Some(failure) => of_failure(*failure, refusal.message),
            None => ExecutionError::Unavailable(later(&refusal.message)),
        },
        RefusalCode::Failed | RefusalCode::Unknown => match refusal.failure {
            Some(failure) => of_failure(*failure, refusal.message),
            None => ExecutionError::Internal(refusal.message),
        },
    }
}

fn of_failure(failure: FailureLine, message: String) -> ExecutionError {
    match ClusterFailureKind::from_word(&failure.kind) {
        Some(kind) => ExecutionError::Cluster(ClusterFailure {
            kind,
            reason: failure.reason,
            message: failure.message,
            may_have_run: failure.may_have_run,
        }),
        // A failure that only a newer hub has: its text says what it is.
        None => ExecutionError::Internal(message),
    }
}

/// The hub says to other readers of its problems to try again, too: once is enough.
fn later(message: &str) -> Missing {
    Missing::new(message.trim_end_matches("; try again"), "try again later")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_come_back_as_what_they_were() {
        let seconds = Duration::from_secs(3);
        let failure = |kind| {
            ExecutionError::Cluster(ClusterFailure {
                kind,
                reason: "ErrImagePull".to_owned(),
                message: "no such image".to_owned(),
                may_have_run: false,
            })
        };
        let mut errors = vec![
            ExecutionError::QueueFull { retry_after: seconds },
            ExecutionError::Invalid("a path".to_owned()),
            ExecutionError::Gone,
            ExecutionError::NotFound,
            ExecutionError::Cancelled,
            ExecutionError::NotOwner {
                owner: Some("https://x:1".to_owned()),
            },
            ExecutionError::Internal("cause".to_owned()),
        ];
        errors.extend(ClusterFailureKind::ALL.map(failure));
        for error in errors {
            let json = serde_json::to_string(&refusal_of_error(&error)).unwrap();
            let back = error_of_refusal(serde_json::from_str(&json).unwrap());
            assert_eq!(back, error, "{json}");
        }
    }

    #[test]
    fn the_owners_address_is_in_no_text() {
        let error = ExecutionError::NotOwner {
            owner: Some("https://10-0-0-7.knack-hub:8443".to_owned()),
        };
        assert!(!refusal_of_error(&error).message.contains("10-0-0-7"));
    }

    #[test]
    fn a_caller_is_asked_once_to_try_again() {
        for (message, expected) in [
            (
                "the hub has just started; try again",
                "the hub has just started; try again later",
            ),
            (
                "this replica is not ready",
                "this replica is not ready; try again later",
            ),
        ] {
            let error = error_of_refusal(HubRefusal::new(RefusalCode::Unavailable, message));
            assert_eq!(error.to_string(), format!("code cannot be run here: {expected}"));
        }
    }
}
