//! One Chat answer being rewritten: chunks and bodies in, chunks or one body out.

mod earlier;
mod kept;
mod stored_form;
mod turn;
mod whole;
mod write;

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;

use self::earlier::EarlierRounds;
use self::kept::KeptAnswer;
use self::turn::{CallParts, ChatTurn, TurnLogprobs};
use super::layout::{ChatLayout, PartSource, blank};
use crate::drive::{CallResult, GeneratedFile};
use crate::format::{self, CallSoFar, Codec, CodecOptions, DecodedFrame, Ending, FramePart, Garbage, UnitKind};
use crate::frame::SseEvent;
use crate::json::{self, Span, ValueKind};
use crate::request::Request;
use crate::stored::StoredForm;
use crate::turn::{DELTA_MAX_MEMBERS, DeltaValue};
use crate::usage::UsageSum;

/// Unit number of the answer text; calls are numbered from 1.
const TEXT: u32 = 0;
/// Members that later rounds take from round 1, so that the client sees one answer.
const IDENTITY: [&str; 4] = ["id", "created", "model", "system_fingerprint"];
/// Members of which a message of the model must have one.
const SAID: [&str; 5] = ["content", "tool_calls", "function_call", "refusal", "audio"];

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
    /// What finished rounds say beside it.
    earlier: EarlierRounds,
    /// Client calls shown: their ids.
    shown_ids: Vec<String>,
    next_index: u64,
    turn: ChatTurn,
    /// The upstream keeps the answer, and what it got for it.
    kept: Option<KeptAnswer>,
}

impl ChatCodec {
    pub(super) fn new(request: &Request, wants_usage: bool, options: CodecOptions) -> Self {
        Self {
            wants_usage,
            options,
            kept: KeptAnswer::of(request),
            ..Self::default()
        }
    }

    /// Takes a whole call of a body. Returns its number in the turn, from 0.
    fn take_call(&mut self, raw: &[u8], element: Span) -> (usize, FramePart) {
        let number = self.turn.calls.len();
        let mut call = DeltaValue::default();
        call.merge(raw, element);
        self.turn.calls.push(CallParts::whole(number, call));
        let part = FramePart::Unit {
            id: u32::try_from(number).unwrap_or(u32::MAX - 1) + 1,
            kind: UnitKind::Call,
        };
        (number, part)
    }

    /// Takes the whole text of a body. Content that is no string stays as written.
    fn take_text(&mut self, raw: &[u8], content: Span) -> FramePart {
        let text = match json::kind(raw, content) {
            Some(ValueKind::String) => DeltaValue::new(raw, content),
            _ => DeltaValue::Raw(content.of(raw).to_vec()),
        };
        self.turn.message.set("content", text);
        FramePart::Unit {
            id: TEXT,
            kind: UnitKind::Text,
        }
    }

    /// Takes the identity of the answer from the first frame that says it: Azure begins a stream with a frame about the
    /// prompt, in which ids are empty and times 0.
    fn remember_identity(&mut self, raw: &[u8], layout: &ChatLayout) {
        if let Some(kept) = self.kept.as_mut().filter(|kept| kept.id.is_empty())
            && let Some(id) = layout.value(raw, "id").and_then(|span| json::text(raw, span))
        {
            kept.id = id.into_owned();
        }
        for key in IDENTITY {
            if !self.first.iter().any(|(name, _)| *name == key)
                && let Some(span) = layout.value(raw, key)
                && !matches!(span.of(raw), b"null" | b"\"\"" | b"0")
            {
                self.first.push((key, span.of(raw).to_vec()));
                if key == "id" {
                    self.id = json::text(raw, span).unwrap_or_default().into_owned();
                }
            }
        }
    }

    /// Takes the usage of a chunk or body, wherever it is: that at the top counts.
    fn take_usage(&mut self, raw: &[u8], layout: &mut ChatLayout, parts: &mut Vec<FramePart>) {
        let found: Vec<Span> = layout.usage_within(raw).chain(layout.usage(raw)).collect();
        for usage in &found {
            self.usage.report(usage.of(raw));
        }
        if !found.is_empty() {
            layout.push(parts, FramePart::Usage, PartSource::Hidden);
        }
    }

    /// Errors: a piece of a call that never began.
    fn decode_delta(
        &mut self,
        raw: &Bytes,
        layout: &mut ChatLayout,
        parts: &mut Vec<FramePart>,
    ) -> Result<(), Garbage> {
        let Some(choice) = layout.choice.clone() else {
            return Ok(());
        };
        if self.kept.is_some() {
            self.turn.logprobs.take(raw, &choice);
        }
        let mut blanks = false;
        if choice.members.len() > DELTA_MAX_MEMBERS {
            return Err(Garbage(format!("a message has more than {DELTA_MAX_MEMBERS} members")));
        }
        for (at, member) in choice.members.iter().enumerate() {
            let key = member.key.of(raw);
            if key == b"tool_calls" && !blank(raw, member.value) {
                for element in json::elements(raw, member.value).unwrap_or_default() {
                    let (call, new) = self.turn.take_call(raw, element)?;
                    let id = u32::try_from(call).unwrap_or(u32::MAX - 1) + 1;
                    let part = if new {
                        FramePart::Unit {
                            id,
                            kind: UnitKind::Call,
                        }
                    } else {
                        FramePart::UnitBytes { id }
                    };
                    layout.push(parts, part, PartSource::Call(call, element));
                }
                continue;
            }
            if key == b"content" {
                self.turn.take_content(raw, member.value);
            } else {
                self.turn.message.merge_member(raw, key, member.value);
            }
            self.turn.gathered += member.value.len();
            if key == b"role" || blank(raw, member.value) {
                blanks = true;
            } else if key == b"content" {
                let part = if self.turn.text_open {
                    FramePart::UnitBytes { id: TEXT }
                } else {
                    FramePart::Unit {
                        id: TEXT,
                        kind: UnitKind::Text,
                    }
                };
                self.turn.text_open = true;
                layout.push(parts, part, PartSource::Member(at));
            } else {
                layout.push(parts, FramePart::Other, PartSource::Member(at));
            }
        }
        if !self.turn.started {
            self.turn.started = true;
            parts.insert(0, FramePart::Start);
            layout.pieces.insert(0, PartSource::Head);
        } else if blanks && parts.is_empty() && layout.reason(raw).is_none() {
            layout.push(parts, FramePart::Other, PartSource::Head);
        }
        Ok(())
    }

    /// Takes what the finished turn says beside its text and its calls. A stream has handed it out; it is kept for what
    /// can be read of the answer later.
    fn carry_on(&mut self) {
        let shown = self.turn.text_shown;
        if let Some(DecodedFrame {
            raw,
            layout: format::Layout::Chat(layout),
            ..
        }) = &self.turn.body
        {
            if let Some(choice) = layout.choice.as_ref().filter(|choice| !choice.at_root) {
                self.earlier.take(raw, &choice.members, shown);
                if shown {
                    self.earlier.take_logprobs(choice.logprobs_of(raw, "content"));
                }
            }
        } else if self.kept.is_some() {
            let mut message = Vec::new();
            self.turn.message.write(&mut message);
            let members = json::object(&message).unwrap_or_default();
            self.earlier.take(&message, &members, shown);
            match &self.turn.logprobs {
                TurnLogprobs { too_many: true, .. } if shown => self.earlier.lose_logprobs(),
                TurnLogprobs { content, .. } if shown => self.earlier.take_logprobs(content),
                _ => {}
            }
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

impl Codec for ChatCodec {
    fn sent(&mut self, request: &Request, body: &Bytes) {
        if let Some(kept) = &mut self.kept {
            kept.sent(request, body);
        }
    }

    fn begin_round(&mut self) {
        self.carry_on();
        self.shown_text = self.joined_text();
        self.earlier.follow(&self.shown_text);
        self.usage.close_round();
        if let Some(kept) = &mut self.kept {
            kept.begin_round(&self.turn);
        }
        self.turn = ChatTurn::default();
    }

    fn frame(&mut self, event: SseEvent) -> Result<DecodedFrame, Garbage> {
        let raw = event.data;
        if raw.trim_ascii() == b"[DONE]" {
            return Ok(DecodedFrame {
                raw,
                parts: vec![FramePart::End],
                layout: format::Layout::None,
            });
        }
        let mut layout = ChatLayout::read(&raw, "delta")?;
        let mut parts = Vec::with_capacity(4);
        if layout
            .value(&raw, "error")
            .is_some_and(|span| !json::is_null(&raw, span))
        {
            layout.push(&mut parts, FramePart::Error, PartSource::Whole);
            return Ok(DecodedFrame {
                raw,
                parts,
                layout: format::Layout::Chat(Arc::new(layout)),
            });
        }
        self.remember_identity(&raw, &layout);
        self.decode_delta(&raw, &mut layout, &mut parts)?;
        self.take_usage(&raw, &mut layout, &mut parts);
        let reason = layout.reason(&raw).map(Cow::into_owned);
        if let Some(reason) = &reason {
            self.turn.stopped = true;
            layout.push(
                &mut parts,
                FramePart::Stop {
                    runnable: runnable(reason),
                },
                PartSource::Hidden,
            );
        }
        if parts.is_empty() {
            layout.push(&mut parts, FramePart::Other, PartSource::Whole);
        }
        let frame = DecodedFrame {
            raw,
            parts,
            layout: format::Layout::Chat(Arc::new(layout)),
        };
        if reason.is_some() {
            self.turn.stop = Some(frame.clone());
        }
        if frame.parts.contains(&FramePart::Usage) {
            self.turn.usage = Some(frame.clone());
        }
        Ok(frame)
    }

    fn body(&mut self, body: Bytes) -> Result<DecodedFrame, Garbage> {
        let raw = body;
        let mut layout = ChatLayout::read(&raw, "message")?;
        let mut parts = Vec::with_capacity(8);
        let Some(choice) = layout.choice.clone() else {
            layout.push(&mut parts, FramePart::Error, PartSource::Whole);
            return Ok(DecodedFrame {
                raw,
                parts,
                layout: format::Layout::Chat(Arc::new(layout)),
            });
        };
        self.remember_identity(&raw, &layout);
        layout.push(&mut parts, FramePart::Start, PartSource::Head);
        for (at, member) in choice.members.iter().enumerate() {
            match member.key.of(&raw) {
                b"tool_calls" if !blank(&raw, member.value) => {
                    for element in json::elements(&raw, member.value).unwrap_or_default() {
                        let (number, part) = self.take_call(&raw, element);
                        layout.push(&mut parts, part, PartSource::Call(number, element));
                    }
                }
                b"content" if !blank(&raw, member.value) => {
                    let part = self.take_text(&raw, member.value);
                    layout.push(&mut parts, part, PartSource::Member(at));
                }
                b"refusal" if !blank(&raw, member.value) => {
                    self.turn.message.set("refusal", DeltaValue::new(&raw, member.value));
                }
                _ => {}
            }
        }
        self.take_usage(&raw, &mut layout, &mut parts);
        self.turn.stopped = true;
        self.turn.gathered = raw.len();
        let reason = layout.reason(&raw).is_none_or(|reason| runnable(&reason));
        layout.push(&mut parts, FramePart::Stop { runnable: reason }, PartSource::Hidden);
        layout.push(&mut parts, FramePart::End, PartSource::Hidden);
        let frame = DecodedFrame {
            raw,
            parts,
            layout: format::Layout::Chat(Arc::new(layout)),
        };
        self.turn.body = Some(frame.clone());
        Ok(frame)
    }

    fn call(&self, unit: u32) -> Option<CallSoFar<'_>> {
        let call = self.turn.calls.get(usize::try_from(unit).ok()?.checked_sub(1)?)?;
        Some(CallSoFar {
            name: &call.name,
            named: call.arguments_begun || self.turn.stopped,
            id: call.id(),
        })
    }

    fn arguments(&self, unit: u32) -> String {
        let call = usize::try_from(unit)
            .ok()
            .and_then(|unit| self.turn.calls.get(unit.checked_sub(1)?));
        call.map(CallParts::arguments).unwrap_or_default()
    }

    fn show(&mut self, frame: &DecodedFrame, shown: &[bool], out: &mut Vec<u8>) {
        let format::Layout::Chat(layout) = &frame.layout else {
            return;
        };
        if self.turn.body.is_none() {
            return self.show_chunk(&frame.raw, layout, shown, None, out);
        }
        for (piece, shown) in layout.pieces.iter().zip(shown) {
            match piece {
                PartSource::Member(_) if *shown => self.turn.text_shown = true,
                PartSource::Call(number, _) if *shown => {
                    self.shown_index(*number);
                }
                _ => {}
            }
        }
    }

    fn show_text(&mut self, frames: &[(DecodedFrame, Vec<bool>)], out: &mut Vec<u8>) {
        if self.turn.body.is_none() {
            return self.show_joined(frames, out);
        }
        for (frame, shown) in frames {
            self.show(frame, shown, out);
        }
    }

    fn show_calls(&mut self, _: &[u32], _: &mut Vec<u8>) {}

    fn show_results(&mut self, _: &[CallResult], _: &mut Vec<u8>) {}

    fn turn(&self) -> Vec<Bytes> {
        let message = self.whole_turn();
        let says = |key: &&str| {
            let value = json::get(&message, Span::new(0, message.len()), key);
            value.is_some_and(|value| !blank(&message, value))
        };
        if SAID.iter().any(says) {
            vec![message]
        } else {
            Vec::new()
        }
    }

    fn gathered(&self) -> usize {
        self.turn.gathered
    }

    fn finish(&mut self, ending: Ending, files: &[GeneratedFile], out: &mut Vec<u8>) {
        if self.turn.body.is_some() {
            self.finish_body(ending, files, out);
        } else {
            self.finish_stream(ending, out);
        }
    }

    fn visible(&self) -> Vec<Bytes> {
        let mut message = DeltaValue::default();
        let text = self.joined_text();
        message.set(
            "content",
            if text.is_empty() {
                DeltaValue::Raw(b"null".to_vec())
            } else {
                DeltaValue::Text(text)
            },
        );
        let refusal = self.turn.message.get("refusal");
        if let Some(refusal) = refusal.filter(|refusal| !refusal.text().is_empty()) {
            message.set("refusal", refusal.clone());
        }
        vec![Bytes::from(self.message(&message, |call| call.shown.is_some()))]
    }

    fn response_id(&self) -> &str {
        &self.id
    }

    fn state_id(&self) -> &str {
        self.kept.as_ref().map_or("", |kept| &kept.id)
    }

    fn stored(&self, ending: Option<Ending>) -> Option<StoredForm> {
        let kept = self.kept.as_ref().filter(|_| !self.id.is_empty())?;
        Some(self.form(kept, ending))
    }

    fn shown_calls(&self) -> &[String] {
        &self.shown_ids
    }

    fn usage(&self) -> Option<Vec<u8>> {
        self.usage.total()
    }
}

impl ChatCodec {
    /// The turn as one message, whole.
    fn whole_turn(&self) -> Bytes {
        if let Some(DecodedFrame {
            raw,
            layout: format::Layout::Chat(layout),
            ..
        }) = &self.turn.body
            && let Some(choice) = &layout.choice
            && let Some(message) = choice.message
        {
            if !choice.at_root && self.turn.calls.iter().all(CallParts::is_standard) {
                return raw.slice(message.start..message.end);
            }
            // At the root, everything but content and calls belongs to the answer, not to the message.
            let gathered = if choice.at_root {
                self.turn.message.clone()
            } else {
                DeltaValue::new(raw, message)
            };
            return Bytes::from(self.message(&gathered, |_| true));
        }
        Bytes::from(self.message(&self.turn.message, |_| true))
    }

    /// An assistant message with the calls that `keep` names.
    fn message(&self, gathered: &DeltaValue, keep: impl Fn(&CallParts) -> bool) -> Vec<u8> {
        let mut message = DeltaValue::default();
        message.set("role", DeltaValue::Text(b"assistant".to_vec()));
        message.set("content", DeltaValue::Raw(b"null".to_vec()));
        if let DeltaValue::Object(members) = gathered {
            for (key, value) in members {
                message.set(&String::from_utf8_lossy(key), value.clone());
            }
        }
        let calls: Vec<(u64, DeltaValue)> = self
            .turn
            .calls
            .iter()
            .filter(|call| keep(call))
            .map(|call| (0, call.standard()))
            .collect();
        if !calls.is_empty() {
            message.set("tool_calls", DeltaValue::List(calls));
        }
        let mut out = Vec::new();
        message.write(&mut out);
        out
    }
}

/// Calls of a turn that was cut or filtered are not complete.
fn runnable(reason: &str) -> bool {
    !matches!(reason, "length" | "content_filter")
}
