//! Errors of reconciles and of the process.

use crate::api_call::CallError;

/// Why a reconcile, or the whole process, could not go on.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// A call to the API server failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The leader's Lease was lost: another replica leads now.
    #[error("the Lease was lost: another replica leads; this process exits and is started again")]
    LeaseLost,
    /// A task of the process ended.
    #[error("{0}")]
    Stopped(String),
}

impl ControllerError {
    /// The HTTP status of the API server's answer, if there was one.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Call(error) => error.code(),
            _ => None,
        }
    }
}
