//! Answers of the API server as errors of a store. Pure.

use knack_registry::StoreError;

use crate::api_call::CallError;

/// The meaning of a failed call for its caller. Texts of the API server are shown where they say what to do: a quota, a
/// policy of the cluster. Everything else is for the log.
pub(super) fn store_error(error: &CallError) -> StoreError {
    let Some(status) = error.answer() else {
        return match error {
            CallError::Timeout { .. } => unavailable(),
            CallError::Api { .. } => StoreError::Failed(error.to_string()),
        };
    };
    match (status.code, status.reason.as_str()) {
        (403, _) if status.message.contains("exceeded quota") => StoreError::Full(status.message.clone()),
        (403, _) if status.message.contains("being terminated") => StoreError::NotFound,
        (422, _) => StoreError::Forbidden(format!("the API server refuses the skill: {}", status.message)),
        (429 | 500 | 503 | 504, _) => unavailable(),
        _ => StoreError::Failed(error.to_string()),
    }
}

/// The first failure of works that go on after one: what is refused to one object of a namespace says nothing about the next.
#[derive(Debug, Default)]
pub(super) struct FirstFailure(Option<CallError>);

impl FirstFailure {
    /// The result of a work; `None`: it has failed.
    pub(super) fn note<T>(&mut self, done: Result<T, CallError>) -> Option<T> {
        match done {
            Ok(done) => Some(done),
            Err(error) => {
                self.0.get_or_insert(error);
                None
            }
        }
    }

    /// Error: what failed first.
    pub(super) fn done(self) -> Result<(), CallError> {
        self.0.map_or(Ok(()), Err)
    }
}

/// Whether the API server refused a write for another one of the same object.
pub(super) fn is_conflict(error: &CallError) -> bool {
    error.code() == Some(409)
}

/// Whether the API server refused a call, so that it does nothing any more. A 5xx and a lost answer say nothing about that.
pub(super) fn is_refusal(error: &CallError) -> bool {
    error
        .code()
        .is_some_and(|code| (400..500).contains(&code) && code != 408)
}

/// Whether what was asked for is not there.
pub(super) fn is_missing(error: &CallError) -> bool {
    error.code() == Some(404)
}

fn unavailable() -> StoreError {
    StoreError::Unavailable("the API server of the cluster did not answer in time; try again".to_owned())
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn quotas_and_policies_are_reported_and_faults_of_ours_are_not() {
        for (code, message, expected) in [
            (403, "exceeded quota: small", "exceeded quota: small"),
            (
                422,
                "denied: no skills on Fridays",
                "the API server refuses the skill: denied: no skills on Fridays",
            ),
            (
                503,
                "x",
                "the API server of the cluster did not answer in time; try again",
            ),
            (
                403,
                "skills is forbidden",
                "the store failed: create Skill: ApiError: skills is forbidden",
            ),
        ] {
            let status = Status {
                code,
                message: message.to_owned(),
                ..Status::default()
            };
            let error = CallError::Api {
                what: "create Skill".to_owned(),
                source: Box::new(kube::Error::Api(Box::new(status))),
            };
            let text = store_error(&error).to_string();
            assert!(text.starts_with(expected), "{text}");
        }
    }
}
