//! The layout of a Chat chunk or body.

use crate::format::{FramePart, Garbage};
use crate::json::{self, Member, Span, ValueKind};

/// Notes on one chunk or body. `pieces` runs parallel to the parts of the frame.
#[derive(Debug, Clone, Default)]
pub(crate) struct ChatLayout {
    pub(super) top: Vec<Member>,
    pub(super) choice: Option<Choice>,
    pub(super) pieces: Vec<PartSource>,
}

/// The first element of `choices`.
#[derive(Debug, Clone)]
pub(super) struct Choice {
    /// `delta` of a chunk, `message` of a body.
    pub(super) message: Option<Span>,
    pub(super) members: Vec<Member>,
    pub(super) finish: Option<Span>,
    /// The log probabilities of the choice's text, unless null.
    pub(super) logprobs: Option<Span>,
    /// The member of that name where it is null.
    pub(super) no_logprobs: Option<Span>,
    pub(super) usage: Option<Span>,
    /// Whether the frame itself is the message: some servers answer without `choices`.
    pub(super) at_root: bool,
}

/// The source of a part in its frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PartSource {
    /// `role` and members without content.
    Head,
    /// A member of the delta or message, by its index.
    Member(usize),
    /// An element of `tool_calls`: number of the call in the turn, and its span.
    Call(usize, Span),
    /// The whole frame.
    Whole,
    /// Never shown by itself: stop, usage, end.
    Hidden,
}

impl ChatLayout {
    /// Reads the outline of a frame. `inner` is `delta` or `message`.
    pub(super) fn read(raw: &[u8], inner: &str) -> Result<Self, Garbage> {
        let top = json::object(raw).map_err(|error| Garbage(error.to_string()))?;
        let first = json::member(raw, &top, "choices")
            .and_then(|member| json::elements(raw, member.value).ok()?.first().copied());
        let choice = first.and_then(|span| {
            let list = json::members(raw, span).ok()?;
            let message = json::member(raw, &list, inner).map(|member| member.value);
            let message = message.filter(|span| json::kind(raw, *span) == Some(ValueKind::Object));
            let members = message
                .and_then(|span| json::members(raw, span).ok())
                .unwrap_or_default();
            let finish = json::member(raw, &list, "finish_reason").map(|member| member.value);
            let logprobs = json::member(raw, &list, "logprobs").map(|member| member.value);
            Some(Choice {
                message,
                members,
                finish,
                logprobs: logprobs.filter(|span| !json::is_null(raw, *span)),
                no_logprobs: logprobs.filter(|span| json::is_null(raw, *span)),
                usage: json::member(raw, &list, "usage").map(|member| member.value),
                at_root: false,
            })
        });
        let choice = choice.or_else(|| Self::at_root(raw, &top).filter(|_| inner == "message"));
        Ok(Self {
            top,
            choice,
            pieces: Vec::with_capacity(4),
        })
    }

    /// A body whose calls are at its root, where a choice would have them
    /// (docs/design/dialects.md#calls-at-the-root-of-a-body).
    fn at_root(raw: &[u8], top: &[Member]) -> Option<Choice> {
        let calls = json::member(raw, top, "tool_calls")?;
        let any = !json::elements(raw, calls.value).ok()?.is_empty();
        any.then(|| Choice {
            message: json::document(raw).ok(),
            members: top.to_vec(),
            finish: json::member(raw, top, "finish_reason").map(|member| member.value),
            logprobs: None,
            no_logprobs: None,
            usage: None,
            at_root: true,
        })
    }

    /// Top-level value.
    pub(super) fn value(&self, raw: &[u8], key: &str) -> Option<Span> {
        json::member(raw, &self.top, key).map(|member| member.value)
    }

    /// The value of `usage` unless absent or null.
    pub(super) fn usage(&self, raw: &[u8]) -> Option<Span> {
        self.value(raw, "usage")
            .filter(|span| json::kind(raw, *span) == Some(ValueKind::Object))
    }

    /// Where else usage is: Groq's streams have it in `x_groq` of the chunk that ends the choice, Moonshot's in that choice.
    pub(super) fn usage_within(&self, raw: &[u8]) -> impl Iterator<Item = Span> {
        let of_groq = self.value(raw, "x_groq").and_then(|groq| json::get(raw, groq, "usage"));
        let of_choice = self.choice.as_ref().and_then(|choice| choice.usage);
        let found = [of_groq, of_choice].into_iter().flatten();
        found.filter(|span| json::kind(raw, *span) == Some(ValueKind::Object))
    }

    /// The finish reason unless absent or null.
    pub(super) fn reason<'r>(&self, raw: &'r [u8]) -> Option<std::borrow::Cow<'r, str>> {
        json::text(raw, self.choice.as_ref()?.finish?)
    }

    /// Appends a part and its piece.
    pub(super) fn push(&mut self, parts: &mut Vec<FramePart>, part: FramePart, piece: PartSource) {
        parts.push(part);
        self.pieces.push(piece);
    }
}

impl Choice {
    /// What is between the brackets of a list of log probabilities: of the `content`, or the `refusal`.
    pub(super) fn logprobs_of<'r>(&self, raw: &'r [u8], key: &str) -> &'r [u8] {
        let list = self.logprobs.and_then(|span| json::get(raw, span, key));
        let list = list.filter(|span| json::kind(raw, *span) == Some(ValueKind::Array));
        list.map(|span| between(raw, span)).unwrap_or_default()
    }

    /// The members of a chunk that have text of the answer, to which `logprobs` belongs.
    pub(super) fn texts<'c>(&'c self, raw: &'c [u8]) -> impl Iterator<Item = (usize, &'c Member)> {
        let members = self.members.iter().enumerate();
        members.filter(|(_, member)| matches!(member.key.of(raw), b"content" | b"refusal") && !blank(raw, member.value))
    }
}

/// What is between the brackets of a list.
pub(super) fn between(raw: &[u8], list: Span) -> &[u8] {
    Span::new(list.start + 1, list.end.saturating_sub(1))
        .of(raw)
        .trim_ascii()
}

/// True for values that carry nothing: null, `""`, `[]`.
pub(super) fn blank(raw: &[u8], span: Span) -> bool {
    matches!(span.of(raw), b"null" | b"\"\"" | b"[]")
}
