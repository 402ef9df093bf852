//! The parts of one round.

use crate::format::UnitKind;
use crate::json::{self, Span};

/// A part, whole.
#[derive(Debug, Clone)]
pub(super) struct GeminiUnit {
    pub(super) raw: Vec<u8>,
    pub(super) call: Option<GeminiCall>,
    /// The client has it. A call that it does not have is hidden, since a call's name always comes whole.
    pub(super) shown: bool,
}

#[derive(Debug, Clone)]
pub(super) struct GeminiCall {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: String,
    pub(super) signature: Option<Vec<u8>>,
}

/// See [`GeminiUnit::is_empty`].
pub(super) fn is_empty(src: &[u8], part: Span) -> bool {
    let is_blank =
        |member: &json::Member| json::key_is(src, member, "text") && json::raw_text(src, member.value) == Some(b"");
    json::members(src, part).is_ok_and(|members| members.iter().all(is_blank))
}

impl GeminiUnit {
    pub(super) fn new(raw: Vec<u8>) -> Self {
        let span = Span::new(0, raw.len());
        let call = json::get(&raw, span, "functionCall").map(|call| GeminiCall {
            id: json::get_text(&raw, call, "id").unwrap_or_default().into_owned(),
            name: json::get_text(&raw, call, "name").unwrap_or_default().into_owned(),
            arguments: json::get(&raw, call, "args")
                .map(|args| String::from_utf8_lossy(args.of(&raw)).into_owned())
                .unwrap_or_default(),
            signature: json::get(&raw, span, "thoughtSignature").map(|value| value.of(&raw).to_vec()),
        });
        Self {
            raw,
            call,
            shown: false,
        }
    }

    /// True for a part with nothing in it, or with an empty text alone: the first is refused everywhere, the second by
    /// Vertex AI ("empty text parameter").
    pub(super) fn is_empty(&self) -> bool {
        is_empty(&self.raw, Span::new(0, self.raw.len()))
    }

    pub(super) fn kind(&self) -> UnitKind {
        let span = Span::new(0, self.raw.len());
        let thought = json::get(&self.raw, span, "thought").is_some_and(|value| value.of(&self.raw) == b"true");
        if self.call.is_some() {
            UnitKind::Call
        } else if !thought && json::get(&self.raw, span, "text").is_some() {
            UnitKind::Text
        } else {
            UnitKind::Live
        }
    }
}
