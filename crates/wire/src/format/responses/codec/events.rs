//! What the events of a Responses stream say of its items, and what its end says of the response.

use std::collections::{HashMap, HashSet, VecDeque};

use bytes::Bytes;

use super::ResponsesCodec;
use crate::format::responses::item::{self, OutputItem};
use crate::format::responses::snapshot::{ResponseIdentity, snapshot_of};
use crate::format::{FramePart, Garbage, UnitKind};
use crate::json::{self, Object, Span, ValueKind};

impl ResponsesCodec {
    pub(super) fn identify(&mut self, src: &[u8], snapshot: Span) {
        if self.identity.id.is_empty() {
            let snapshot = Object::of(src, snapshot);
            let raw = |key| snapshot.get(key).map(|span| span.of(src).to_vec()).unwrap_or_default();
            self.identity = ResponseIdentity {
                id: raw("id"),
                created_at: raw("created_at"),
                model: raw("model"),
            };
            self.id_text = snapshot.text("id").unwrap_or_default().into_owned();
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

    /// Takes items that only the finished response has whole: no event has ended them, or none announced them.
    ///
    /// An item of the response is one of the stream's by its id or the id of its call, or else by its place among those of
    /// its type, since some servers make other ids for the end. Errors: a call ends as another one, or never.
    fn end_items(&mut self, src: &[u8], snapshot: Span, parts: &mut Vec<FramePart>) -> Result<(), Garbage> {
        let output = json::get(src, snapshot, "output").and_then(|span| json::elements(src, span).ok());
        let output = output.unwrap_or_default();
        if output.len() > self.items.len() || self.items.iter().any(|item| !item.done) {
            let owners = self.owners(src, &output);
            for (position, whole) in output.iter().copied().enumerate() {
                let is_reasoning = || json::get_text(src, whole, "type").as_deref() == Some("reasoning");
                let is_before_known = owners.get(position + 1).is_none_or(Option::is_some);
                // It belongs before an item that has its place already, and a provider refuses it elsewhere.
                if owners[position].is_none() && is_before_known && is_reasoning() {
                    continue;
                }
                match owners[position].map(|at| (self.items[at].index, self.items[at].done)) {
                    Some((_, true)) => {}
                    Some((index, false)) => {
                        self.take_whole(index, whole.of(src))?;
                        parts.push(FramePart::UnitEnd { id: index });
                    }
                    None => {
                        let last = self.items.iter().map(|item| item.index).max();
                        let index = last.map_or(Some(0), |last| last.checked_add(1));
                        let index = index.ok_or_else(|| Garbage("the response has too many items".to_owned()))?;
                        parts.extend(self.take_whole(index, whole.of(src))?);
                        parts.push(FramePart::UnitEnd { id: index });
                    }
                }
            }
        }
        Ok(())
    }

    /// Which items of the stream those of a finished response are.
    fn owners(&self, src: &[u8], output: &[Span]) -> Vec<Option<usize>> {
        let text = |span: Span, key| json::get_text(src, span, key).unwrap_or_default().into_owned();
        let mut by_id = HashMap::new();
        for (at, item) in self.items.iter().enumerate() {
            by_id.insert(item.call_id.clone(), at);
            by_id.insert(item.id().into_owned(), at);
        }
        by_id.remove("");
        let mut owners: Vec<Option<usize>> = output
            .iter()
            .map(|span| {
                by_id
                    .remove(&text(*span, "id"))
                    .or_else(|| by_id.remove(&text(*span, "call_id")))
            })
            .collect();
        let mut by_type: HashMap<String, VecDeque<usize>> = HashMap::new();
        let owned: HashSet<usize> = owners.iter().flatten().copied().collect();
        for (at, item) in self.items.iter().enumerate().filter(|(at, _)| !owned.contains(at)) {
            by_type.entry(item.type_name().into_owned()).or_default().push_back(at);
        }
        for (owner, span) in owners.iter_mut().zip(output).filter(|(owner, _)| owner.is_none()) {
            *owner = by_type.get_mut(&text(*span, "type")).and_then(VecDeque::pop_front);
        }
        owners
    }

    /// Takes in a finished response: its last items, its usage and its end. Errors: see [`Self::end_items`].
    pub(super) fn end_of(&mut self, src: &[u8], snapshot: Span, parts: &mut Vec<FramePart>) -> Result<(), Garbage> {
        if self.streaming {
            self.end_items(src, snapshot, parts)?;
        }
        self.seal(src, snapshot);
        self.end = Bytes::copy_from_slice(snapshot.of(src));
        let snapshot = Object::of(src, snapshot);
        if let Some(usage) = snapshot.get("usage").filter(|span| !json::is_null(src, *span)) {
            self.usage.report(usage.of(src));
            parts.push(FramePart::Usage);
        }
        let of_tools = snapshot.get("tool_usage");
        if let Some(usage) = of_tools.filter(|span| json::kind(src, *span) == Some(ValueKind::Object)) {
            self.tool_usage.report(usage.of(src));
        }
        self.state_id = snapshot.text("id").unwrap_or_default().into_owned();
        let completed = snapshot.text("status").is_none_or(|status| status == "completed");
        let calls = || self.items.iter().filter(|item| item.is_named());
        // A call of the client was shown when it began, and is its to judge.
        let is_cut = |item: &OutputItem| item.shown_as.is_none() && !item.done;
        if self.streaming && completed && calls().any(is_cut) {
            return Err(Garbage("a call is not complete at the end of its response".to_owned()));
        }
        parts.push(FramePart::Stop {
            runnable: completed && calls().all(OutputItem::is_complete),
        });
        parts.push(FramePart::End);
        Ok(())
    }

    pub(super) fn event_parts(
        &mut self,
        src: &[u8],
        event: &Object<'_>,
        kind: &str,
    ) -> Result<Vec<FramePart>, Garbage> {
        let index = event.get("output_index").and_then(|span| json::uint(src, span));
        let index = index.and_then(|index| u32::try_from(index).ok());
        // An event may name its item by its id alone.
        let index = index.or_else(|| self.named(event));
        let mut parts = Vec::new();
        match (kind, index) {
            ("response.created" | "response.in_progress" | "response.queued", _) => {
                let snapshot = snapshot_of(src, event)?;
                self.identify(src, snapshot);
                parts.push(FramePart::Start);
            }
            ("response.completed" | "response.incomplete" | "response.failed", _) => {
                let snapshot = snapshot_of(src, event)?;
                self.identify(src, snapshot);
                self.end_of(src, snapshot, &mut parts)?;
            }
            ("error", _) => parts.push(FramePart::Error),
            ("response.output_item.added", Some(index)) => {
                parts.push(self.begin_item(src, event, index)?);
            }
            ("response.output_item.added" | "response.output_item.done", None) => {
                return Err(Garbage(format!("{kind} has no output_index")));
            }
            ("response.output_item.done", Some(index)) => {
                let whole = event.get("item").unwrap_or_default();
                parts.extend(self.take_whole(index, whole.of(src))?);
                parts.push(FramePart::UnitEnd { id: index });
            }
            (_, index) if item::is_of_call(kind) => {
                parts.extend(self.call_bytes(event, kind, index));
            }
            (_, Some(index)) if self.item(index).is_some() => {
                let piece = event.text("delta").unwrap_or_default();
                self.gathered += piece.len();
                parts.push(FramePart::UnitBytes { id: index });
            }
            _ => parts.push(FramePart::Other),
        }
        Ok(parts)
    }

    /// The index of the item whose id an event has.
    fn named(&self, event: &Object<'_>) -> Option<u32> {
        let id = event.text("item_id").filter(|id| !id.is_empty())?;
        let item = self.items.iter().find(|item| item.id() == id);
        item.map(|item| item.index)
    }

    /// Takes arguments of a call. Where `output_index` names no call, `item_id` may. What belongs to neither is dropped:
    /// it may be a hidden call's, no reader can place it, and the finished item has the arguments whole.
    fn call_bytes(&mut self, event: &Object<'_>, kind: &str, index: Option<u32>) -> Option<FramePart> {
        let index = self.named(event).or(index)?;
        let piece = event.text("delta").unwrap_or_default();
        let item = self.item_mut(index).filter(|item| item.kind == UnitKind::Call)?;
        if kind.rsplit('.').next() == Some("delta") {
            item.arguments.push_str(&piece);
        }
        self.gathered += piece.len();
        Some(FramePart::UnitBytes { id: index })
    }

    /// Takes an item that begins. Errors: another one has its index.
    fn begin_item(&mut self, src: &[u8], event: &Object<'_>, index: u32) -> Result<FramePart, Garbage> {
        let raw = event.get("item").unwrap_or_default().of(src);
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
    /// item, whose place for the client was decided.
    fn take_whole(&mut self, index: u32, raw: &[u8]) -> Result<Option<FramePart>, Garbage> {
        self.gathered += raw.len();
        let whole = OutputItem::new(index, raw, true);
        if let Some(item) = self.item_mut(index) {
            if whole.is_named() && (item.kind, &item.name) != (whole.kind, &whole.name) {
                return Err(Garbage(format!(
                    "the item of output_index {index} ends as another call"
                )));
            }
            item.finish(raw);
            self.drop_answered(index);
            return Ok(None);
        }
        let kind = whole.kind;
        self.items.push(whole);
        self.drop_answered(index);
        Ok(Some(FramePart::Unit { id: index, kind }))
    }
}
