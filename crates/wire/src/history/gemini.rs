//! The turns of a Gemini history.
//!
//! A client that streams keeps one content per frame and sends them all back, so neighbours of one role are one turn.
//! Signatures, thinking, ids of calls and parts without any member (an SDK makes them of parts that it does not know) are no part of
//! what makes a message the same message.

use super::canon::Canon;
use super::read::Fields;
use super::runs;
use super::turn::Speaker;
use super::turn::Turn;
use crate::json::{self, Span};

/// One turn for each run of contents of one role.
pub(crate) fn turns(src: &[u8], elements: &[Span]) -> Vec<Turn> {
    let mut turns = Vec::new();
    let mut open: Option<OpenTurn> = None;
    for (index, span) in elements.iter().enumerate() {
        let content = Fields::read(src, *span);
        let speaker = match &*content.text("role") {
            "model" => Speaker::Assistant,
            _ => Speaker::User,
        };
        if open.as_ref().is_some_and(|open| open.speaker != speaker) {
            turns.extend(open.take().map(|open| open.close(index)));
        }
        let open = open.get_or_insert_with(|| OpenTurn {
            start: index,
            speaker,
            canon: Canon::new(speaker),
            calls: Vec::new(),
        });
        for part in content.one_or_more("parts") {
            open.part(src, part);
        }
    }
    turns.extend(open.map(|open| open.close(elements.len())));
    turns
}

/// A turn that may go on with the next content.
struct OpenTurn {
    start: usize,
    speaker: Speaker,
    canon: Canon,
    calls: Vec<String>,
}

impl OpenTurn {
    fn part(&mut self, src: &[u8], span: Span) {
        let part = Fields::read(src, span);
        if part.flag("thought") {
            return;
        }
        if let Some(text) = part.span("text").and_then(|span| json::text(src, span)) {
            return self.canon.text(&text);
        }
        for key in ["functionCall", "function_call"] {
            let call = part.object(key);
            if call.span("name").is_some() {
                let id = call.text("id").into_owned();
                // Ids are optional here, and clients leave them out of what they send back (LangChain does).
                self.canon.call("", &call.text("name"), call.raw("args"));
                return self.calls.push(id);
            }
        }
        // Ids of runs are optional too, and a client may leave an empty output out.
        if let Some((what, text)) = runs::canonical(&part) {
            return self.canon.other(&json::quoted(&format!("{what} {text}")));
        }
        for key in ["inlineData", "inline_data"] {
            let data = part.text_of(key, "data");
            if !data.is_empty() {
                // Both alphabets of base64 are one content: the Python SDK writes the one for URLs.
                let data = data.replace('-', "+").replace('_', "/");
                return self.canon.other(&json::quoted(&data));
            }
        }
        for member in json::members(src, span).unwrap_or_default() {
            let signature = ["thoughtSignature", "thought_signature"]
                .iter()
                .any(|key| json::key_is(src, &member, key));
            if !signature && !json::is_null(src, member.value) {
                self.canon.other(member.value.of(src));
            }
        }
    }

    fn close(self, end: usize) -> Turn {
        Turn {
            elements: self.start..end,
            speaker: self.speaker,
            canon: Some(self.canon.finish()),
            calls: self.calls,
            reference: None,
            kept: None,
        }
    }
}
