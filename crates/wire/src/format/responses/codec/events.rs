//! What the events of a Responses stream say of its items, and what its end says of the response.

use bytes::Bytes;

use super::ResponsesCodec;
use crate::format::responses::item::{self, OutputItem};
use crate::format::responses::snapshot::{ResponseIdentity, snapshot_of};
use crate::format::{FramePart, Garbage, UnitKind};
use crate::json::{self, Span};

impl ResponsesCodec {
    pub(super) fn identify(&mut self, src: &[u8], snapshot: Span) {
        if self.identity.id.is_empty() {
            let raw = |key| {
                json::get(src, snapshot, key)
                    .map(|span| span.of(src).to_vec())
                    .unwrap_or_default()
            };
            self.identity = ResponseIdentity {
                id: raw("id"),
                created_at: raw("created_at"),
            };
            self.id_text = json::get_text(src, snapshot, "id").unwrap_or_default().into_owned();
        }
    }

    /// Takes reasoning whose encrypted content only the finished response has, as LiteLLM's proxy streams it: a provider
    /// refuses calls that come back without it.
    fn seal(&mut self, src: &[u8], snapshot: Span) {
        let output = json::get(src, snapshot, "output").and_then(|span| json::elements(src, span).ok());
        for whole in output.unwrap_or_default() {
            if !item::is_sealed(src, whole) {
                continue;
            }
            let id = json::get_text(src, whole, "id");
            let same = |item: &&mut OutputItem| {
                let own = Span::new(0, item.raw.len());
                item.kind == UnitKind::Paired
                    && !item::is_sealed(&item.raw, own)
                    && json::get_text(&item.raw, own, "id") == id
            };
            let Some(item) = self.items.iter_mut().find(same) else {
                continue;
            };
            item.finish(whole.of(src));
            let index = item.index;
            self.gathered += whole.len();
            self.keep(index);
        }
    }

    /// Takes in a finished response: its last items, its usage and its end.
    pub(super) fn end_of(&mut self, src: &[u8], snapshot: Span, parts: &mut Vec<FramePart>) {
        self.seal(src, snapshot);
        if let Some(usage) = json::get(src, snapshot, "usage").filter(|span| !json::is_null(src, *span)) {
            self.usage.report(usage.of(src));
            parts.push(FramePart::Usage);
        }
        self.end = Bytes::copy_from_slice(snapshot.of(src));
        self.state_id = json::get_text(src, snapshot, "id").unwrap_or_default().into_owned();
        let completed = json::get_text(src, snapshot, "status").is_none_or(|status| status == "completed");
        let calls = self.items.iter().filter(|item| item.is_named());
        parts.push(FramePart::Stop {
            runnable: completed && calls.into_iter().all(OutputItem::is_complete),
        });
        parts.push(FramePart::End);
    }

    pub(super) fn event_parts(&mut self, src: &[u8], document: Span, kind: &str) -> Result<Vec<FramePart>, Garbage> {
        let index = json::get(src, document, "output_index").and_then(|span| json::uint(src, span));
        let index = index.and_then(|index| u32::try_from(index).ok());
        let mut parts = Vec::new();
        match (kind, index) {
            ("response.created" | "response.in_progress" | "response.queued", _) => {
                let snapshot = snapshot_of(src, document)?;
                self.identify(src, snapshot);
                parts.push(FramePart::Start);
            }
            ("response.completed" | "response.incomplete" | "response.failed", _) => {
                let snapshot = snapshot_of(src, document)?;
                self.identify(src, snapshot);
                self.end_of(src, snapshot, &mut parts);
            }
            ("error", _) => parts.push(FramePart::Error),
            ("response.output_item.added", Some(index)) => {
                parts.push(self.begin_item(src, document, index)?);
            }
            ("response.output_item.added" | "response.output_item.done", None) => {
                return Err(Garbage(format!("{kind} has no output_index")));
            }
            ("response.output_item.done", Some(index)) => {
                parts.extend(self.finish_item(src, document, index)?);
                self.drop_answered(index);
                parts.push(FramePart::UnitEnd { id: index });
            }
            (_, index) if item::is_of_call(kind) => {
                parts.extend(self.call_bytes(src, document, (kind, index)));
            }
            (_, Some(index)) if self.item(index).is_some() => {
                let piece = json::get_text(src, document, "delta").unwrap_or_default();
                self.gathered += piece.len();
                parts.push(FramePart::UnitBytes { id: index });
            }
            _ => parts.push(FramePart::Other),
        }
        Ok(parts)
    }

    /// Takes arguments of a call. Where `output_index` names no call, `item_id` may. What belongs to neither is dropped:
    /// it may be a hidden call's, no reader can place it, and the finished item has the arguments whole.
    fn call_bytes(&mut self, src: &[u8], document: Span, (kind, index): (&str, Option<u32>)) -> Option<FramePart> {
        let id = json::get_text(src, document, "item_id").filter(|id| !id.is_empty());
        let of_id = |item: &&OutputItem| id.as_deref().is_some_and(|id| item.id() == id);
        let named = self.items.iter().find(of_id).map(|item| item.index);
        let index = named.or(index)?;
        let piece = json::get_text(src, document, "delta").unwrap_or_default();
        let item = self.item_mut(index).filter(|item| item.kind == UnitKind::Call)?;
        if kind.rsplit('.').next() == Some("delta") {
            item.arguments.push_str(&piece);
        }
        self.gathered += piece.len();
        Some(FramePart::UnitBytes { id: index })
    }

    /// Takes an item that begins. Errors: another one has its index.
    fn begin_item(&mut self, src: &[u8], document: Span, index: u32) -> Result<FramePart, Garbage> {
        let raw = json::get(src, document, "item").unwrap_or_default().of(src);
        if self.item(index).is_some() {
            return Err(Garbage(format!("output_index {index} is used twice")));
        }
        let item = OutputItem::new(index, raw, false);
        let kind = item.kind;
        self.gathered += raw.len();
        self.items.push(item);
        Ok(FramePart::Unit { id: index, kind })
    }

    /// Takes a whole item. Returns its beginning if no event announced it. Errors: a call ends as what began as another
    /// item, whose place in the client's view was decided.
    fn finish_item(&mut self, src: &[u8], document: Span, index: u32) -> Result<Option<FramePart>, Garbage> {
        let raw = json::get(src, document, "item").unwrap_or_default().of(src);
        self.gathered += raw.len();
        let whole = OutputItem::new(index, raw, true);
        if let Some(item) = self.item_mut(index) {
            if whole.is_named() && (item.kind, &item.name) != (whole.kind, &whole.name) {
                return Err(Garbage(format!(
                    "the item of output_index {index} ends as another call"
                )));
            }
            item.finish(raw);
            return Ok(None);
        }
        let kind = whole.kind;
        self.items.push(whole);
        Ok(Some(FramePart::Unit { id: index, kind }))
    }
}
