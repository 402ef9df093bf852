//! Why a hub gave no answer.

use knack_telemetry::root_cause;

use crate::{HubRefusal, RefusalCode};

/// Why a hub gave no answer that can be used.
#[derive(Debug, Clone, thiserror::Error)]
pub enum HubError {
    /// Not a usable configuration: a file that cannot be read, a PEM without certificate.
    #[error("{0}")]
    Configuration(String),
    /// No connection.
    #[error("the hub cannot be reached: {0}")]
    Unreachable(String),
    /// The connection ended before the answer did.
    #[error("the hub's answer was interrupted: {0}")]
    Broken(String),
    /// It refused.
    #[error("{0}")]
    Refused(HubRefusal),
    /// The hub's answer cannot be decoded.
    #[error("the hub answered with {0}")]
    Protocol(String),
}

impl HubError {
    /// A transport error without its address.
    pub(super) fn broken(error: reqwest::Error) -> Self {
        Self::Broken(cause(error))
    }

    /// Whether the same question may be answered later, here or by another replica.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::Broken(_) => true,
            Self::Refused(refusal) => matches!(
                refusal.code,
                RefusalCode::Unavailable | RefusalCode::TooSlow | RefusalCode::Throttled
            ),
            Self::Configuration(_) | Self::Protocol(_) => false,
        }
    }
}

/// The innermost cause without the address, which must not leak.
pub(super) fn cause(error: reqwest::Error) -> String {
    root_cause(&error.without_url())
}
