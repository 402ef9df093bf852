//! Errors of executions as refusals of the hub, and back.

use std::time::Duration;

use knack_hub_api::{FailureLine, Problem, ProblemCode};

use crate::{ClusterFailure, ClusterFailureKind, ExecutionError, Missing};

/// The content of a hub's error.
pub fn problem_of_error(error: &ExecutionError) -> Problem {
    let message = error.to_string();
    match error {
        ExecutionError::QueueFull { retry_after } | ExecutionError::QueueTimeout { retry_after } => {
            Problem::new(ProblemCode::TooManyRequests, message).retry_after(retry_after.as_secs().max(1))
        }
        ExecutionError::Unavailable(missing) => {
            Problem::new(ProblemCode::Unavailable, missing.to_string()).retry_after(UNAVAILABLE_RETRY_SECONDS)
        }
        ExecutionError::Invalid(what) => Problem::new(ProblemCode::Invalid, what.clone()),
        ExecutionError::Gone => Problem::new(ProblemCode::Gone, message),
        ExecutionError::NotFound => Problem::new(ProblemCode::NotFound, message),
        ExecutionError::Cancelled => Problem::new(ProblemCode::Cancelled, message),
        ExecutionError::NotOwner { owner } => Problem {
            owner: owner.clone(),
            // The owner's address is for programs that trust the hub's authorities, not for a text.
            ..Problem::new(
                ProblemCode::NotOwner,
                "another replica of the hub runs this runtime's code",
            )
        },
        ExecutionError::Cluster(failure) => Problem {
            failure: Some(Box::new(FailureLine {
                kind: failure.kind.as_str().to_owned(),
                reason: failure.reason.clone(),
                message: failure.message.clone(),
                may_have_run: failure.may_have_run,
            })),
            ..Problem::new(ProblemCode::Failed, message)
        },
        ExecutionError::Internal(what) => Problem::new(ProblemCode::Failed, what.clone()),
    }
}

/// A runtime that is suspended or not isolated stays so until a person acts: no need to ask often.
const UNAVAILABLE_RETRY_SECONDS: u64 = 5;

/// The error for the caller of the execution that a hub's refusal means.
pub fn error_of_problem(problem: Problem) -> ExecutionError {
    let retry_after = Duration::from_secs(problem.retry_after_seconds.unwrap_or(1).max(1));
    match problem.code {
        ProblemCode::Invalid | ProblemCode::TooLarge => ExecutionError::Invalid(problem.message),
        ProblemCode::NotFound => ExecutionError::NotFound,
        ProblemCode::Gone => ExecutionError::Gone,
        ProblemCode::Cancelled => ExecutionError::Cancelled,
        ProblemCode::TooManyRequests => ExecutionError::QueueFull { retry_after },
        ProblemCode::NotOwner => ExecutionError::NotOwner { owner: problem.owner },
        ProblemCode::Unauthenticated | ProblemCode::Forbidden => ExecutionError::Unavailable(Missing::new(
            format!("the hub refuses this gateway: {}", problem.message),
            "an administrator can allow it on the SkillRuntime (allowedCallers) or by RBAC (verb use)",
        )),
        ProblemCode::Unavailable | ProblemCode::TooSlow | ProblemCode::Throttled => match problem.failure {
            Some(failure) => of_failure(*failure, problem.message),
            None => ExecutionError::Unavailable(later(&problem.message)),
        },
        ProblemCode::Failed | ProblemCode::Unknown => match problem.failure {
            Some(failure) => of_failure(*failure, problem.message),
            None => ExecutionError::Internal(problem.message),
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
            let json = serde_json::to_string(&problem_of_error(&error)).unwrap();
            let back = error_of_problem(serde_json::from_str(&json).unwrap());
            assert_eq!(back, error, "{json}");
        }
    }

    #[test]
    fn the_owners_address_is_in_no_text() {
        let error = ExecutionError::NotOwner {
            owner: Some("https://10-0-0-7.knack-hub:8443".to_owned()),
        };
        assert!(!problem_of_error(&error).message.contains("10-0-0-7"));
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
            let error = error_of_problem(Problem::new(ProblemCode::Unavailable, message));
            assert_eq!(error.to_string(), format!("code cannot be run here: {expected}"));
        }
    }
}
