//! The values that go into an exchange and come out of it.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use knack_wire::Drive;
use knack_wire::drive::ClientHead;

use crate::http_server::budget::Holding;
use crate::model_calls::hidden_turns::{HiddenTurnLookup, StagedFile};
use crate::providers::provider::Api;
use crate::runs::skill_runs::RunReading;
use crate::runs::tools::ToolRunner;
use crate::telemetry::body_files::Recording;

/// One piece of the answer to the client.
#[derive(Debug)]
pub(crate) enum AnswerPiece {
    /// Status and headers; comes first, once.
    Head(ClientHead),
    /// Body bytes.
    Bytes(Bytes),
    /// The body cannot be completed: the connection is cut, so that the client does not take a part for the whole.
    Broken,
}

/// The target of a request and the parts of its head that are sent along, for every round.
#[derive(Debug, Clone)]
pub(crate) struct UpstreamTarget {
    /// The API of the provider.
    pub api: Api,
    /// As the client sent it.
    pub(crate) path_and_query: String,
    /// The headers that are sent to the provider.
    pub headers: HeaderMap,
    /// The body as it was received, if that was compressed.
    pub received: Option<Bytes>,
}

/// What an exchange begins with.
#[derive(Debug)]
pub(crate) struct ExchangeParts {
    /// The loop. It is large and moved several times, so it is boxed.
    pub(crate) drive: Box<Drive>,
    /// Where the request goes.
    pub(crate) target: UpstreamTarget,
    /// Calls; `None` when nothing is injected.
    pub tools: Option<Arc<ToolRunner>>,
    /// Hidden turns.
    pub hidden: HiddenTurnLookup,
    /// Recording.
    pub(crate) recording: Option<Recording>,
    /// The request's share of the budget: held as long as rounds may need its body.
    pub(crate) holding: Holding,
    /// The memory of the skills' texts that are of this request alone.
    pub(crate) _texts: Option<Holding>,
    /// Knack's files that the request names, for its runs.
    pub given: Vec<StagedFile>,
    /// The container that files of its runs go into.
    pub(crate) container: Option<String>,
    /// What a run of a skill, whose request it is, reads of the answer.
    pub(crate) read_by_run: Option<RunReading>,
}
