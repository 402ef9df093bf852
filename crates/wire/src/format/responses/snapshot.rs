//! Snapshots: the whole response object that several events and the body carry.

use std::collections::BTreeMap;

use super::request;
use crate::format::Garbage;
use crate::json::{self, Edits, Object, Span, ValueKind};
use crate::request::Request;

/// The members of a request that a snapshot echoes, as the client sent them, and those that must not be shown to it.
#[derive(Debug, Clone, Default)]
pub(super) struct RequestEcho {
    instructions: Option<Vec<u8>>,
    tools: Option<Vec<u8>>,
    tool_choice: Option<Vec<u8>>,
    /// The client's own id, where the upstream got the id under which it knows the state.
    previous: Option<Vec<u8>>,
    /// Reasoning was asked for by the gateway only: its encrypted content is taken out.
    pub(super) hide_encrypted: bool,
    /// The upstream keeps the answer, and what it got for it.
    pub(super) is_kept: bool,
}

/// Members of round 1 that every later snapshot repeats.
#[derive(Debug, Clone, Default)]
pub(super) struct ResponseIdentity {
    pub(super) id: Vec<u8>,
    pub(super) created_at: Vec<u8>,
    pub(super) model: Vec<u8>,
}

impl RequestEcho {
    pub(super) fn of(request: &Request) -> Self {
        let raw = |key| request.present(key).map(|span| request.bytes(span).to_vec());
        Self {
            instructions: raw("instructions"),
            tools: raw("tools"),
            tool_choice: raw("tool_choice"),
            previous: raw("previous_response_id"),
            is_kept: !request::is_stateless(request),
            hide_encrypted: request::is_stateless(request) && !request::includes_encrypted(request),
        }
    }

    /// The members of a snapshot that are the client's own, as JSON.
    pub(super) fn members(&self) -> BTreeMap<String, String> {
        let own = [
            ("instructions", Some(self.instructions.as_deref().unwrap_or(b"null"))),
            ("tools", Some(self.tools.as_deref().unwrap_or(b"[]"))),
            ("tool_choice", self.tool_choice.as_deref()),
            ("previous_response_id", self.previous.as_deref()),
        ];
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        let own = own
            .into_iter()
            .filter_map(|(key, value)| Some((key.to_owned(), text(value?))));
        own.collect()
    }

    /// The edits that put a snapshot into the client's terms.
    pub(super) fn edits(&self, src: &[u8], snapshot: Span, identity: &ResponseIdentity, edits: &mut Edits) {
        let echoes: [(&str, &[u8]); 2] = [
            ("instructions", self.instructions.as_deref().unwrap_or(b"null")),
            ("tools", self.tools.as_deref().unwrap_or(b"[]")),
        ];
        let snapshot = Object::of(src, snapshot);
        for (key, value) in echoes {
            // Only what differs in meaning is touched: upstream may spell the client's own tools with defaults.
            if let Some(own) = snapshot.get(key) {
                edits.replace(own, value.to_vec());
            }
        }
        let kept = [
            ("tool_choice", self.tool_choice.as_deref()),
            ("previous_response_id", self.previous.as_deref()),
            ("id", some(&identity.id)),
            ("created_at", some(&identity.created_at)),
            ("model", some(&identity.model)),
        ];
        for (key, value) in kept {
            if let (Some(value), Some(own)) = (value, snapshot.get(key)) {
                edits.replace(own, value.to_vec());
            }
        }
    }
}

fn some(bytes: &[u8]) -> Option<&[u8]> {
    (!bytes.is_empty()).then_some(bytes)
}

/// The response object of an event. Errors: it has none.
pub(super) fn snapshot_of(src: &[u8], event: &Object<'_>) -> Result<Span, Garbage> {
    event
        .get("response")
        .filter(|span| json::kind(src, *span) == Some(ValueKind::Object))
        .ok_or_else(|| Garbage("the event has no response object".to_owned()))
}
