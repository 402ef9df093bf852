//! The notes of a call and of its execution, for logs, metrics and reports.

use std::time::Duration;

use knack_wire::ToolCall;

/// A call of one request. The tokens of a round are those of its calls only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallId {
    /// The round that the call is in.
    pub round: u32,
    /// The call's token.
    pub token: u32,
}

impl CallId {
    /// A note for a call.
    pub const fn of(call: &ToolCall) -> Self {
        Self {
            round: call.round,
            token: call.token,
        }
    }
}

/// One execution, for logs and metrics.
#[derive(Debug, Clone)]
pub struct ExecutionNote {
    /// Execution id.
    pub id: String,
    /// The call that it is for.
    pub call: CallId,
    /// `namespace/name`, or empty.
    pub skill: String,
    /// `success`, `error`, `timeout`, or the error's label.
    pub status: &'static str,
    /// `warm`, `cold`, or empty if nothing started.
    pub start: &'static str,
    /// Time until there was a permit; `None`: nothing ran.
    pub(crate) queued: Option<Duration>,
    /// Time of the program alone; `None`: nothing ran.
    pub program: Option<Duration>,
    /// From the request to the result.
    pub(crate) duration: Duration,
}
