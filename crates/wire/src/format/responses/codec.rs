//! A Responses answer being rewritten.
//!
//! An item is a unit, told apart by its `output_index`. Events of shown items go out as they came, with the index of
//! the client's view and a running `sequence_number`; snapshots get the ids of round 1 and the client's own words; the
//! end is one terminal event (or the body) with all visible items and the summed usage.

use bytes::Bytes;

use super::item::{self, Item};
use super::snapshot::{Identity, Restore};
use crate::drive::{CallResult, GeneratedFile};
use crate::format::{CallSoFar, Codec, Decoded, Ending, Garbage, Layout, Part};
use crate::frame::{SseEvent, push_event};
use crate::json::{self, Edits, Kind, Span};
use crate::usage::UsageSum;

/// See the module.
#[derive(Debug)]
pub(crate) struct ResponsesCodec {
    restore: Restore,
    streaming: bool,
    identity: Identity,
    id_text: String,
    items: Vec<Item>,
    gathered: usize,
    usage: UsageSum,
    /// The last terminal snapshot, or the body.
    end: Bytes,
    next_sequence: u64,
    next_index: u32,
    visible: Vec<Vec<u8>>,
    shown_calls: Vec<String>,
}

impl ResponsesCodec {
    pub(super) fn new(restore: Restore) -> Self {
        Self {
            restore,
            streaming: false,
            identity: Identity::default(),
            id_text: String::new(),
            items: Vec::new(),
            gathered: 0,
            usage: UsageSum::default(),
            end: Bytes::new(),
            next_sequence: 0,
            next_index: 0,
            visible: Vec::new(),
            shown_calls: Vec::new(),
        }
    }

    fn item(&self, index: u32) -> Option<&Item> {
        self.items.iter().find(|item| item.index == index)
    }

    fn item_mut(&mut self, index: u32) -> Option<&mut Item> {
        self.items.iter_mut().find(|item| item.index == index)
    }

    fn identify(&mut self, src: &[u8], snapshot: Span) {
        if self.identity.id.is_empty() {
            let raw = |key| {
                json::get(src, snapshot, key)
                    .map(|span| span.of(src).to_vec())
                    .unwrap_or_default()
            };
            self.identity = Identity {
                id: raw("id"),
                created_at: raw("created_at"),
            };
            self.id_text = json::get_text(src, snapshot, "id").unwrap_or_default().into_owned();
        }
    }

    /// Takes in a finished response: its usage and its end.
    fn end_of(&mut self, src: &[u8], snapshot: Span, parts: &mut Vec<Part>) {
        if let Some(usage) = json::get(src, snapshot, "usage").filter(|span| !json::is_null(src, *span)) {
            self.usage.report(usage.of(src));
            parts.push(Part::Usage);
        }
        self.end = Bytes::copy_from_slice(snapshot.of(src));
        let completed = json::get_text(src, snapshot, "status").is_none_or(|status| status == "completed");
        let calls = self.items.iter().filter(|item| !item.call_id.is_empty());
        parts.push(Part::Stop {
            runnable: completed && calls.into_iter().all(Item::is_complete),
        });
        parts.push(Part::End);
    }

    fn event_parts(&mut self, src: &[u8], document: Span, kind: &str) -> Result<Vec<Part>, Garbage> {
        let index = json::get(src, document, "output_index").and_then(|span| json::uint(src, span));
        let index = index.and_then(|index| u32::try_from(index).ok());
        let mut parts = Vec::new();
        match (kind, index) {
            ("response.created" | "response.in_progress" | "response.queued", _) => {
                let snapshot = snapshot_of(src, document)?;
                self.identify(src, snapshot);
                parts.push(Part::Start);
            }
            ("response.completed" | "response.incomplete" | "response.failed", _) => {
                let snapshot = snapshot_of(src, document)?;
                self.identify(src, snapshot);
                self.end_of(src, snapshot, &mut parts);
            }
            ("error", _) => parts.push(Part::Error),
            ("response.output_item.added", Some(index)) => {
                let raw = json::get(src, document, "item").unwrap_or_default().of(src);
                if self.item(index).is_some() {
                    return Err(Garbage(format!("output_index {index} is used twice")));
                }
                let item = Item::new(index, raw, false);
                parts.push(Part::Unit {
                    id: index,
                    kind: item.kind,
                });
                self.gathered += raw.len();
                self.items.push(item);
            }
            ("response.output_item.done", Some(index)) => {
                let raw = json::get(src, document, "item").unwrap_or_default().of(src);
                self.gathered += raw.len();
                if let Some(item) = self.item_mut(index) {
                    item.finish(raw);
                } else {
                    let item = Item::new(index, raw, true);
                    parts.push(Part::Unit {
                        id: index,
                        kind: item.kind,
                    });
                    self.items.push(item);
                }
                parts.push(Part::UnitEnd { id: index });
            }
            (_, Some(index)) if self.item(index).is_some() => {
                let piece = json::get_text(src, document, "delta").unwrap_or_default();
                self.gathered += piece.len();
                if matches!(
                    kind,
                    "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta"
                ) && let Some(item) = self.item_mut(index)
                {
                    item.arguments.push_str(&piece);
                }
                parts.push(Part::UnitBytes { id: index });
            }
            _ => parts.push(Part::Other),
        }
        Ok(parts)
    }

    /// Notes that an item is shown, and tells its place in the client's view.
    fn place(&mut self, index: u32) -> Option<u32> {
        let next = self.next_index;
        let item = self.item_mut(index)?;
        if let Some(place) = item.shown_as {
            return Some(place);
        }
        item.shown_as = Some(next);
        let call_id = item.call_id.clone();
        self.next_index += 1;
        if !call_id.is_empty() {
            self.shown_calls.push(call_id);
        }
        Some(next)
    }

    fn keep(&mut self, index: u32) {
        let hide = self.restore.hide_encrypted;
        if let Some(item) = self.item(index) {
            let visible = item.visible(hide);
            self.visible.push(visible);
        }
    }

    /// Writes one event with its running numbers.
    fn send(&mut self, src: &[u8], mut edits: Edits, out: &mut Vec<u8>) {
        let document = Span::new(0, src.len());
        if let Some(number) = json::get(src, document, "sequence_number") {
            edits.replace(number, self.next_sequence.to_string());
        }
        self.next_sequence += 1;
        let name = json::get_text(src, document, "type").unwrap_or_default();
        push_event(out, name.as_bytes(), &edits.apply(src));
    }

    /// The final response object in the client's view.
    fn finished(&self, ending: Ending) -> Vec<u8> {
        let src = &self.end;
        let snapshot = Span::new(0, src.len());
        let mut edits = Edits::new();
        self.restore.edits(src, snapshot, &self.identity, &mut edits);
        let output = [b"[", self.visible.join(&b',').as_slice(), b"]"].concat();
        let usage = self.usage.total();
        let mut set = |key: &str, value: &[u8]| {
            if let Some(own) = json::get(src, snapshot, key) {
                edits.replace(own, value.to_vec());
            }
        };
        set("output", &output);
        if let Some(usage) = &usage {
            set("usage", usage);
        }
        if ending == Ending::Limit {
            set("status", b"\"incomplete\"");
            // The nearest value of the enum (docs/design/wire-formats.md#limit-of-rounds).
            set("incomplete_details", br#"{"reason":"max_messages"}"#);
        }
        edits.apply(src)
    }
}

fn snapshot_of(src: &[u8], document: Span) -> Result<Span, Garbage> {
    json::get(src, document, "response")
        .filter(|span| json::kind(src, *span) == Some(Kind::Object))
        .ok_or_else(|| Garbage("the event has no response object".to_owned()))
}

impl Codec for ResponsesCodec {
    fn begin_round(&mut self) {
        self.usage.close_round();
        self.items.clear();
        self.gathered = 0;
    }

    fn frame(&mut self, event: SseEvent) -> Result<Decoded, Garbage> {
        self.streaming = true;
        let raw = event.data;
        let document = json::document(&raw).map_err(|error| Garbage(error.to_string()))?;
        let kind = json::get_text(&raw, document, "type").unwrap_or_default().into_owned();
        let parts = self.event_parts(&raw, document, &kind)?;
        Ok(Decoded {
            raw,
            parts,
            layout: Layout::None,
        })
    }

    fn body(&mut self, body: Bytes) -> Result<Decoded, Garbage> {
        let document = json::document(&body).map_err(|error| Garbage(error.to_string()))?;
        if json::kind(&body, document) != Some(Kind::Object) {
            return Err(Garbage("a response must be an object".to_owned()));
        }
        self.identify(&body, document);
        let mut parts = vec![Part::Start];
        let output = json::get(&body, document, "output").and_then(|span| json::elements(&body, span).ok());
        for (index, span) in output.unwrap_or_default().into_iter().enumerate() {
            let index = u32::try_from(index).unwrap_or(u32::MAX);
            let item = Item::new(index, span.of(&body), true);
            self.gathered += span.len();
            parts.push(Part::Unit {
                id: index,
                kind: item.kind,
            });
            parts.push(Part::UnitEnd { id: index });
            self.items.push(item);
        }
        self.end_of(&body, document, &mut parts);
        Ok(Decoded {
            raw: body,
            parts,
            layout: Layout::None,
        })
    }

    fn call(&self, unit: u32) -> Option<CallSoFar<'_>> {
        let item = self.item(unit).filter(|item| !item.call_id.is_empty())?;
        Some(CallSoFar {
            name: &item.name,
            named: true,
            id: &item.call_id,
        })
    }

    fn arguments(&self, unit: u32) -> String {
        self.item(unit).map(|item| item.arguments.clone()).unwrap_or_default()
    }

    fn show(&mut self, frame: &Decoded, shown: &[bool], out: &mut Vec<u8>) {
        let src = &frame.raw;
        let document = Span::new(0, src.len());
        let mut edits = Edits::new();
        let mut visible = false;
        for (part, _) in frame.parts.iter().zip(shown).filter(|(_, shown)| **shown) {
            match part {
                Part::Start => {
                    visible = true;
                    if let Ok(snapshot) = snapshot_of(src, document) {
                        self.restore.edits(src, snapshot, &self.identity, &mut edits);
                    }
                }
                Part::Unit { id, .. } | Part::UnitBytes { id } | Part::UnitEnd { id } => {
                    visible = true;
                    let Some(place) = self.place(*id) else { continue };
                    if !self.streaming {
                        if matches!(part, Part::UnitEnd { .. }) {
                            self.keep(*id);
                        }
                        continue;
                    }
                    if let Some(number) = json::get(src, document, "output_index") {
                        edits.replace(number, place.to_string());
                    }
                    if matches!(part, Part::UnitEnd { .. }) {
                        self.keep(*id);
                    }
                    if self.restore.hide_encrypted
                        && let Some(item) = json::get(src, document, "item")
                    {
                        item::hide(src, item, &mut edits);
                    }
                }
                Part::Other | Part::Error => visible = true,
                Part::Usage | Part::Stop { .. } | Part::End => {}
            }
        }
        if visible && self.streaming {
            self.send(src, edits, out);
        }
    }

    fn show_calls(&mut self, _: &[u32], _: &mut Vec<u8>) {}

    fn show_results(&mut self, _: &[CallResult], _: &mut Vec<u8>) {}

    fn turn(&self) -> Vec<Bytes> {
        self.items
            .iter()
            .filter(|item| item.done)
            .map(|item| Bytes::copy_from_slice(&item.raw))
            .collect()
    }

    fn gathered(&self) -> usize {
        self.gathered
    }

    fn finish(&mut self, ending: Ending, _: &[GeneratedFile], out: &mut Vec<u8>) {
        let response = self.finished(ending);
        if !self.streaming {
            out.extend_from_slice(&response);
            return;
        }
        let status = json::get_text(&response, Span::new(0, response.len()), "status").unwrap_or_default();
        let kind = match status.as_ref() {
            "incomplete" => "response.incomplete",
            "failed" => "response.failed",
            _ => "response.completed",
        };
        let mut event = format!(r#"{{"type":"{kind}","sequence_number":0,"response":"#).into_bytes();
        event.extend_from_slice(&response);
        event.push(b'}');
        self.send(&event, Edits::new(), out);
    }

    fn visible(&self) -> Vec<Bytes> {
        self.visible.iter().map(|item| Bytes::copy_from_slice(item)).collect()
    }

    fn response_id(&self) -> &str {
        &self.id_text
    }

    fn shown_calls(&self) -> &[String] {
        &self.shown_calls
    }

    fn usage(&self) -> Option<Vec<u8>> {
        self.usage.total()
    }
}
