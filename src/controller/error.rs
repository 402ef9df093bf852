//! What goes wrong at the edge.

use std::time::Duration;

/// Why a reconcile, or the whole process, could not go on.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// The API server refused or could not be reached.
    #[error("{what}: {source}")]
    Api {
        /// What was being done, with the object's name.
        what: String,
        /// The client's error.
        #[source]
        source: Box<kube::Error>,
    },
    /// The API server did not answer in time.
    #[error("{what}: no answer within {} s", limit.as_secs())]
    Timeout {
        /// What was being done.
        what: String,
        /// The limit.
        limit: Duration,
    },
    /// The leader's Lease was lost: another replica leads now.
    #[error("the lease was lost: another replica leads; this one ends and starts anew")]
    LeaseLost,
    /// A task of the process ended.
    #[error("{0}")]
    Stopped(String),
}

impl ControllerError {
    /// The HTTP status of the API server's answer, if there was one.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Api { source, .. } => match source.as_ref() {
                kube::Error::Api(status) => Some(status.code),
                _ => None,
            },
            _ => None,
        }
    }
}
