//! A Chat turn gathered from its chunks, or taken from a body.

use std::borrow::Cow;

use super::earlier::push_elements;
use crate::format::chat::layout::Choice;
use crate::format::{DecodedFrame, Garbage, splice};
use crate::json::{self, Span, ValueKind};
use crate::stored::MAX_MEMBERS_BYTES;
use crate::turn::DeltaValue;

/// Most calls of one turn: each piece of a call is compared with all of them. A model makes some ten.
const CALLS_MAX: usize = 1_024;

/// The running turn, as far as it has come.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about one turn")]
pub(super) struct ChatTurn {
    pub(super) started: bool,
    pub(super) message: DeltaValue,
    pub(super) calls: Vec<CallParts>,
    pub(super) text_open: bool,
    pub(super) text_shown: bool,
    pub(super) stopped: bool,
    pub(super) stop: Option<DecodedFrame>,
    pub(super) usage: Option<DecodedFrame>,
    pub(super) body: Option<DecodedFrame>,
    pub(super) gathered: usize,
    /// The log probabilities in the chunks of a stream, for what is read of the answer later.
    pub(super) logprobs: TurnLogprobs,
}

/// The log probabilities of a turn: elements of their lists, joined by commas.
#[derive(Debug, Default)]
pub(super) struct TurnLogprobs {
    pub(super) content: Vec<u8>,
    pub(super) refusal: Vec<u8>,
    /// There are more than can be kept, and none are.
    pub(super) too_many: bool,
}

#[derive(Debug, Default)]
pub(super) struct CallParts {
    pub(super) index: Option<u64>,
    id: String,
    /// Replaces an id that the server left out.
    made_up: String,
    pub(super) name: String,
    pub(super) object: DeltaValue,
    pub(super) arguments_begun: bool,
    /// Its index in what the client sees.
    pub(super) shown: Option<u64>,
}

impl TurnLogprobs {
    /// Takes those of a chunk, as far as what is remembered of an answer has room for them.
    pub(super) fn take(&mut self, raw: &[u8], choice: &Choice) {
        let (content, refusal) = (choice.logprobs_of(raw, "content"), choice.logprobs_of(raw, "refusal"));
        let bytes = [&*self.content, &*self.refusal, content, refusal].map(<[u8]>::len);
        if self.too_many || bytes.iter().sum::<usize>() > MAX_MEMBERS_BYTES {
            *self = Self {
                too_many: true,
                ..Self::default()
            };
            return;
        }
        push_elements(&mut self.content, content);
        push_elements(&mut self.refusal, refusal);
    }
}

impl ChatTurn {
    /// The turn's text, as written in JSON.
    pub(super) fn text(&self) -> Cow<'_, [u8]> {
        match self.message.get("content") {
            Some(DeltaValue::Text(text)) => Cow::Borrowed(text),
            // Parts of a stream, in which texts go on.
            Some(DeltaValue::List(parts)) => {
                let texts = parts.iter().filter_map(|(_, part)| part.get("text"));
                Cow::Owned(texts.flat_map(|text| text.text().to_vec()).collect())
            }
            Some(DeltaValue::Raw(raw)) => {
                let mut escaped = Vec::new();
                json::push_escaped(&mut escaped, &splice::content_text(raw, Span::new(0, raw.len())));
                Cow::Owned(escaped)
            }
            _ => Cow::Borrowed(b""),
        }
    }

    /// Whether it has a text that the client does not see.
    pub(super) fn drops_text(&self) -> bool {
        !self.text_shown && !self.text().is_empty()
    }

    /// Adds a piece of the content. Mistral's models write a list of parts while they think or refer to something, and a
    /// string otherwise; both go on.
    pub(super) fn take_content(&mut self, raw: &[u8], content: Span) {
        let is_list = json::kind(raw, content) == Some(ValueKind::Array);
        match self.message.get("content") {
            Some(DeltaValue::List(_)) => {}
            Some(DeltaValue::Text(text)) if is_list => {
                let begun = if text.is_empty() {
                    Vec::new()
                } else {
                    vec![(0, text_part(text))]
                };
                self.message.set("content", DeltaValue::List(begun));
            }
            _ if is_list => self.message.set("content", DeltaValue::List(Vec::new())),
            _ => return self.message.merge_member(raw, b"content", content),
        }
        let Some(DeltaValue::List(parts)) = self.message.get_mut("content") else {
            return;
        };
        match json::raw_text(raw, content) {
            Some(b"") => {}
            Some(text) => add_part(parts, text_part(text)),
            None => parts_of(raw, content)
                .into_iter()
                .for_each(|part| add_part(parts, part)),
        }
    }

    /// Adds one element of `tool_calls`; returns the call's number and whether it is new.
    pub(super) fn take_call(&mut self, raw: &[u8], element: Span) -> Result<(usize, bool), Garbage> {
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
        // A piece without a name begins no call: it goes on with the one of its id. Shown as a call of its own, it would
        // tell the client what a hidden call says.
        let known = match known {
            None if is_piece(raw, element) => Some(self.of_id(id.as_deref(), index)?),
            known => known,
        };
        let number = known.unwrap_or(self.calls.len());
        if number >= CALLS_MAX {
            return Err(Garbage(format!("it has more than {CALLS_MAX} calls")));
        }
        if known.is_none() {
            self.calls.push(CallParts {
                index,
                made_up: made_up(number),
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
        if let Some(inner) = call.inner() {
            let name = inner.get("name").map(|name| json::unescape(name.text()).into_owned());
            let begun = inner
                .get("arguments")
                .or_else(|| inner.get("input"))
                .is_some_and(|begun| !matches!(begun, DeltaValue::Text(text) if text.is_empty()));
            call.arguments_begun |= begun;
            if let Some(name) = name {
                call.name = name;
            }
        }
        Ok((number, known.is_none()))
    }

    /// The newest call with this id. Errors: there is none, so the piece belongs to no call.
    fn of_id(&self, id: Option<&str>, index: Option<u64>) -> Result<usize, Garbage> {
        let known = id.and_then(|id| self.calls.iter().rposition(|call| call.id == id));
        known.ok_or_else(|| {
            let index = index.map_or_else(|| "none".to_owned(), |index| index.to_string());
            Garbage(format!(
                "a piece of a tool call has the index {index}, which no call of the turn has"
            ))
        })
    }
}

impl CallParts {
    pub(super) fn whole(number: usize, object: DeltaValue) -> Self {
        let text = |value: Option<&DeltaValue>| {
            value
                .map(|value| json::unescape(value.text()).into_owned())
                .unwrap_or_default()
        };
        let name = text(inner_of(&object).and_then(|inner| inner.get("name")));
        Self {
            index: Some(number as u64),
            id: text(object.get("id")),
            made_up: made_up(number),
            name,
            object,
            arguments_begun: true,
            shown: None,
        }
    }

    /// The call's id.
    pub(super) fn id(&self) -> &str {
        if self.id.is_empty() { &self.made_up } else { &self.id }
    }

    /// The object that has name and arguments.
    fn inner(&self) -> Option<&DeltaValue> {
        inner_of(&self.object)
    }

    /// The arguments as JSON text, however they were written.
    pub(super) fn arguments(&self) -> String {
        match self.inner().and_then(|inner| inner.get("arguments")) {
            Some(DeltaValue::Text(text)) => json::unescape(text).into_owned(),
            Some(other) => json_of(other),
            None => String::new(),
        }
    }

    /// Whether the call has the format's own shape.
    pub(super) fn is_standard(&self) -> bool {
        let shaped = match self.object.get("function") {
            Some(inner) => matches!(inner.get("arguments"), None | Some(DeltaValue::Text(_))),
            None => self.object.get("name").is_none(),
        };
        shaped && !self.id.is_empty()
    }

    /// The call in the format's own shape, which every server takes back: name and arguments below `function`, the latter as text.
    pub(super) fn standard(&self) -> DeltaValue {
        if self.is_standard() {
            return self.object.clone();
        }
        let mut arguments = Vec::new();
        json::push_escaped(&mut arguments, &self.arguments());
        let mut name = Vec::new();
        json::push_escaped(&mut name, &self.name);
        let mut function = DeltaValue::default();
        function.set("name", DeltaValue::Text(name));
        function.set("arguments", DeltaValue::Text(arguments));
        let mut id = Vec::new();
        json::push_escaped(&mut id, self.id());
        if self.object.get("custom").is_some() {
            let mut call = self.object.clone();
            call.set("id", DeltaValue::Text(id));
            return call;
        }
        let mut call = DeltaValue::default();
        call.set("id", DeltaValue::Text(id));
        if let DeltaValue::Object(members) = &self.object {
            for (key, value) in members {
                if !matches!(key.as_slice(), b"id" | b"name" | b"arguments" | b"function") {
                    call.set(&String::from_utf8_lossy(key), value.clone());
                }
            }
        }
        call.set("type", DeltaValue::Text(b"function".to_vec()));
        call.set("function", function);
        call
    }
}

fn made_up(number: usize) -> String {
    format!("call_{}", number + 1)
}

/// Where a call has its name and arguments: below `function` or `custom`, or, from servers that write calls flat, beside the id.
fn inner_of(object: &DeltaValue) -> Option<&DeltaValue> {
    object
        .get("function")
        .or_else(|| object.get("custom"))
        .or_else(|| object.get("name").map(|_| object))
}

fn json_of(value: &DeltaValue) -> String {
    let mut text = Vec::new();
    value.write(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// Whether an element of `tool_calls` has arguments of a call and does not name it. An id alone may come before the name.
fn is_piece(raw: &[u8], element: Span) -> bool {
    let inner = ["function", "custom"]
        .iter()
        .find_map(|key| json::get(raw, element, key));
    let Some(inner) = inner else { return false };
    let says = |key| json::get(raw, inner, key).is_some_and(|span| !matches!(span.of(raw), b"null" | b"\"\""));
    (says("arguments") || says("input")) && !says("name")
}

/// A text as a part of a content.
fn text_part(text: &[u8]) -> DeltaValue {
    let mut part = DeltaValue::default();
    part.set("type", DeltaValue::Text(b"text".to_vec()));
    part.set("text", DeltaValue::Text(text.to_vec()));
    part
}

/// The parts of a content, or of the thinking in it.
fn parts_of(raw: &[u8], list: Span) -> Vec<DeltaValue> {
    let elements = json::elements(raw, list).unwrap_or_default();
    let parts = elements.into_iter().map(|element| {
        let mut part = DeltaValue::new(raw, element);
        if let Some(thinking) = json::get(raw, element, "thinking")
            && json::kind(raw, thinking) == Some(ValueKind::Array)
        {
            let inner = parts_of(raw, thinking).into_iter().map(|part| (0, part)).collect();
            part.set("thinking", DeltaValue::List(inner));
        }
        part
    });
    parts.collect()
}

/// Adds a part: a text or a thinking goes on in the next one of its kind, any other is a part of its own.
fn add_part(parts: &mut Vec<(u64, DeltaValue)>, part: DeltaValue) {
    let kind = |part: &DeltaValue| part.get("type").map(|kind| kind.text().to_vec());
    let last = parts.last_mut().filter(|(_, last)| kind(last) == kind(&part));
    if let Some((_, last)) = last {
        if let (Some(DeltaValue::Text(text)), Some(DeltaValue::Text(more))) = (last.get_mut("text"), part.get("text")) {
            return text.extend_from_slice(more);
        }
        if let (Some(DeltaValue::List(own)), Some(DeltaValue::List(more))) =
            (last.get_mut("thinking"), part.get("thinking"))
        {
            return more.iter().for_each(|(_, part)| add_part(own, part.clone()));
        }
    }
    parts.push((0, part));
}
