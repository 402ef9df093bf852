//! A Chat turn gathered from its chunks, or taken from a body.

use std::borrow::Cow;

use crate::format::{Decoded, splice};
use crate::json::{self, Span};
use crate::turn::Gathered;

/// What is known of the running turn.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about one turn")]
pub(super) struct Turn {
    pub(super) started: bool,
    pub(super) message: Gathered,
    pub(super) calls: Vec<CallParts>,
    pub(super) text_open: bool,
    pub(super) text_shown: bool,
    pub(super) stopped: bool,
    pub(super) stop: Option<Decoded>,
    pub(super) usage: Option<Decoded>,
    pub(super) body: Option<Decoded>,
    pub(super) gathered: usize,
}

#[derive(Debug, Default)]
pub(super) struct CallParts {
    pub(super) index: Option<u64>,
    pub(super) id: String,
    pub(super) name: String,
    pub(super) object: Gathered,
    pub(super) arguments_begun: bool,
    /// Its index in what the client sees.
    pub(super) shown: Option<u64>,
}

impl Turn {
    /// The turn's text, as written in JSON.
    pub(super) fn text(&self) -> Cow<'_, [u8]> {
        match self.message.get("content") {
            Some(Gathered::Text(text)) => Cow::Borrowed(text),
            Some(Gathered::Raw(raw)) => {
                let mut escaped = Vec::new();
                json::push_escaped(&mut escaped, &splice::content_text(raw, Span::new(0, raw.len())));
                Cow::Owned(escaped)
            }
            _ => Cow::Borrowed(b""),
        }
    }

    /// Takes in one element of `tool_calls`; tells the call's number and whether it is new.
    pub(super) fn take_call(&mut self, raw: &[u8], element: Span) -> (usize, bool) {
        let index = json::get(raw, element, "index").and_then(|span| json::uint(raw, span));
        let id = json::get_text(raw, element, "id").filter(|id| !id.is_empty());
        let known = match index {
            Some(_) => self.calls.iter().rposition(|call| call.index == index),
            None => self.calls.len().checked_sub(1),
        };
        // Some servers number every call 0 and only change the id.
        let same = |number: &usize| {
            id.as_ref()
                .is_none_or(|id| self.calls[*number].id.is_empty() || self.calls[*number].id == **id)
        };
        let known = known.filter(same);
        let number = known.unwrap_or(self.calls.len());
        if known.is_none() {
            self.calls.push(CallParts {
                index,
                ..CallParts::default()
            });
        }
        let call = &mut self.calls[number];
        if let Some(id) = id {
            call.id = id.into_owned();
        }
        for member in json::members(raw, element).unwrap_or_default() {
            if member.key.of(raw) != b"index" {
                call.object.merge_member(raw, member.key.of(raw), member.value);
            }
        }
        self.gathered += element.len();
        for inner in ["function", "custom"] {
            if let Some(name) = call.object.get(inner).and_then(|inner| inner.get("name")) {
                call.name = json::unescape(name.text()).into_owned();
            }
            if let Some(begun) = call
                .object
                .get(inner)
                .and_then(|inner| inner.get("arguments").or_else(|| inner.get("input")))
            {
                call.arguments_begun |= !begun.text().is_empty();
            }
        }
        (number, known.is_none())
    }
}

impl CallParts {
    pub(super) fn whole(number: usize, object: Gathered) -> Self {
        let text = |value: Option<&Gathered>| {
            value
                .map(|value| json::unescape(value.text()).into_owned())
                .unwrap_or_default()
        };
        let inner = object.get("function").or_else(|| object.get("custom"));
        let name = text(inner.and_then(|inner| inner.get("name")));
        Self {
            index: Some(number as u64),
            id: text(object.get("id")),
            name,
            object,
            arguments_begun: true,
            shown: None,
        }
    }
}
