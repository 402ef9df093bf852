//! One Messages answer being rewritten: events and bodies in, events or one body out.

use bytes::Bytes;

use super::block::ContentBlock;
use crate::drive::{CallResult, GeneratedFile};
use crate::format::run_ids::RunIds;
use crate::format::{self, CallSoFar, Codec, CodecOptions, DecodedFrame, Ending, FramePart, Garbage, UnitKind};
use crate::frame::{SseEvent, push_event};
use crate::json::{self, Edits, Member, Span, ValueKind};
use crate::usage::UsageSum;

/// Notes on one event.
#[derive(Debug, Clone, Default)]
pub(crate) struct MessagesLayout {
    /// `type`, as written.
    kind: Span,
    /// The value of `index`.
    index: Option<Span>,
    /// Number of the block in the turn.
    block: Option<usize>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct MessagesCodec {
    pub(super) options: CodecOptions,
    pub(super) id: String,
    pub(super) usage: UsageSum,
    pub(super) next_index: u64,
    /// Blocks that the client has, except those of the running turn that are not folded in yet.
    pub(super) shown: Vec<Bytes>,
    shown_calls: Vec<String>,
    pub(super) runs: RunIds,
    pub(super) rounds: u32,
    pub(super) turn: MessagesTurn,
}

/// The running turn, as far as it has come.
#[derive(Debug, Default)]
pub(super) struct MessagesTurn {
    pub(super) blocks: Vec<ContentBlock>,
    /// The event `message_delta`.
    pub(super) delta: Option<Bytes>,
    /// The body, if it is not a stream.
    pub(super) body: Option<Bytes>,
    gathered: usize,
}

impl MessagesCodec {
    pub(super) fn new(options: CodecOptions) -> Self {
        Self {
            options,
            rounds: 1,
            ..Self::default()
        }
    }

    fn open_block(&mut self, index: u64, start: Bytes) -> FramePart {
        self.turn.gathered += start.len();
        let block = ContentBlock::new(index, start);
        let kind = match block.kind.as_str() {
            "tool_use" => UnitKind::Call,
            "text" => UnitKind::Text,
            _ => UnitKind::Live,
        };
        self.turn.blocks.push(block);
        FramePart::Unit {
            id: number(self.turn.blocks.len() - 1),
            kind,
        }
    }

    /// The place of the newest open block with this index.
    fn open_block_at(&self, index: Option<u64>) -> Option<usize> {
        let mut blocks = self.turn.blocks.iter();
        blocks.rposition(|block| Some(block.index) == index && !block.closed)
    }

    fn report_usage(&mut self, raw: &[u8], holder: Span) {
        if let Some(usage) =
            json::get(raw, holder, "usage").filter(|span| json::kind(raw, *span) == Some(ValueKind::Object))
        {
            self.usage.report(usage.of(raw));
        }
    }

    /// Moves the shown blocks of the turn to those that the client has.
    pub(super) fn fold(&mut self) {
        for block in self
            .turn
            .blocks
            .iter_mut()
            .filter(|block| block.shown.is_some() && !block.folded)
        {
            block.folded = true;
            self.shown.push(block.json());
        }
    }

    /// A new number for a block that the client sees.
    pub(super) fn take_index(&mut self) -> u64 {
        self.next_index += 1;
        self.next_index - 1
    }

    fn mark_shown(&mut self, at: usize) -> u64 {
        let next = self.next_index;
        let Some(block) = self.turn.blocks.get_mut(at) else {
            return next;
        };
        if let Some(index) = block.shown {
            return index;
        }
        block.shown = Some(next);
        self.next_index += 1;
        if block.kind == "tool_use" {
            self.shown_calls.push(block.id.clone());
        }
        next
    }

    /// Writes an event with these edits, its block numbered as the client counts.
    fn write_event(&mut self, raw: &Bytes, layout: &MessagesLayout, mut edits: Edits, out: &mut Vec<u8>) {
        let name = json::raw_text(raw, layout.kind).unwrap_or(b"message");
        let index = layout.block.map(|at| self.mark_shown(at));
        if let (Some(span), Some(index)) = (layout.index, index)
            && json::uint(raw, span) != Some(index)
        {
            edits.replace(span, index.to_string());
        }
        if edits.is_empty() {
            push_event(out, name, raw);
        } else {
            push_event(out, name, &edits.apply(raw));
        }
    }

    /// Errors: arguments that belong to no open call. They are not shown as they came, since they may be those of a hidden
    /// one, and a call without them would be another call.
    fn input_has_call(&self, raw: &[u8], delta: Option<Span>, at: Option<usize>) -> Result<(), Garbage> {
        let kind = delta.and_then(|delta| json::get_text(raw, delta, "type"));
        // Kinds that this gateway does not know may have arguments too.
        let may_call = |at: usize| !matches!(&*self.turn.blocks[at].kind, "text" | "thinking");
        if kind.as_deref() == Some("input_json_delta") && !at.is_some_and(may_call) {
            let text = "an input_json_delta has an index that no open call has";
            return Err(Garbage(text.to_owned()));
        }
        Ok(())
    }

    /// An event of an open block: bytes, or its end. Errors: arguments that belong to no open call.
    fn block_event(
        &mut self,
        raw: &Bytes,
        delta: Option<Span>,
        closes: bool,
        layout: &mut MessagesLayout,
    ) -> Result<FramePart, Garbage> {
        let index = layout.index.and_then(|span| json::uint(raw, span));
        let at = self.open_block_at(index);
        self.input_has_call(raw, delta, at)?;
        let Some(at) = at else {
            return Ok(FramePart::Other);
        };
        layout.block = Some(at);
        let block = &mut self.turn.blocks[at];
        if closes {
            block.closed = true;
            return Ok(FramePart::UnitEnd { id: number(at) });
        }
        if let Some(delta) = delta {
            self.turn.gathered += delta.len();
            block.merge(raw, delta);
        }
        Ok(FramePart::UnitBytes { id: number(at) })
    }

    /// Errors: arguments that belong to no open call.
    fn event(
        &mut self,
        raw: &Bytes,
        top: &[Member],
        kind: &str,
        layout: &mut MessagesLayout,
    ) -> Result<Vec<FramePart>, Garbage> {
        let value = |key| json::member(raw, top, key).map(|member| member.value);
        let whole = Span::new(json::space(raw, 0), raw.len());
        let parts = match kind {
            "message_start" => {
                if let Some(message) = value("message") {
                    if self.id.is_empty() {
                        self.id = json::get_text(raw, message, "id").unwrap_or_default().into_owned();
                    }
                    self.report_usage(raw, message);
                }
                vec![FramePart::Start]
            }
            "content_block_start" => {
                layout.index = value("index");
                let index = layout.index.and_then(|span| json::uint(raw, span)).unwrap_or_default();
                let Some(start) =
                    value("content_block").filter(|span| json::kind(raw, *span) == Some(ValueKind::Object))
                else {
                    return Ok(vec![FramePart::Other]);
                };
                layout.block = Some(self.turn.blocks.len());
                vec![self.open_block(index, raw.slice(start.start..start.end))]
            }
            "content_block_delta" | "content_block_stop" => {
                layout.index = value("index");
                let closes = kind == "content_block_stop";
                vec![self.block_event(raw, value("delta"), closes, layout)?]
            }
            "message_delta" => {
                self.report_usage(raw, whole);
                self.turn.delta = Some(raw.clone());
                let reason = value("delta").and_then(|delta| json::get_text(raw, delta, "stop_reason"));
                vec![
                    FramePart::Usage,
                    FramePart::Stop {
                        runnable: reason.as_deref() == Some("tool_use"),
                    },
                ]
            }
            "message_stop" => vec![FramePart::End],
            "error" => vec![FramePart::Error],
            _ => vec![FramePart::Other],
        };
        Ok(parts)
    }
}

impl Codec for MessagesCodec {
    fn begin_round(&mut self) {
        self.fold();
        self.usage.close_round();
        self.turn = MessagesTurn::default();
        self.runs.begin_round();
        self.rounds += 1;
    }

    fn frame(&mut self, event: SseEvent) -> Result<DecodedFrame, Garbage> {
        let raw = event.data;
        let top = json::object(&raw).map_err(|error| Garbage(error.to_string()))?;
        let written = json::member(&raw, &top, "type").map(|member| member.value);
        let kind = match written.and_then(|span| json::text(&raw, span)) {
            Some(kind) => kind.into_owned(),
            None => String::from_utf8_lossy(&event.name).into_owned(),
        };
        let mut layout = MessagesLayout {
            kind: written.unwrap_or_default(),
            ..MessagesLayout::default()
        };
        let parts = self.event(&raw, &top, &kind, &mut layout)?;
        Ok(DecodedFrame {
            raw,
            parts,
            layout: format::Layout::Messages(layout),
        })
    }

    fn body(&mut self, body: Bytes) -> Result<DecodedFrame, Garbage> {
        let top = json::object(&body).map_err(|error| Garbage(error.to_string()))?;
        let value = |key| json::member(&body, &top, key).map(|member| member.value);
        let layout = format::Layout::Messages(MessagesLayout::default());
        let Some(content) = value("content").and_then(|span| json::elements(&body, span).ok()) else {
            return Ok(DecodedFrame {
                raw: body,
                parts: vec![FramePart::Error],
                layout,
            });
        };
        if self.id.is_empty() {
            self.id = value("id")
                .and_then(|span| json::text(&body, span))
                .unwrap_or_default()
                .into_owned();
        }
        let mut parts = vec![FramePart::Start];
        for (at, block) in content.iter().enumerate() {
            parts.push(self.open_block(at as u64, body.slice(block.start..block.end)));
        }
        self.report_usage(&body, Span::new(json::space(&body, 0), body.len()));
        let reason = value("stop_reason").and_then(|span| json::text(&body, span));
        parts.extend([
            FramePart::Usage,
            FramePart::Stop {
                runnable: reason.as_deref() == Some("tool_use"),
            },
            FramePart::End,
        ]);
        self.turn.body = Some(body.clone());
        Ok(DecodedFrame {
            raw: body,
            parts,
            layout,
        })
    }

    fn call(&self, unit: u32) -> Option<CallSoFar<'_>> {
        let block = self.turn.blocks.get(usize::try_from(unit).ok()?)?;
        Some(CallSoFar {
            name: &block.name,
            named: true,
            id: &block.id,
        })
    }

    fn arguments(&self, unit: u32) -> String {
        let block = usize::try_from(unit).ok().and_then(|unit| self.turn.blocks.get(unit));
        block.map(ContentBlock::arguments).unwrap_or_default()
    }

    fn show(&mut self, frame: &DecodedFrame, shown: &[bool], out: &mut Vec<u8>) {
        if self.turn.body.is_some() {
            for (part, shown) in frame.parts.iter().zip(shown) {
                if let FramePart::Unit { id, .. } = part
                    && *shown
                {
                    self.mark_shown(*id as usize);
                }
            }
            return;
        }
        let format::Layout::Messages(layout) = &frame.layout else {
            return;
        };
        self.write_event(&frame.raw, layout, Edits::new(), out);
    }

    fn show_text(&mut self, frames: &[(DecodedFrame, Vec<bool>)], out: &mut Vec<u8>) {
        if self.turn.body.is_some() {
            for (frame, shown) in frames {
                self.show(frame, shown, out);
            }
            return;
        }
        let piece = |frame: &DecodedFrame| text_piece(&frame.raw);
        let mut whole = Some(
            frames
                .iter()
                .filter_map(|(frame, _)| json::raw_text(&frame.raw, piece(frame)?))
                .collect::<Vec<_>>()
                .concat(),
        );
        for (frame, _) in frames {
            let format::Layout::Messages(layout) = &frame.layout else {
                continue;
            };
            let mut edits = Edits::new();
            if let Some(span) = piece(frame) {
                // The first one takes the text of all.
                let Some(whole) = whole.take() else { continue };
                edits.replace(span, [b"\"", whole.as_slice(), b"\""].concat());
            }
            self.write_event(&frame.raw, layout, edits, out);
        }
    }

    fn show_calls(&mut self, units: &[u32], out: &mut Vec<u8>) {
        self.write_calls(units, out);
    }

    fn show_results(&mut self, results: &[CallResult], out: &mut Vec<u8>) {
        self.write_results(results, out);
    }

    fn turn(&self) -> Vec<Bytes> {
        let blocks: Vec<&ContentBlock> = self.turn.blocks.iter().filter(|block| !block.is_blank()).collect();
        if blocks.iter().all(|block| block.is_thinking()) {
            return Vec::new();
        }
        let blocks: Vec<Bytes> = blocks.into_iter().map(ContentBlock::json).collect();
        let joined = blocks.join(&b',');
        vec![
            [b"{\"role\":\"assistant\",\"content\":[", joined.as_slice(), b"]}"]
                .concat()
                .into(),
        ]
    }

    fn gathered(&self) -> usize {
        self.turn.gathered
    }

    fn finish(&mut self, ending: Ending, files: &[GeneratedFile], out: &mut Vec<u8>) {
        match self.turn.body.take() {
            Some(body) => self.finish_body(&body, ending, files, out),
            None => self.finish_stream(ending, out),
        }
    }

    fn visible(&self) -> Vec<Bytes> {
        let running = self
            .turn
            .blocks
            .iter()
            .filter(|block| block.shown.is_some() && !block.folded)
            .map(ContentBlock::json);
        let blocks: Vec<Bytes> = self.shown.iter().cloned().chain(running).collect();
        let joined = blocks.join(&b',');
        vec![
            [b"{\"role\":\"assistant\",\"content\":[", joined.as_slice(), b"]}"]
                .concat()
                .into(),
        ]
    }

    fn response_id(&self) -> &str {
        &self.id
    }

    fn state_id(&self) -> &'static str {
        ""
    }

    fn shown_calls(&self) -> &[String] {
        &self.shown_calls
    }

    fn usage(&self) -> Option<Vec<u8>> {
        self.usage.total()
    }
}

/// The text of an event that brings a piece of text.
fn text_piece(raw: &[u8]) -> Option<Span> {
    let delta = json::get(raw, Span::new(json::space(raw, 0), raw.len()), "delta")?;
    (json::get_text(raw, delta, "type")? == "text_delta").then(|| json::get(raw, delta, "text"))?
}

fn number(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}
