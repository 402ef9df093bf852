//! A Responses answer being rewritten.
//!
//! An item is a unit, identified by its `output_index`. Events of shown items go out as they came, with the index of
//! the client's order and a running `sequence_number`; snapshots get the ids of round 1 and the client's own texts; the
//! end is one terminal event (or the body) with all visible items and the summed usage.

mod events;

use std::collections::BTreeMap;

use bytes::Bytes;

use super::citations::Citations;
use super::item::{self, OutputItem};
use super::shell;
use super::snapshot::{RequestEcho, ResponseIdentity, snapshot_of};
use crate::drive::{CallResult, GeneratedFile};
use crate::format::run_ids::RunIds;
use crate::format::{CallSoFar, Codec, DecodedFrame, Ending, FramePart, Garbage, Layout, UnitKind};
use crate::frame::{SseEvent, push_event};
use crate::json::{self, Edits, Object, Span, ValueKind};
use crate::shown_run::OWN_CALL;
use crate::stored::StoredForm;
use crate::usage::UsageSum;

/// See the module.
#[derive(Debug)]
pub(crate) struct ResponsesCodec {
    restore: RequestEcho,
    streaming: bool,
    identity: ResponseIdentity,
    id_text: String,
    /// The running round's own id.
    state_id: String,
    /// The ids of the rounds before.
    rounds: Vec<String>,
    /// Items of the rounds before that were not shown.
    hidden: Vec<String>,
    items: Vec<OutputItem>,
    gathered: usize,
    usage: UsageSum,
    /// What hosted tools used.
    tool_usage: UsageSum,
    /// The last terminal snapshot, or the body.
    end: Bytes,
    next_sequence: u64,
    next_index: u32,
    /// Shown items by their index as the client sees it.
    visible: BTreeMap<u32, Vec<u8>>,
    shown_calls: Vec<String>,
    /// The tool whose runs are shown as those of a shell.
    run_tool: Option<String>,
    /// The id of the container that they are shown in.
    container: Option<String>,
    /// Files that runs put into it.
    citations: Citations,
    runs: RunIds,
}

impl ResponsesCodec {
    pub(super) fn new(restore: RequestEcho, run_tool: Option<String>, container: Option<String>) -> Self {
        Self {
            restore,
            run_tool,
            container,
            citations: Citations::default(),
            runs: RunIds::default(),
            streaming: false,
            identity: ResponseIdentity::default(),
            id_text: String::new(),
            state_id: String::new(),
            rounds: Vec::new(),
            hidden: Vec::new(),
            items: Vec::new(),
            gathered: 0,
            usage: UsageSum::default(),
            tool_usage: UsageSum::default(),
            end: Bytes::new(),
            next_sequence: 0,
            next_index: 0,
            visible: BTreeMap::new(),
            shown_calls: Vec::new(),
        }
    }

    fn item(&self, index: u32) -> Option<&OutputItem> {
        self.items.iter().find(|item| item.index == index)
    }

    fn item_mut(&mut self, index: u32) -> Option<&mut OutputItem> {
        self.items.iter_mut().find(|item| item.index == index)
    }

    /// The client does not answer a call that the upstream has answered by this item.
    fn drop_answered(&mut self, index: u32) {
        let answers = self.item(index).map(|item| item.answers.clone()).unwrap_or_default();
        if !answers.is_empty() {
            self.shown_calls.retain(|id| *id != answers);
        }
    }

    /// Whether the upstream has answered this call in the same response, as it does those of a hosted shell.
    fn has_answer(&self, call_id: &str) -> bool {
        self.items
            .iter()
            .any(|item| !item.answers.is_empty() && item.answers == call_id)
    }

    /// Records that an item is shown, and returns its index as the client sees it.
    fn mark_shown(&mut self, index: u32) -> Option<u32> {
        let next = self.next_index;
        let item = self.item_mut(index)?;
        if let Some(shown_index) = item.shown_as {
            return Some(shown_index);
        }
        item.shown_as = Some(next);
        let call_id = item.call_id.clone();
        self.next_index += 1;
        if !call_id.is_empty() && !self.has_answer(&call_id) {
            self.shown_calls.push(call_id);
        }
        Some(next)
    }

    fn keep(&mut self, index: u32) {
        if let Some(container) = &self.container
            && let Some(item) = self.items.iter().find(|item| item.index == index)
        {
            self.citations.cite_item(container, index, &item.raw);
        }
        if let Some(shown_index) = self.item(index).and_then(|item| item.shown_as) {
            self.visible.insert(shown_index, self.as_shown(index));
        }
    }

    /// An item as the client gets it.
    fn as_shown(&self, index: u32) -> Vec<u8> {
        let hide = self.restore.hide_encrypted;
        let item = self.item(index).map(|item| item.visible(hide)).unwrap_or_default();
        let mut edits = Edits::new();
        self.citations
            .edit_item(index, &item, Span::new(0, item.len()), &mut edits);
        edits.apply(&item)
    }

    /// Cites files of runs in an event of a stream: before the text ends, in its part, and in its item.
    fn cite(&mut self, (src, id): (&[u8], u32), shown_index: u32, edits: &mut Edits, out: &mut Vec<u8>) {
        let Some(container) = self.container.as_deref() else {
            return;
        };
        let document = Span::new(0, src.len());
        let part = json::get(src, document, "content_index").and_then(|span| json::uint(src, span));
        let part = part.and_then(|part| usize::try_from(part).ok());
        let text = |key| json::get_text(src, document, key).unwrap_or_default();
        match (&*text("type"), part) {
            ("response.output_text.annotation.added", Some(part)) => self.citations.count(id, part),
            ("response.output_text.done", Some(part)) => {
                let (first, annotations) = self.citations.cite(container, (id, part), &text("text"));
                let item_id = json::quoted(&text("item_id"));
                for (at, annotation) in annotations.into_iter().enumerate() {
                    let at = first + at;
                    let head = br#"{"type":"response.output_text.annotation.added","sequence_number":0,"item_id":"#;
                    let rest = format!(
                        r#","output_index":{shown_index},"content_index":{part},"annotation_index":{at},"annotation":"#
                    );
                    let event = [&head[..], &item_id, rest.as_bytes(), &annotation, b"}"].concat();
                    self.send(&event, Edits::new(), out);
                }
            }
            ("response.content_part.done", Some(part)) => {
                if let Some(span) = json::get(src, document, "part") {
                    self.citations.edit_part((id, part), src, span, edits);
                }
            }
            ("response.output_item.done", _) => {
                if let Some(span) = json::get(src, document, "item") {
                    self.citations.cite_item(container, id, span.of(src));
                    self.citations.edit_item(id, src, span, edits);
                }
            }
            _ => {}
        }
    }

    /// Items of the running round that were not shown: calls by their call ids, which their results name too.
    fn unseen(&self) -> impl Iterator<Item = String> {
        let items = self.items.iter().filter(|item| item.shown_as.is_none());
        let id = |item: &OutputItem| {
            let calls = [&item.call_id, &item.answers].into_iter().find(|id| !id.is_empty());
            calls.cloned().unwrap_or_else(|| item.id().into_owned())
        };
        items.map(id).filter(|id| !id.is_empty())
    }

    /// Shows items that came with the end of the response, by the events that were left out.
    fn show_late(&mut self, frame: &DecodedFrame, shown: &[bool], out: &mut Vec<u8>) {
        for (part, _) in frame.parts.iter().zip(shown).filter(|(_, shown)| **shown) {
            let (kind, id) = match part {
                FramePart::Unit { id, .. } => ("response.output_item.added", *id),
                FramePart::UnitEnd { id } => ("response.output_item.done", *id),
                _ => continue,
            };
            let Some(shown_index) = self.mark_shown(id) else {
                continue;
            };
            if matches!(part, FramePart::UnitEnd { .. }) {
                self.keep(id);
            }
            let item = self.as_shown(id);
            let head = format!(r#"{{"type":"{kind}","sequence_number":0,"output_index":{shown_index},"item":"#);
            self.send(&[head.as_bytes(), &item, b"}"].concat(), Edits::new(), out);
        }
    }

    /// Shows an item that Knack adds: its events in order, with its index as the client sees it.
    fn show_own(&mut self, item: Vec<u8>, events: &[(&str, Vec<u8>)], out: &mut Vec<u8>) {
        let shown_index = self.next_index;
        self.next_index += 1;
        self.visible.insert(shown_index, item);
        if !self.streaming {
            return;
        }
        for (kind, rest) in events {
            let head = format!(r#"{{"type":"{kind}","sequence_number":0,"output_index":{shown_index},"#);
            self.send(&[head.as_bytes(), rest, b"}"].concat(), Edits::new(), out);
        }
    }

    /// Writes one event with its running numbers.
    fn send(&mut self, src: &[u8], mut edits: Edits, out: &mut Vec<u8>) {
        let event = Object::of(src, Span::new(0, src.len()));
        if let Some(number) = event.get("sequence_number") {
            edits.replace(number, self.next_sequence.to_string());
        }
        self.next_sequence += 1;
        let name = event.text("type").unwrap_or_default();
        push_event(out, name.as_bytes(), &edits.apply(src));
    }

    /// The final response object as the client sees it.
    fn finished(&self, ending: Ending) -> Vec<u8> {
        let src = &self.end;
        let snapshot = Span::new(0, src.len());
        let mut edits = Edits::new();
        self.restore.edits(src, snapshot, &self.identity, &mut edits);
        let snapshot = Object::of(src, snapshot);
        let items: Vec<&[u8]> = self.visible.values().map(Vec::as_slice).collect();
        let output = [b"[", items.join(&b","[..]).as_slice(), b"]"].concat();
        for (key, sum) in [("usage", &self.usage), ("tool_usage", &self.tool_usage)] {
            let Some(total) = sum.total() else { continue };
            match snapshot.get(key) {
                Some(own) => edits.replace(own, total),
                // The last round may not say it.
                None => edits.insert(1, [b"\"", key.as_bytes(), b"\":", total.as_slice(), b","].concat()),
            }
        }
        let mut set = |key: &str, value: &[u8]| {
            if let Some(own) = snapshot.get(key) {
                edits.replace(own, value.to_vec());
            }
        };
        set("output", &output);
        if ending == Ending::Limit {
            set("status", b"\"incomplete\"");
            // The nearest value of the enum (docs/design/wire-formats.md#limit-of-rounds).
            set("incomplete_details", br#"{"reason":"max_messages"}"#);
        }
        edits.apply(src)
    }
}

/// Members of a snapshot that a loop has others of than its last round.
const ANSWER_MEMBERS: [&str; 7] = [
    "created_at",
    "model",
    "output",
    "usage",
    "tool_usage",
    "status",
    "incomplete_details",
];

impl Codec for ResponsesCodec {
    fn begin_round(&mut self) {
        self.usage.close_round();
        self.tool_usage.close_round();
        let hidden: Vec<String> = self.unseen().collect();
        self.hidden.extend(hidden);
        self.rounds.push(std::mem::take(&mut self.state_id));
        self.items.clear();
        self.runs.begin_round();
        self.citations.begin_round();
        self.gathered = 0;
    }

    fn frame(&mut self, event: SseEvent) -> Result<DecodedFrame, Garbage> {
        self.streaming = true;
        let raw = event.data;
        let document = json::document(&raw).map_err(|error| Garbage(error.to_string()))?;
        let event = Object::of(&raw, document);
        let kind = event.text("type").unwrap_or_default();
        let parts = self.event_parts(&raw, &event, &kind)?;
        Ok(DecodedFrame {
            raw,
            parts,
            layout: Layout::None,
        })
    }

    fn body(&mut self, body: Bytes) -> Result<DecodedFrame, Garbage> {
        let document = json::document(&body).map_err(|error| Garbage(error.to_string()))?;
        if json::kind(&body, document) != Some(ValueKind::Object) {
            return Err(Garbage("a response must be an object".to_owned()));
        }
        self.identify(&body, document);
        let mut parts = vec![FramePart::Start];
        let output = json::get(&body, document, "output").and_then(|span| json::elements(&body, span).ok());
        for (index, span) in output.unwrap_or_default().into_iter().enumerate() {
            let index = u32::try_from(index).unwrap_or(u32::MAX);
            let item = OutputItem::new(index, span.of(&body), true);
            self.gathered += span.len();
            parts.push(FramePart::Unit {
                id: index,
                kind: item.kind,
            });
            parts.push(FramePart::UnitEnd { id: index });
            self.items.push(item);
        }
        self.end_of(&body, document, &mut parts)?;
        Ok(DecodedFrame {
            raw: body,
            parts,
            layout: Layout::None,
        })
    }

    fn call(&self, unit: u32) -> Option<CallSoFar<'_>> {
        let item = self.item(unit).filter(|item| item.kind == UnitKind::Call)?;
        Some(CallSoFar {
            name: &item.name,
            named: true,
            id: &item.call_id,
        })
    }

    fn is_answered(&self, unit: u32) -> bool {
        self.item(unit).is_some_and(|item| self.has_answer(&item.call_id))
    }

    fn caller(&self, unit: u32) -> Option<String> {
        let raw = &self.item(unit)?.raw;
        let caller = json::get(raw, Span::new(0, raw.len()), "caller").filter(|span| !json::is_null(raw, *span))?;
        Some(String::from_utf8_lossy(caller.of(raw)).into_owned())
    }

    fn arguments(&self, unit: u32) -> String {
        self.item(unit).map(|item| item.arguments.clone()).unwrap_or_default()
    }

    fn show(&mut self, frame: &DecodedFrame, shown: &[bool], out: &mut Vec<u8>) {
        if self.streaming && frame.parts.contains(&FramePart::End) {
            return self.show_late(frame, shown, out);
        }
        let src = &frame.raw;
        let event = Object::of(src, Span::new(0, src.len()));
        let mut edits = Edits::new();
        let mut visible = false;
        for (part, _) in frame.parts.iter().zip(shown).filter(|(_, shown)| **shown) {
            match part {
                FramePart::Start => {
                    visible = true;
                    if let Ok(snapshot) = snapshot_of(src, &event) {
                        self.restore.edits(src, snapshot, &self.identity, &mut edits);
                    }
                }
                FramePart::Unit { id, .. } | FramePart::UnitBytes { id } | FramePart::UnitEnd { id } => {
                    visible = true;
                    let Some(shown_index) = self.mark_shown(*id) else {
                        continue;
                    };
                    if !self.streaming {
                        if matches!(part, FramePart::UnitEnd { .. }) {
                            self.keep(*id);
                        }
                        continue;
                    }
                    if let Some(number) = event.get("output_index") {
                        edits.replace(number, shown_index.to_string());
                    }
                    self.cite((&src[..], *id), shown_index, &mut edits, out);
                    if matches!(part, FramePart::UnitEnd { .. }) {
                        self.keep(*id);
                    }
                    if self.restore.hide_encrypted
                        && let Some(item) = event.get("item")
                    {
                        item::hide(src, item, &mut edits);
                    }
                }
                FramePart::Other | FramePart::Error => visible = true,
                FramePart::Usage | FramePart::Stop { .. } | FramePart::End => {}
            }
        }
        if visible && self.streaming {
            self.send(src, edits, out);
        }
    }

    /// As `shell_call` items, before anything runs.
    fn show_calls(&mut self, units: &[u32], out: &mut Vec<u8>) {
        for unit in units {
            let run_tool = self.run_tool.as_deref();
            let Some(item) = self.item(*unit).filter(|item| Some(&*item.name) == run_tool) else {
                continue;
            };
            let command = shell::command(&item.arguments);
            let (call_id, shown_index) = (item.call_id.clone(), self.next_index.into());
            let id = self.runs.of_call(OWN_CALL, &self.id_text, shown_index, &call_id);
            let text = |key: &str| {
                [
                    format!(r#""command_index":0,"{key}":"#).as_bytes(),
                    &json::quoted(&command),
                ]
                .concat()
            };
            let container = self.container.as_deref();
            let done = shell::call_item(&id, &[&command], "completed", container);
            let begun = shell::call_item(&id, &[], "in_progress", container);
            let events = [
                ("response.output_item.added", [b"\"item\":", begun.as_slice()].concat()),
                (
                    "response.shell_call_command.added",
                    br#""command_index":0,"command":"""#.to_vec(),
                ),
                ("response.shell_call_command.delta", text("delta")),
                ("response.shell_call_command.done", text("command")),
                ("response.output_item.done", [b"\"item\":", done.as_slice()].concat()),
            ];
            self.show_own(done.clone(), &events, out);
        }
    }

    /// As `shell_call_output` items.
    fn show_results(&mut self, results: &[CallResult], out: &mut Vec<u8>) {
        for result in results {
            self.citations.add(&result.contained);
            if Some(&*result.name) != self.run_tool.as_deref() {
                continue;
            }
            let Some(id) = self.runs.of_result() else { continue };
            let output = shell::output(result);
            let done = shell::output_item(&id, &output, "completed");
            let begun = shell::output_item(&id, b"", "in_progress");
            let item_id = json::quoted(&shell::output_id(&id));
            let of_item = |rest: &[u8]| [b"\"item_id\":", item_id.as_slice(), br#","command_index":0,"#, rest].concat();
            let delta = result.native.as_ref().map_or_else(Vec::new, |run| {
                let mut delta = br#""delta":{"stdout":"#.to_vec();
                json::push_string(&mut delta, &run.stdout);
                delta.extend_from_slice(br#","stderr":"#);
                json::push_string(&mut delta, &run.stderr);
                delta.push(b'}');
                delta
            });
            let mut events = vec![("response.output_item.added", [b"\"item\":", begun.as_slice()].concat())];
            if !delta.is_empty() {
                events.push(("response.shell_call_output_content.delta", of_item(&delta)));
            }
            let whole = [b"\"output\":[", output.as_slice(), b"]"].concat();
            events.push(("response.shell_call_output_content.done", of_item(&whole)));
            events.push(("response.output_item.done", [b"\"item\":", done.as_slice()].concat()));
            self.show_own(done.clone(), &events, out);
        }
    }

    fn turn(&self) -> Vec<Bytes> {
        let items = || self.items.iter().filter(|item| item.done);
        if items().all(|item| item.kind == UnitKind::Paired) {
            return Vec::new();
        }
        items().map(|item| Bytes::copy_from_slice(&item.raw)).collect()
    }

    fn gathered(&self) -> usize {
        self.gathered
    }

    fn number_error(&mut self, frame: Vec<u8>) -> Vec<u8> {
        let Some(object) = memchr::memchr(b'{', &frame) else {
            return frame;
        };
        let number = format!(r#""sequence_number":{},"#, self.next_sequence);
        self.next_sequence += 1;
        let mut edits = Edits::new();
        edits.insert(object + 1, number);
        edits.apply(&frame)
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
        self.visible.values().map(|item| Bytes::copy_from_slice(item)).collect()
    }

    fn response_id(&self) -> &str {
        &self.id_text
    }

    fn state_id(&self) -> &str {
        &self.state_id
    }

    fn stored(&self, ending: Option<Ending>) -> Option<StoredForm> {
        if !self.restore.is_kept || self.id_text.is_empty() {
            return None;
        }
        let mut form = StoredForm {
            members: self.restore.members(),
            hidden: self.hidden.iter().cloned().chain(self.unseen()).collect(),
            rounds: self.rounds.clone(),
            ..StoredForm::default()
        };
        let Some(ending) = ending else {
            // What can be read is round 1.
            form.rounds.push(self.state_id.clone());
            form.rounds.retain(|id| !id.is_empty() && *id != self.id_text);
            return Some(form);
        };
        if !form.hidden.is_empty() || !form.rounds.is_empty() {
            let shown = self.finished(ending);
            let own = |key: &str| {
                let own = json::get(&shown, Span::new(0, shown.len()), key)?;
                Some((key.to_owned(), String::from_utf8_lossy(own.of(&shown)).into_owned()))
            };
            form.members.extend(ANSWER_MEMBERS.into_iter().filter_map(own));
        }
        Some(form)
    }

    fn shown_calls(&self) -> &[String] {
        &self.shown_calls
    }

    fn usage(&self) -> Option<Vec<u8>> {
        self.usage.total()
    }
}
