//! One Chat answer being rewritten: chunks and bodies in, chunks or one body out.

use std::borrow::Cow;

use bytes::Bytes;

use super::layout::{Layout, Piece, blank};
use crate::drive::{CallResult, GeneratedFile};
use crate::format::{self, CallSoFar, Codec, CodecOptions, Decoded, Ending, Garbage, Part, UnitKind, splice};
use crate::frame::{SseEvent, push_data};
use crate::json::{self, Edits, Kind, Span};
use crate::turn::Gathered;
use crate::usage::UsageSum;

/// Unit number of the answer text; calls are numbered from 1.
const TEXT: u32 = 0;
/// Members that later rounds take from round 1, so that the client sees one answer.
const IDENTITY: [&str; 4] = ["id", "created", "model", "system_fingerprint"];

/// See the module.
#[derive(Debug, Default)]
pub(super) struct ChatCodec {
    wants_usage: bool,
    options: CodecOptions,
    /// Identity members of round 1, as written.
    first: Vec<(&'static str, Vec<u8>)>,
    /// Any frame of the answer: what made-up chunks are modelled on.
    id: String,
    usage: UsageSum,
    /// Text shown in finished rounds, as written in JSON.
    shown_text: Vec<u8>,
    /// Client calls shown: their ids.
    shown_ids: Vec<String>,
    next_index: u64,
    turn: Turn,
}

/// What is known of the running turn.
#[derive(Debug, Default)]
struct Turn {
    started: bool,
    message: Gathered,
    calls: Vec<CallParts>,
    text_open: bool,
    text_shown: bool,
    stopped: bool,
    stop: Option<Decoded>,
    usage: Option<Decoded>,
    body: Option<Decoded>,
    gathered: usize,
}

#[derive(Debug, Default)]
struct CallParts {
    index: Option<u64>,
    id: String,
    name: String,
    object: Gathered,
    arguments_begun: bool,
    /// Its index in what the client sees.
    shown: Option<u64>,
}

impl ChatCodec {
    pub(super) fn new(wants_usage: bool, options: CodecOptions) -> Self {
        Self {
            wants_usage,
            options,
            ..Self::default()
        }
    }

    fn remember_identity(&mut self, raw: &[u8], layout: &Layout) {
        for key in IDENTITY {
            if !self.first.iter().any(|(name, _)| *name == key)
                && let Some(span) = layout.value(raw, key)
                && !json::is_null(raw, span)
            {
                self.first.push((key, span.of(raw).to_vec()));
                if key == "id" {
                    self.id = json::text(raw, span).unwrap_or_default().into_owned();
                }
            }
        }
    }

    fn decode_delta(&mut self, raw: &Bytes, layout: &mut Layout, parts: &mut Vec<Part>) {
        let Some(choice) = layout.choice.clone() else { return };
        let mut blanks = false;
        for (at, member) in choice.members.iter().enumerate() {
            let key = member.key.of(raw);
            if key == b"tool_calls" && !blank(raw, member.value) {
                for element in json::elements(raw, member.value).unwrap_or_default() {
                    let (call, new) = self.turn.take_call(raw, element);
                    let id = u32::try_from(call).unwrap_or(u32::MAX - 1) + 1;
                    let part = if new {
                        Part::Unit {
                            id,
                            kind: UnitKind::Call,
                        }
                    } else {
                        Part::UnitBytes { id }
                    };
                    layout.push(parts, part, Piece::Call(call, element));
                }
                continue;
            }
            self.turn.message.merge_member(raw, key, member.value);
            self.turn.gathered += member.value.len();
            if key == b"role" || blank(raw, member.value) {
                blanks = true;
            } else if key == b"content" {
                let part = if self.turn.text_open {
                    Part::UnitBytes { id: TEXT }
                } else {
                    Part::Unit {
                        id: TEXT,
                        kind: UnitKind::Text,
                    }
                };
                self.turn.text_open = true;
                layout.push(parts, part, Piece::Member(at));
            } else {
                layout.push(parts, Part::Other, Piece::Member(at));
            }
        }
        if !self.turn.started {
            self.turn.started = true;
            parts.insert(0, Part::Start);
            layout.pieces.insert(0, Piece::Head);
        } else if blanks && parts.is_empty() && layout.reason(raw).is_none() {
            layout.push(parts, Part::Other, Piece::Head);
        }
    }

    /// Edits that every shown chunk needs: identity of round 1, no usage, no finish reason.
    fn common_edits(&self, raw: &[u8], layout: &Layout, edits: &mut Edits) {
        for (key, value) in &self.first {
            if let Some(span) = layout.value(raw, key)
                && span.of(raw) != value
            {
                edits.replace(span, value.clone());
            }
        }
        if let Some(at) = layout.top.iter().position(|member| member.key.of(raw) == b"usage") {
            if !self.wants_usage {
                let spans: Vec<Span> = layout.top.iter().map(json::Member::whole).collect();
                edits.remove_item(&spans, at);
            } else if !json::is_null(raw, layout.top[at].value) {
                edits.replace(layout.top[at].value, "null");
            }
        }
    }

    fn show_chunk(&mut self, raw: &Bytes, layout: &Layout, shown: &[bool], out: &mut Vec<u8>) {
        let mut edits = Edits::new();
        self.common_edits(raw, layout, &mut edits);
        let visible = |piece: &Piece| {
            layout
                .pieces
                .iter()
                .zip(shown)
                .any(|(own, shown)| *shown && own == piece)
        };
        if let Some(choice) = &layout.choice
            && !visible(&Piece::Whole)
        {
            let head = visible(&Piece::Head);
            let mut gone = Vec::new();
            for (at, member) in choice.members.iter().enumerate() {
                let key = member.key.of(raw);
                let keep = if key == b"tool_calls" && !blank(raw, member.value) {
                    self.show_call_elements(raw, member.value, layout, shown, &mut edits)
                } else if key == b"role" || blank(raw, member.value) {
                    head
                } else {
                    visible(&Piece::Member(at))
                };
                if !keep {
                    gone.push(at);
                } else if key == b"content" && !blank(raw, member.value) {
                    if !self.turn.text_shown && !self.shown_text.is_empty() {
                        edits.insert(member.value.start + 1, "\\n\\n");
                    }
                    self.turn.text_shown = true;
                }
            }
            let spans: Vec<Span> = choice.members.iter().map(json::Member::whole).collect();
            edits.remove_items(&spans, &gone);
            if let Some(finish) = choice.finish
                && !json::is_null(raw, finish)
            {
                edits.replace(finish, "null");
            }
        }
        if edits.is_empty() {
            push_data(out, raw)
        } else {
            push_data(out, &edits.apply(raw))
        }
    }

    /// Keeps the shown elements of `tool_calls` and renumbers them; false if none is left.
    fn show_call_elements(
        &mut self,
        raw: &[u8],
        list: Span,
        layout: &Layout,
        shown: &[bool],
        edits: &mut Edits,
    ) -> bool {
        let elements = json::elements(raw, list).unwrap_or_default();
        let mut gone = Vec::new();
        for (at, element) in elements.iter().enumerate() {
            let piece = layout
                .pieces
                .iter()
                .zip(shown)
                .find(|(piece, shown)| **shown && matches!(piece, Piece::Call(_, span) if span == element));
            let Some((Piece::Call(number, _), _)) = piece else {
                gone.push(at);
                continue;
            };
            let index = self.shown_index(*number);
            match json::get(raw, *element, "index") {
                Some(span) if json::uint(raw, span) == Some(index) => {}
                Some(span) => edits.replace(span, index.to_string()),
                None => edits.insert(element.start + 1, format!("\"index\":{index},")),
            }
        }
        edits.remove_items(&elements, &gone);
        gone.len() < elements.len()
    }

    fn shown_index(&mut self, number: usize) -> u64 {
        let Some(call) = self.turn.calls.get_mut(number) else {
            return self.next_index;
        };
        if let Some(index) = call.shown {
            return index;
        }
        let index = self.next_index;
        self.next_index += 1;
        call.shown = Some(index);
        self.shown_ids.push(call.id.clone());
        index
    }

    /// A chunk modelled on round 1 with these choices.
    fn made_up(&self, choices: &str) -> Vec<u8> {
        let mut out = vec![b'{'];
        let find = |key: &str| {
            self.first
                .iter()
                .find(|(name, _)| *name == key)
                .map(|(_, value)| value.as_slice())
        };
        for (key, value) in [
            ("id", find("id")),
            ("object", Some(&b"\"chat.completion.chunk\""[..])),
            ("created", find("created")),
            ("model", find("model")),
        ] {
            if let Some(value) = value {
                out.extend_from_slice(format!("\"{key}\":").as_bytes());
                out.extend_from_slice(value);
                out.push(b',');
            }
        }
        out.extend_from_slice(format!("\"choices\":{choices}").as_bytes());
        out
    }

    fn finish_stream(&mut self, ending: Ending, out: &mut Vec<u8>) {
        let reason = match ending {
            Ending::AsCame => None,
            Ending::ClientCalls => Some("\"tool_calls\""),
            Ending::Limit => Some("\"length\""),
        };
        if let Some(Decoded {
            raw,
            layout: format::Layout::Chat(layout),
            ..
        }) = self.turn.stop.take()
        {
            let mut edits = Edits::new();
            self.common_edits(&raw, &layout, &mut edits);
            if let Some(choice) = &layout.choice {
                if let Some(delta) = choice.message.filter(|_| !choice.members.is_empty()) {
                    edits.replace(delta, "{}");
                }
                if let (Some(finish), Some(reason)) = (choice.finish, reason)
                    && finish.of(&raw) != reason.as_bytes()
                {
                    edits.replace(finish, reason);
                }
            }
            if edits.is_empty() {
                push_data(out, &raw)
            } else {
                push_data(out, &edits.apply(&raw))
            }
        } else {
            let reason = reason.unwrap_or(if self.turn.calls.is_empty() {
                "\"stop\""
            } else {
                "\"tool_calls\""
            });
            let mut chunk = self.made_up(&format!("[{{\"index\":0,\"delta\":{{}},\"finish_reason\":{reason}}}]"));
            chunk.extend_from_slice(if self.wants_usage { b",\"usage\":null}" } else { b"}" });
            push_data(out, &chunk);
        }
        if self.wants_usage
            && let Some(total) = self.usage.total()
        {
            self.write_usage(&total, out);
        }
        out.extend_from_slice(b"data: [DONE]\n\n");
    }

    fn write_usage(&mut self, total: &[u8], out: &mut Vec<u8>) {
        if let Some(Decoded {
            raw,
            layout: format::Layout::Chat(layout),
            ..
        }) = self.turn.usage.take()
            && layout.choice.is_none()
            && let Some(usage) = layout.usage(&raw)
        {
            let mut edits = Edits::new();
            for (key, value) in &self.first {
                if let Some(span) = layout.value(&raw, key)
                    && span.of(&raw) != value
                {
                    edits.replace(span, value.clone());
                }
            }
            if usage.of(&raw) != total {
                edits.replace(usage, total);
            }
            return push_data(out, &edits.apply(&raw));
        }
        let mut chunk = self.made_up("[]");
        chunk.extend_from_slice(b",\"usage\":");
        chunk.extend_from_slice(total);
        chunk.push(b'}');
        push_data(out, &chunk);
    }

    fn finish_body(&mut self, ending: Ending, files: &[GeneratedFile], out: &mut Vec<u8>) {
        let Some(Decoded {
            raw,
            layout: format::Layout::Chat(layout),
            ..
        }) = self.turn.body.take()
        else {
            return;
        };
        let mut edits = Edits::new();
        for (key, value) in self.first.iter().filter(|(key, _)| matches!(*key, "id" | "created")) {
            if let Some(span) = layout.value(&raw, key)
                && span.of(&raw) != value
            {
                edits.replace(span, value.clone());
            }
        }
        if let Some(choice) = &layout.choice {
            self.finish_message(&raw, choice, &mut edits);
            let reason = match ending {
                Ending::AsCame => None,
                Ending::ClientCalls => Some("\"tool_calls\""),
                Ending::Limit => Some("\"length\""),
            };
            if let (Some(finish), Some(reason)) = (choice.finish, reason) {
                edits.replace(finish, reason);
            }
        }
        if !self.usage.single()
            && let Some(total) = self.usage.total()
        {
            match layout.value(&raw, "usage") {
                Some(span) => edits.replace(span, total),
                None => edits.insert(
                    json::space(&raw, 0) + 1,
                    [b"\"usage\":", total.as_slice(), b","].concat(),
                ),
            }
        }
        if self.options.litellm
            && !files.is_empty()
            && let Some(last) = layout.top.last()
        {
            edits.insert(
                last.value.end,
                [
                    b",\"_litellm_generated_files\":",
                    splice::litellm_files(files).as_slice(),
                ]
                .concat(),
            );
        }
        out.extend_from_slice(&edits.apply(&raw));
    }

    fn finish_message(&self, raw: &[u8], choice: &super::layout::Choice, edits: &mut Edits) {
        let joined = self.joined_text();
        let mut gone = Vec::new();
        for (at, member) in choice.members.iter().enumerate() {
            match member.key.of(raw) {
                b"content" => {
                    let same =
                        json::raw_text(raw, member.value).map_or(joined.is_empty(), |own| own == joined.as_slice());
                    let whole = self.turn.text_shown && self.shown_text.is_empty();
                    if !same && !whole {
                        edits.replace(
                            member.value,
                            if joined.is_empty() {
                                b"null".to_vec()
                            } else {
                                [b"\"", joined.as_slice(), b"\""].concat()
                            },
                        );
                    }
                }
                b"tool_calls" if !blank(raw, member.value) => {
                    let elements = json::elements(raw, member.value).unwrap_or_default();
                    let hidden: Vec<usize> = (0..elements.len())
                        .filter(|at| self.turn.calls.get(*at).is_some_and(|call| call.shown.is_none()))
                        .collect();
                    if hidden.len() == elements.len() {
                        gone.push(at);
                    } else {
                        edits.remove_items(&elements, &hidden);
                    }
                }
                _ => {}
            }
        }
        let spans: Vec<Span> = choice.members.iter().map(json::Member::whole).collect();
        edits.remove_items(&spans, &gone);
        if !joined.is_empty()
            && !choice.members.iter().any(|member| member.key.of(raw) == b"content")
            && let Some(message) = choice.message
        {
            let comma = if choice.members.len() > gone.len() { "," } else { "" };
            edits.insert(
                message.start + 1,
                [b"\"content\":\"", joined.as_slice(), b"\"", comma.as_bytes()].concat(),
            );
        }
    }

    /// All shown text of all rounds, as written in JSON.
    fn joined_text(&self) -> Vec<u8> {
        let mut joined = self.shown_text.clone();
        if self.turn.text_shown {
            let own = self.turn.text();
            if !joined.is_empty() && !own.is_empty() {
                joined.extend_from_slice(b"\\n\\n");
            }
            joined.extend_from_slice(&own);
        }
        joined
    }
}

impl Turn {
    /// The turn's text, as written in JSON.
    fn text(&self) -> Cow<'_, [u8]> {
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
    fn take_call(&mut self, raw: &[u8], element: Span) -> (usize, bool) {
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

impl Codec for ChatCodec {
    fn begin_round(&mut self) {
        self.shown_text = self.joined_text();
        self.usage.close_round();
        self.turn = Turn::default();
    }

    fn frame(&mut self, event: SseEvent) -> Result<Decoded, Garbage> {
        let raw = event.data;
        if raw.trim_ascii() == b"[DONE]" {
            return Ok(Decoded {
                raw,
                parts: vec![Part::End],
                layout: format::Layout::None,
            });
        }
        let mut layout = Layout::read(&raw, "delta")?;
        let mut parts = Vec::with_capacity(4);
        if layout
            .value(&raw, "error")
            .is_some_and(|span| !json::is_null(&raw, span))
        {
            layout.push(&mut parts, Part::Error, Piece::Whole);
            return Ok(Decoded {
                raw,
                parts,
                layout: format::Layout::Chat(Box::new(layout)),
            });
        }
        self.remember_identity(&raw, &layout);
        self.decode_delta(&raw, &mut layout, &mut parts);
        if let Some(usage) = layout.usage(&raw) {
            self.usage.report(usage.of(&raw));
            layout.push(&mut parts, Part::Usage, Piece::Hidden);
        }
        let reason = layout.reason(&raw).map(Cow::into_owned);
        if let Some(reason) = &reason {
            self.turn.stopped = true;
            layout.push(
                &mut parts,
                Part::Stop {
                    runnable: runnable(reason),
                },
                Piece::Hidden,
            );
        }
        if parts.is_empty() {
            layout.push(&mut parts, Part::Other, Piece::Whole);
        }
        let frame = Decoded {
            raw,
            parts,
            layout: format::Layout::Chat(Box::new(layout)),
        };
        if reason.is_some() {
            self.turn.stop = Some(frame.clone());
        }
        if frame.parts.contains(&Part::Usage) {
            self.turn.usage = Some(frame.clone());
        }
        Ok(frame)
    }

    fn body(&mut self, body: Bytes) -> Result<Decoded, Garbage> {
        let raw = body;
        let mut layout = Layout::read(&raw, "message")?;
        let mut parts = Vec::with_capacity(8);
        let Some(choice) = layout.choice.clone() else {
            layout.push(&mut parts, Part::Error, Piece::Whole);
            return Ok(Decoded {
                raw,
                parts,
                layout: format::Layout::Chat(Box::new(layout)),
            });
        };
        self.remember_identity(&raw, &layout);
        layout.push(&mut parts, Part::Start, Piece::Head);
        for (at, member) in choice.members.iter().enumerate() {
            match member.key.of(&raw) {
                b"tool_calls" if !blank(&raw, member.value) => {
                    for element in json::elements(&raw, member.value).unwrap_or_default() {
                        let number = self.turn.calls.len();
                        self.turn.calls.push(CallParts::default());
                        self.turn.calls[number].index = Some(number as u64);
                        let mut call = Gathered::default();
                        call.merge(&raw, element);
                        self.turn.calls[number] = CallParts::whole(number, call);
                        let id = u32::try_from(number).unwrap_or(u32::MAX - 1) + 1;
                        layout.push(
                            &mut parts,
                            Part::Unit {
                                id,
                                kind: UnitKind::Call,
                            },
                            Piece::Call(number, element),
                        );
                    }
                }
                b"content" if !blank(&raw, member.value) => {
                    let text = match json::kind(&raw, member.value) {
                        Some(Kind::String) => Gathered::new(&raw, member.value),
                        _ => Gathered::Raw(member.value.of(&raw).to_vec()),
                    };
                    self.turn.message.set("content", text);
                    layout.push(
                        &mut parts,
                        Part::Unit {
                            id: TEXT,
                            kind: UnitKind::Text,
                        },
                        Piece::Member(at),
                    );
                }
                _ => {}
            }
        }
        if let Some(usage) = layout.usage(&raw) {
            self.usage.report(usage.of(&raw));
            layout.push(&mut parts, Part::Usage, Piece::Hidden);
        }
        self.turn.stopped = true;
        self.turn.gathered = raw.len();
        let reason = layout.reason(&raw).map_or(true, |reason| runnable(&reason));
        layout.push(&mut parts, Part::Stop { runnable: reason }, Piece::Hidden);
        layout.push(&mut parts, Part::End, Piece::Hidden);
        let frame = Decoded {
            raw,
            parts,
            layout: format::Layout::Chat(Box::new(layout)),
        };
        self.turn.body = Some(frame.clone());
        Ok(frame)
    }

    fn call(&self, unit: u32) -> Option<CallSoFar<'_>> {
        let call = self.turn.calls.get(usize::try_from(unit).ok()?.checked_sub(1)?)?;
        Some(CallSoFar {
            name: &call.name,
            named: call.arguments_begun || self.turn.stopped,
            id: &call.id,
        })
    }

    fn arguments(&self, unit: u32) -> String {
        let call = usize::try_from(unit)
            .ok()
            .and_then(|unit| self.turn.calls.get(unit.checked_sub(1)?));
        let written = call.and_then(|call| call.object.get("function")?.get("arguments"));
        written
            .map(|text| json::unescape(text.text()).into_owned())
            .unwrap_or_default()
    }

    fn show(&mut self, frame: &Decoded, shown: &[bool], out: &mut Vec<u8>) {
        let format::Layout::Chat(layout) = &frame.layout else {
            return;
        };
        if self.turn.body.is_none() {
            return if shown.contains(&true) {
                self.show_chunk(&frame.raw, layout, shown, out)
            } else {
                ()
            };
        }
        for (piece, shown) in layout.pieces.iter().zip(shown) {
            match piece {
                Piece::Member(_) if *shown => self.turn.text_shown = true,
                Piece::Call(number, _) if *shown => {
                    self.shown_index(*number);
                }
                _ => {}
            }
        }
    }

    fn show_calls(&mut self, _: &[u32], _: &mut Vec<u8>) {}

    fn show_results(&mut self, _: &[CallResult], _: &mut Vec<u8>) {}

    fn turn(&self) -> Vec<Bytes> {
        if let Some(Decoded {
            raw,
            layout: format::Layout::Chat(layout),
            ..
        }) = &self.turn.body
            && let Some(message) = layout.choice.as_ref().and_then(|choice| choice.message)
        {
            return vec![raw.slice(message.start..message.end)];
        }
        vec![Bytes::from(self.message(&self.turn.message, |_| true))]
    }

    fn gathered(&self) -> usize {
        self.turn.gathered
    }

    fn finish(&mut self, ending: Ending, files: &[GeneratedFile], out: &mut Vec<u8>) {
        if self.turn.body.is_some() {
            self.finish_body(ending, files, out)
        } else {
            self.finish_stream(ending, out)
        }
    }

    fn visible(&self) -> Vec<Bytes> {
        let mut message = Gathered::default();
        let text = self.joined_text();
        message.set(
            "content",
            if text.is_empty() {
                Gathered::Raw(b"null".to_vec())
            } else {
                Gathered::Text(text)
            },
        );
        vec![Bytes::from(self.message(&message, |call| call.shown.is_some()))]
    }

    fn response_id(&self) -> &str {
        &self.id
    }

    fn shown_calls(&self) -> &[String] {
        &self.shown_ids
    }

    fn usage(&self) -> Option<Vec<u8>> {
        self.usage.total()
    }
}

impl ChatCodec {
    /// An assistant message with the calls that `keep` names.
    fn message(&self, gathered: &Gathered, keep: impl Fn(&CallParts) -> bool) -> Vec<u8> {
        let mut message = Gathered::default();
        message.set("role", Gathered::Text(b"assistant".to_vec()));
        message.set("content", Gathered::Raw(b"null".to_vec()));
        if let Gathered::Object(members) = gathered {
            for (key, value) in members {
                message.set(&String::from_utf8_lossy(key), value.clone());
            }
        }
        let calls: Vec<(u64, Gathered)> = self
            .turn
            .calls
            .iter()
            .filter(|call| keep(call))
            .map(|call| (0, call.object.clone()))
            .collect();
        if !calls.is_empty() {
            message.set("tool_calls", Gathered::List(calls));
        }
        let mut out = Vec::new();
        message.write(&mut out);
        out
    }
}

impl CallParts {
    fn whole(number: usize, object: Gathered) -> Self {
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

/// Calls of a turn that was cut or filtered are not complete.
fn runnable(reason: &str) -> bool {
    !matches!(reason, "length" | "content_filter")
}
