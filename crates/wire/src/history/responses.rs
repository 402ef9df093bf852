//! The turns of a Responses history.
//!
//! An answer is several items: neighbours that the model made are one turn. What the upstream keeps (a response by its
//! id, a conversation) precedes them as a turn without elements, so that two conversations that go on from
//! different states are different; a bare string is one message of the user.

use super::canon::Canon;
use super::read::{self, Fields};
use super::turn::Speaker;
use super::turn::{Turn, UpstreamHistory};
use crate::format::responses::{id_member, is_call, is_output, shell};
use crate::json::{self, Span, ValueKind};
use crate::request::Request;

/// The parts before the items of a request: the state that it continues, and an input that is a bare string.
pub(crate) fn leading(request: &Request) -> Vec<Turn> {
    let src = request.raw();
    let mut turns = Vec::new();
    if let Some(response) = request.present("previous_response_id") {
        let id = json::text(src, response).unwrap_or_default().into_owned();
        turns.push(kept(request, response, Some(id)));
    } else if let Some(conversation) = request.present("conversation") {
        turns.push(kept(request, conversation, None));
    }
    if let Some(text) = request.present("input").and_then(|span| json::text(src, span)) {
        let mut canon = Canon::new(Speaker::User);
        canon.text(&text);
        turns.push(Turn {
            elements: 0..0,
            speaker: Speaker::User,
            canon: Some(canon.finish()),
            calls: Vec::new(),
            reference: None,
            kept: None,
        });
    }
    turns
}

/// The turns that the upstream keeps, distinguished by the value that names them.
fn kept(request: &Request, name: Span, response: Option<String>) -> Turn {
    let src = request.raw();
    let mut canon = Canon::new(Speaker::Assistant);
    canon.other(name.of(src));
    let elements = request.conversation();
    let answered = elements
        .iter()
        .map(|span| Fields::read(src, *span))
        .filter(|item| is_output(&item.text("type")))
        .map(|item| item.text(id_member(&item.text("type"))).into_owned());
    Turn {
        elements: 0..0,
        speaker: Speaker::Assistant,
        canon: Some(canon.finish()),
        calls: answered.collect(),
        reference: None,
        kept: Some(UpstreamHistory { response }),
    }
}

/// The turns of a list of items.
pub(crate) fn turns(src: &[u8], elements: &[Span]) -> Vec<Turn> {
    let mut turns: Vec<Turn> = Vec::new();
    let mut answer: Option<OpenAnswer> = None;
    for (index, span) in elements.iter().enumerate() {
        let item = Fields::read(src, *span);
        let kind = item.text("type");
        if shell::is_own_item(&kind, &item.text("call_id")) {
            // A run of Knack that was shown: part of the answer, its result too.
            let answer = answer.get_or_insert_with(|| OpenAnswer::new(index));
            if kind == "shell_call" {
                answer.canon.call(&item.text("call_id"), "shell", b"");
            }
            continue;
        }
        let single = match (&*kind, &*item.text("role")) {
            ("" | "message", "system" | "developer") => Turn::system(index),
            ("" | "message", "assistant") => {
                answer
                    .get_or_insert_with(|| OpenAnswer::new(index))
                    .item(src, *span, &item, &kind);
                continue;
            }
            ("" | "message", _) => {
                let mut canon = Canon::new(Speaker::User);
                if let Some(content) = item.span("content") {
                    read::content(&mut canon, src, content);
                }
                one(index, Speaker::User, canon)
            }
            (kind, _) if is_output(kind) => {
                let mut canon = Canon::new(Speaker::Tool);
                let said = item.span("output").or_else(|| item.span("approve"));
                read::result(&mut canon, &item.text(id_member(kind)), src, said, false);
                one(index, Speaker::Tool, canon)
            }
            _ => {
                answer
                    .get_or_insert_with(|| OpenAnswer::new(index))
                    .item(src, *span, &item, &kind);
                continue;
            }
        };
        turns.extend(answer.take().map(|answer| answer.close(index)));
        turns.push(single);
    }
    turns.extend(answer.map(|answer| answer.close(elements.len())));
    turns
}

fn one(index: usize, speaker: Speaker, canon: Canon) -> Turn {
    Turn {
        elements: index..index + 1,
        speaker,
        canon: Some(canon.finish()),
        calls: Vec::new(),
        reference: None,
        kept: None,
    }
}

/// The type of an item that stands for one that the upstream keeps. The Vercel AI SDK sends answers so.
const REFERENCE: &str = "item_reference";

/// Items of one answer.
struct OpenAnswer {
    start: usize,
    canon: Canon,
    calls: Vec<String>,
    reference: Option<String>,
}

impl OpenAnswer {
    fn new(start: usize) -> Self {
        Self {
            start,
            canon: Canon::new(Speaker::Assistant),
            calls: Vec::new(),
            reference: None,
        }
    }

    fn item(&mut self, src: &[u8], span: Span, item: &Fields<'_>, kind: &str) {
        let arguments = match kind {
            "reasoning" => return,
            "" | "message" => {
                if let Some(content) = item.span("content") {
                    read::content(&mut self.canon, src, content);
                }
                return;
            }
            REFERENCE => {
                self.reference = Some(item.text("id").into_owned());
                return self.canon.other(span.of(src));
            }
            "function_call" => item.text("arguments"),
            "custom_tool_call" => item.text("input"),
            _ => {
                let id = item.text(id_member(kind));
                if is_call(kind) && !id.is_empty() {
                    self.calls.push(id.into_owned());
                }
                return self.canon.other(span.of(src));
            }
        };
        let id = item.text("call_id").into_owned();
        self.canon.call(&id, &item.text("name"), arguments.as_bytes());
        self.calls.push(id);
    }

    fn close(self, end: usize) -> Turn {
        Turn {
            elements: self.start..end,
            speaker: Speaker::Assistant,
            canon: Some(self.canon.finish()),
            calls: self.calls,
            reference: self.reference,
            kept: None,
        }
    }
}

/// The edits that go on from what the upstream really has: the id of the last round in place of the one that was shown,
/// and Knack's results that it still waits for before the client's own.
pub(crate) fn go_on(request: &Request, state: &str, open: &[Vec<u8>], edits: &mut json::Edits) {
    let src = request.raw();
    let previous = request.present("previous_response_id");
    let other = |own: &Span| json::text(src, *own).is_none_or(|id| id != state);
    if let Some(own) = previous.filter(|own| !state.is_empty() && other(own)) {
        edits.replace(own, json::quoted(state));
    }
    let list = request
        .present("input")
        .filter(|span| json::kind(src, *span) == Some(ValueKind::Array));
    if let Some(list) = list.filter(|_| !open.is_empty()) {
        let mut items = open.join(&b',');
        if !request.conversation().is_empty() {
            items.push(b',');
        }
        edits.insert(list.start + 1, items);
    }
}
