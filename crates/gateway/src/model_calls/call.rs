//! A model call, from its head to its answer.

use std::sync::Arc;

use knack_wire::Format;
use tokio::time::Instant;

use crate::state::Gateway;
use crate::telemetry::log::RequestLog;
use crate::telemetry::trace::RequestTrace;

/// A model call: what its log and its answer need, however it ends.
pub(crate) struct ModelCall {
    /// What all requests share.
    pub(crate) gateway: Arc<Gateway>,
    /// The log so far.
    pub(crate) log: RequestLog,
    /// The trace so far.
    pub(crate) trace: RequestTrace,
    /// When the request's head came in.
    pub(crate) begun: Instant,
    /// The format of the request, and so of its errors.
    pub(crate) format: Format,
}
