//! One call to the API server: bounded, and with an error that says what was being done.

use std::time::Duration;

/// How long a call may take: longer than a loaded API server needs. kube repeats 429, 503 and 504 by itself, and would go
/// on for minutes.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(15);

/// Objects in one answer of a list of a watch. A user can make a Skill, and the metadata of a ConfigMap, of 1.5 MiB in JSON, and the client
/// holds an answer a few times over before a watch keeps what it needs.
pub(crate) const LIST_PAGE: u32 = 20;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The API server refused or could not be reached.
    #[error("{what}: {source}")]
    Api {
        /// The action, with the object's name.
        what: String,
        /// The client's error.
        #[source]
        source: Box<kube::Error>,
    },
    /// The API server did not answer in time.
    #[error("{what}: no answer within {} s", CALL_TIMEOUT.as_secs())]
    Timeout {
        /// The action, with the object's name.
        what: String,
    },
}

impl CallError {
    /// The status code of the API server's answer, if it answered.
    pub(crate) fn code(&self) -> Option<u16> {
        self.answer().map(|status| status.code)
    }

    /// The answer of the API server, if it answered.
    pub(crate) fn answer(&self) -> Option<&kube::core::Status> {
        match self {
            Self::Api { source, .. } => match source.as_ref() {
                kube::Error::Api(status) => Some(status),
                _ => None,
            },
            Self::Timeout { .. } => None,
        }
    }
}

/// Bounds a call by a limit of its own. No answer is an error as a broken connection is one.
pub(crate) async fn within<T>(limit: Duration, call: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
    let answer = tokio::time::timeout(limit, call).await;
    answer.unwrap_or_else(|_| Err(kube::Error::Service(format!("no answer within {limit:?}").into())))
}

/// Bounds a call. `what` is asked for only if it fails.
pub(crate) async fn call<T>(
    what: impl FnOnce() -> String,
    call: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, CallError> {
    match tokio::time::timeout(CALL_TIMEOUT, call).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(CallError::Api {
            what: what(),
            source: Box::new(error),
        }),
        Err(_) => Err(CallError::Timeout { what: what() }),
    }
}
