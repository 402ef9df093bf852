//! Reading the members that the canonical forms are made of.

use std::borrow::Cow;

use super::canon::Canon;
use crate::json::{self, Member, Span, ValueKind};

/// The members of one object, read by key.
pub(crate) struct Fields<'a> {
    pub(crate) src: &'a [u8],
    members: Vec<Member>,
}

impl<'a> Fields<'a> {
    /// Reads an object; anything else has no fields.
    pub(crate) fn read(src: &'a [u8], span: Span) -> Self {
        Self {
            src,
            members: json::members(src, span).unwrap_or_default(),
        }
    }

    /// The span of a member, unless it is absent or null.
    pub(crate) fn span(&self, key: &str) -> Option<Span> {
        let value = json::member(self.src, &self.members, key)?.value;
        (!json::is_null(self.src, value)).then_some(value)
    }

    /// True if there is no member but this one, or none at all.
    pub(crate) fn is_only(&self, key: &str) -> bool {
        self.members.iter().all(|member| json::key_is(self.src, member, key))
    }

    /// The text of a string member, empty if there is none.
    pub(crate) fn text(&self, key: &str) -> Cow<'a, str> {
        self.span(key)
            .and_then(|span| json::text(self.src, span))
            .unwrap_or_default()
    }

    /// The bytes of a member, empty if there is none.
    pub(crate) fn raw(&self, key: &str) -> &'a [u8] {
        self.span(key).map(|span| span.of(self.src)).unwrap_or_default()
    }

    /// The fields of an object member.
    pub(crate) fn object(&self, key: &str) -> Self {
        match self.span(key) {
            Some(span) => Self::read(self.src, span),
            None => Self {
                src: self.src,
                members: Vec::new(),
            },
        }
    }

    /// The text of a string member of an object member.
    pub(crate) fn text_of(&self, key: &str, inner: &str) -> Cow<'a, str> {
        self.span(key)
            .and_then(|span| json::get_text(self.src, span, inner))
            .unwrap_or_default()
    }

    /// The elements of an array member, empty if there is none.
    pub(crate) fn elements(&self, key: &str) -> Vec<Span> {
        self.span(key)
            .and_then(|span| json::elements(self.src, span).ok())
            .unwrap_or_default()
    }

    /// The elements of a list member, for which one object may stand.
    pub(crate) fn one_or_more(&self, key: &str) -> Vec<Span> {
        self.span(key)
            .map(|span| json::one_or_more(self.src, span))
            .unwrap_or_default()
    }

    /// True if the member is `true`.
    pub(crate) fn flag(&self, key: &str) -> bool {
        self.raw(key) == b"true"
    }
}

/// Feeds a content that is a string or an array of parts, as three of the formats have it: texts and
/// refusals are text, every other part counts by its hash.
pub(crate) fn content(canon: &mut Canon, src: &[u8], span: Span) {
    match json::kind(src, span) {
        Some(ValueKind::String) => canon.text(&json::text(src, span).unwrap_or_default()),
        Some(ValueKind::Array) => {
            for part in json::elements(src, span).unwrap_or_default() {
                self::part(canon, src, part);
            }
        }
        _ => {}
    }
}

/// Feeds one part of a content. Thinking (a part of Mistral's models in Chat) does not count.
pub(crate) fn part(canon: &mut Canon, src: &[u8], span: Span) {
    let fields = Fields::read(src, span);
    match &*fields.text("type") {
        "text" | "input_text" | "output_text" => canon.text(&fields.text("text")),
        "refusal" => canon.text(&fields.text("refusal")),
        "thinking" => {}
        _ => canon.other(span.of(src)),
    }
}

/// Feeds a result whose content is a string or an array of parts.
pub(crate) fn result(canon: &mut Canon, call_id: &str, src: &[u8], content: Option<Span>, is_error: bool) {
    let mut text = String::new();
    let mut others = Vec::new();
    match content.and_then(|span| Some((json::kind(src, span)?, span))) {
        Some((ValueKind::String, span)) => text.push_str(&json::text(src, span).unwrap_or_default()),
        Some((ValueKind::Array, span)) => {
            for part in json::elements(src, span).unwrap_or_default() {
                let fields = Fields::read(src, part);
                match &*fields.text("type") {
                    "text" | "input_text" | "output_text" => text.push_str(&fields.text("text")),
                    _ => others.push(part),
                }
            }
        }
        Some((_, span)) => others.push(span),
        None => {}
    }
    canon.result(call_id, &text, is_error);
    for other in others {
        canon.other(other.of(src));
    }
}
