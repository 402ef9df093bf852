//! The state of an exchange: of its round, and of the answer to its client.

use bytes::BytesMut;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use http::HeaderMap;
use knack_serving::reason::StatusReason;
use knack_wire::CallOutcome;
use knack_wire::drive::{AnswerHead, BodyKind, GeneratedFile};
use tokio_util::sync::CancellationToken;

use crate::files::FileEntry;

/// The exchange with the provider.
#[derive(Default)]
pub(super) enum Upstream {
    #[default]
    Idle,
    Sending(BoxFuture<'static, Result<reqwest::Response, reqwest::Error>>),
    Reading(Box<reqwest::Response>),
}

/// The round that is under way.
#[derive(Default)]
pub(super) struct RoundState {
    pub(super) upstream: Upstream,
    /// The head of an answer without a content type: the first bytes of its body show what it is.
    pub(super) untyped: Option<AnswerHead>,
    /// Each run with the number of its files that could not be put into the container. `None` as long as nothing runs.
    pub(super) running: Option<FuturesUnordered<BoxFuture<'static, (CallOutcome, usize)>>>,
    /// Ends the runs; `None` as long as nothing runs.
    pub(super) cancel: Option<CancellationToken>,
    /// The last event was a tick of the clock.
    pub(super) late: bool,
    /// Length of the body of the round before.
    pub(super) sent_bytes: usize,
}

/// The answer to the client.
pub(super) struct AnswerState {
    /// Headers of the provider's first answer that was not an error.
    pub(super) head_headers: Option<(HeaderMap, StatusReason)>,
    /// Headers of its last answer, if that was an error.
    pub(super) error_headers: Option<(HeaderMap, StatusReason)>,
    pub(super) made: Vec<GeneratedFile>,
    /// Files that were made, once they are kept.
    pub(super) kept: Vec<FileEntry>,
    pub(super) recorded: BytesMut,
    pub(super) body_kind: BodyKind,
    pub(super) finished: bool,
}

impl Default for AnswerState {
    fn default() -> Self {
        Self {
            head_headers: None,
            error_headers: None,
            made: Vec::new(),
            kept: Vec::new(),
            recorded: BytesMut::new(),
            body_kind: BodyKind::Json,
            finished: false,
        }
    }
}
