//! A Gemini response being rewritten.
//!
//! Every part of a content is a unit of its own and comes whole. Frames are fragments of a response: the shown parts of
//! a frame go out in a frame of the same bytes, with the ids of round 1 and the usage of all rounds; the finish reason
//! goes out once, in the last frame.

use bytes::Bytes;
use serde_json::{Map, Value};

use super::citations::{self, Places};
use super::partial::Assembler;
use super::run::ShownRuns;
use super::unit::{GeminiCall, GeminiUnit};
use crate::drive::{CallResult, GeneratedFile};
use crate::format::{CallSoFar, Codec, DecodedFrame, Ending, FramePart, Garbage, Layout, UnitKind};
use crate::frame::{SseEvent, push_data_crlf};
use crate::json::{self, Edits, Span, ValueKind};
use crate::usage::UsageSum;

/// See the module.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about one answer")]
pub(crate) struct GeminiCodec {
    streaming: bool,
    /// Members `responseId` and `modelVersion` of round 1, as JSON.
    response_id: Option<Vec<u8>>,
    model_version: Option<Vec<u8>>,
    id_text: String,
    units: Vec<GeminiUnit>,
    assembler: Assembler,
    gathered: usize,
    finish_reason: Option<Vec<u8>>,
    usage: UsageSum,
    round: u32,
    /// The round whose text was shown last.
    text_round: Option<u32>,
    /// The signature of a hidden call went to a part that is shown.
    moved: bool,
    visible: Vec<Vec<u8>>,
    shown_calls: Vec<String>,
    /// The round has started.
    started: bool,
    /// The frame that ended the turn, or the body: its other members go out with the end.
    end: Bytes,
    /// Shown parts of that frame, which go out with it: a client takes a frame without parts for a broken answer.
    ending: Vec<Vec<u8>>,
    runs: ShownRuns,
    /// What the rounds before say of their sources, for the one answer of a body.
    sources: Map<String, Value>,
    /// Bytes of text that are shown.
    text_bytes: u64,
    /// Bytes shown before the round's own text, with what separates them from it.
    before_bytes: u64,
    /// Parts that are shown of the rounds before.
    before_parts: usize,
    /// The part of the round that begins with [`GLUE`].
    glued: Option<usize>,
    /// The client has what the frame that ended the turn says of its sources.
    said_sources: bool,
}

/// What parts the texts of two rounds.
const GLUE: &str = "\n\n";

/// The content of a frame whose parts are all hidden: a client drops an answer from its history if a frame has none.
const NOTHING: &[u8] = br#"{"text":""}"#;

impl GeminiCodec {
    pub(super) fn new(runs: ShownRuns) -> Self {
        Self {
            runs,
            ..Self::default()
        }
    }

    fn read(&mut self, raw: Bytes) -> Result<DecodedFrame, Garbage> {
        let document = json::document(&raw).map_err(|error| Garbage(error.to_string()))?;
        if json::kind(&raw, document) != Some(ValueKind::Object) {
            return Err(Garbage("a response must be an object".to_owned()));
        }
        if json::get(&raw, document, "error").is_some() {
            return Ok(DecodedFrame {
                raw,
                parts: vec![FramePart::Error],
                layout: Layout::None,
            });
        }
        let mut parts = Vec::new();
        if !self.started {
            self.started = true;
            parts.push(FramePart::Start);
        }
        if self.response_id.is_none() {
            let member = |key| json::get(&raw, document, key).map(|span| span.of(&raw).to_vec());
            self.response_id = member("responseId");
            self.model_version = member("modelVersion");
            self.id_text = json::get_text(&raw, document, "responseId")
                .unwrap_or_default()
                .into_owned();
        }
        let candidate = json::get(&raw, document, "candidates")
            .and_then(|span| json::elements(&raw, span).ok())
            .and_then(|list| list.first().copied());
        let has_parts = self.read_parts(&raw, candidate, &mut parts);
        if has_parts && candidate.is_some_and(|candidate| citations::has_any(&raw, candidate)) {
            // Its parts may be hidden.
            parts.push(FramePart::Other);
        }
        if let Some(usage) = json::get(&raw, document, "usageMetadata") {
            self.usage.report(usage.of(&raw));
            parts.push(FramePart::Usage);
        }
        let reason = candidate.and_then(|span| json::get(&raw, span, "finishReason"));
        let blocked = json::path(&raw, document, &["promptFeedback", "blockReason"]).is_some();
        // The stream ends with its body: some models say a reason in every frame, and usage may follow the last one.
        if let Some(reason) = reason.filter(|span| !json::is_null(&raw, *span)) {
            self.finish_reason = Some(reason.of(&raw).to_vec());
            self.end = raw.clone();
            parts.push(FramePart::Stop {
                // 1: with `enum-encoding=int`, which some clients ask for, enums are numbers.
                runnable: matches!(reason.of(&raw), b"\"STOP\"" | b"1"),
            });
        } else if blocked {
            self.end = raw.clone();
            parts.push(FramePart::Stop { runnable: false });
        } else if !has_parts && self.end.is_empty() {
            // Nothing but citations, usage or what is not known here.
            parts.push(FramePart::Other);
        }
        Ok(DecodedFrame {
            raw,
            parts,
            layout: Layout::None,
        })
    }

    /// Takes in the parts of a frame; false if it has none.
    fn read_parts(&mut self, raw: &Bytes, candidate: Option<Span>, parts: &mut Vec<FramePart>) -> bool {
        let list = content_parts(raw, candidate);
        let has_parts = !list.is_empty();
        for span in list {
            self.gathered += span.len();
            // Pieces of a call: nothing is known before the last one.
            let Some(source) = self.assembler.push(raw, span) else {
                continue;
            };
            let id = u32::try_from(self.units.len()).unwrap_or(u32::MAX);
            let unit = GeminiUnit::new(source);
            parts.push(FramePart::Unit { id, kind: unit.kind() });
            parts.push(FramePart::UnitEnd { id });
            self.units.push(unit);
        }
        has_parts
    }

    /// A part as it is shown: the client's parts as they came, with the separator and signature that hiding makes needed.
    fn shown_part(&mut self, id: u32) -> Option<Vec<u8>> {
        let unit_index = usize::try_from(id).ok()?;
        let unit = self.units.get_mut(unit_index)?;
        unit.shown = true;
        let unit = unit.clone();
        let src = unit.raw.as_slice();
        let span = Span::new(0, src.len());
        let mut edits = Edits::new();
        if unit.kind() == UnitKind::Text
            && let Some(text) = json::get(src, span, "text").filter(|text| text.len() > 2)
        {
            if self.text_round.is_some_and(|round| round != self.round) {
                edits.insert(text.start + 1, "\\n\\n");
                self.glued = Some(unit_index);
                self.text_bytes += GLUE.len() as u64;
            }
            self.text_round = Some(self.round);
            self.text_bytes += json::text(src, text).map_or(0, |text| text.len()) as u64;
        }
        let has_signature = json::get(src, span, "thoughtSignature").is_some();
        if !has_signature && let Some(signature) = self.signature_before(unit_index) {
            self.moved = true;
            edits.insert(
                src.len() - 1,
                [br#","thoughtSignature":"#, signature.as_slice()].concat(),
            );
        }
        if let Some(call) = &unit.call {
            self.shown_calls.push(call.id.clone());
        }
        Some(edits.apply(src))
    }

    /// Calls of the turn that the client does not see.
    fn hidden_calls(&self) -> impl Iterator<Item = &GeminiCall> {
        let hidden = self.units.iter().filter(|unit| !unit.shown);
        hidden.filter_map(|unit| unit.call.as_ref())
    }

    /// The signature of a hidden call before a part, once in a turn: the first call that a client sends back must have one.
    fn signature_before(&self, unit_index: usize) -> Option<Vec<u8>> {
        let before = self.units.iter().take(if self.moved { 0 } else { unit_index });
        let mut hidden = before.filter(|unit| !unit.shown);
        hidden.find_map(|unit| unit.call.as_ref()?.signature.clone())
    }

    /// A frame or body with these parts in place of its own, the ids of round 1 and the usage of all rounds. The one that
    /// ends the answer has the usage in any case.
    fn rewritten(&self, raw: &[u8], parts: &[Vec<u8>], reason: Option<&[u8]>, is_end: bool) -> Vec<u8> {
        let mut edits = Edits::new();
        let document = Span::new(json::space(raw, 0), raw.len());
        let candidate = candidate(raw);
        let list = [b"[", parts.join(&b',').as_slice(), b"]"].concat();
        let content = [br#"{"role":"model","parts":"#, list.as_slice(), b"}"].concat();
        if let Some(candidate) = candidate {
            let own = json::get(raw, candidate, "content");
            let member = |separator: &[u8]| [br#""content":"#, content.as_slice(), separator].concat();
            match (own, own.and_then(|own| json::get(raw, own, "parts"))) {
                (_, Some(list_of)) => edits.replace(list_of, list),
                _ if parts.is_empty() => {}
                // Without text a model writes a content that has no parts.
                (Some(own), None) => edits.replace(own, content.clone()),
                (None, None) => edits.insert(candidate.start + 1, member(separator(raw, candidate))),
            }
            if let (Some(reason), Some(own)) = (reason, json::get(raw, candidate, "finishReason")) {
                edits.replace(own, reason.to_vec());
            }
            if is_end && self.said_sources {
                citations::remove(raw, candidate, &mut edits);
            }
            let said = self.cited(raw, candidate);
            for (key, value) in said.into_iter().filter(|_| !(is_end && self.said_sources)) {
                match json::get(raw, candidate, &key) {
                    Some(own) => edits.replace(own, value.to_string()),
                    None if separator(raw, candidate).is_empty() => {}
                    None => {
                        let member = format!(r#""{key}":{value}"#).into_bytes();
                        edits.insert(
                            candidate.start + 1,
                            [member.as_slice(), separator(raw, candidate)].concat(),
                        );
                    }
                }
            }
        }
        let usage = self.usage.total();
        let mut added = Vec::new();
        // A blocked round has no candidate; that of earlier rounds stays.
        if candidate.is_none() && !parts.is_empty() && json::get(raw, document, "candidates").is_none() {
            added.push([br#""candidates":[{"content":"#, content.as_slice(), br#","index":0}]"#].concat());
        }
        if let Some(usage) = usage.as_ref().filter(|_| is_end)
            && json::get(raw, document, "usageMetadata").is_none()
        {
            // It came in a frame of its own, or not in every round.
            added.push([br#""usageMetadata":"#, usage.as_slice()].concat());
        }
        if !added.is_empty() {
            let added = added.join(&b',');
            edits.insert(
                document.start + 1,
                [added.as_slice(), separator(raw, document)].concat(),
            );
        }
        let members = [
            ("usageMetadata", &usage),
            ("modelVersion", &self.model_version),
            ("responseId", &self.response_id),
        ];
        for (key, value) in members {
            if let (Some(value), Some(own)) = (value, json::get(raw, document, key)) {
                edits.replace(own, value.clone());
            }
        }
        edits.apply(raw)
    }

    /// What a candidate says of its sources where it differs in the answer: places, and in a body what earlier rounds say.
    fn cited(&self, raw: &[u8], candidate: Span) -> Map<String, Value> {
        // An answer without anything hidden stays as it came.
        if self.before_parts == 0 && self.sources.is_empty() && self.hidden_calls().next().is_none() {
            return Map::new();
        }
        let part: &dyn Fn(Option<u64>) -> (u64, u64) = &|number| self.part_place(number);
        let places = Places {
            text_bytes: self.before_bytes,
            part: (!self.streaming).then_some(part),
        };
        let mut said = self.sources.clone();
        citations::merge(&mut said, citations::read(raw, candidate, &places));
        said
    }

    /// Where a part of the round is in the answer, and the bytes that were put before its text.
    fn part_place(&self, number: Option<u64>) -> (u64, u64) {
        let of_text = || self.units.iter().position(|unit| unit.kind() == UnitKind::Text);
        let number = number.and_then(|number| usize::try_from(number).ok());
        let unit_index = number.or_else(of_text).unwrap_or_default();
        let shown = self.units.iter().take(unit_index).filter(|unit| unit.shown).count();
        let glue = if self.glued == Some(unit_index) { GLUE.len() } else { 0 };
        ((self.before_parts + shown) as u64, glue as u64)
    }

    /// Keeps what the running round says of its sources, if its text is shown.
    fn keep_sources(&mut self) {
        let candidate = candidate(&self.end);
        let is_shown = self
            .units
            .iter()
            .any(|unit| unit.shown && unit.kind() == UnitKind::Text);
        if let Some(candidate) = candidate.filter(|_| is_shown && !self.streaming) {
            self.sources = self.cited(&self.end, candidate);
        }
    }

    /// A frame of nothing but these parts, and of what `raw` says of its sources: the frame that ends a turn is held, its
    /// parts may not be.
    fn plain(&self, parts: &[Vec<u8>], raw: &[u8]) -> Vec<u8> {
        let mut frame = br#"{"candidates":[{"content":{"role":"model","parts":["#.to_vec();
        frame.extend_from_slice(&parts.join(&b','));
        frame.extend_from_slice(br#"]},"index":0"#);
        for (key, value) in candidate(raw)
            .map(|candidate| self.cited(raw, candidate))
            .unwrap_or_default()
        {
            frame.extend_from_slice(format!(r#","{key}":{value}"#).as_bytes());
        }
        frame.extend_from_slice(b"}]");
        let usage = self.usage.total();
        let members = [
            ("usageMetadata", &usage),
            ("modelVersion", &self.model_version),
            ("responseId", &self.response_id),
        ];
        for (key, value) in members {
            if let Some(value) = value {
                frame.extend_from_slice(format!(r#","{key}":"#).as_bytes());
                frame.extend_from_slice(value);
            }
        }
        frame.push(b'}');
        frame
    }

    /// The part that shows a call of the tool that runs programs.
    fn code_part(&mut self, unit: u32) -> Option<Vec<u8>> {
        let unit_index = usize::try_from(unit).ok()?;
        let call = self.units.get(unit_index)?.call.clone();
        let call = call.filter(|call| self.runs.shows(&call.name))?;
        let signature = self.signature_before(unit_index + 1);
        self.moved |= signature.is_some();
        Some(self.runs.code_part(&self.id_text, &call, signature.as_deref()))
    }

    /// Shows Knack's parts.
    fn show_own(&mut self, parts: Vec<Vec<u8>>, out: &mut Vec<u8>) {
        if self.streaming && !parts.is_empty() {
            self.send_ending(out);
            push_data_crlf(out, &self.plain(&parts, b""));
        }
        self.visible.extend(parts);
    }

    /// Sends the parts that waited for the end: the answer goes on.
    fn send_ending(&mut self, out: &mut Vec<u8>) {
        if !self.ending.is_empty() {
            let parts = std::mem::take(&mut self.ending);
            push_data_crlf(out, &self.plain(&parts, b""));
        }
    }
}

/// What follows a member that is put at the beginning of an object.
fn separator(raw: &[u8], object: Span) -> &'static [u8] {
    let is_empty = json::members(raw, object).is_ok_and(|members| members.is_empty());
    if is_empty { b"" } else { b"," }
}

/// The first candidate of a frame or body.
fn candidate(raw: &[u8]) -> Option<Span> {
    let document = Span::new(json::space(raw, 0), raw.len());
    let list = json::get(raw, document, "candidates")?;
    json::first_element(raw, list)
}

/// The parts of a candidate.
fn content_parts(raw: &[u8], candidate: Option<Span>) -> Vec<Span> {
    candidate
        .and_then(|span| json::path(raw, span, &["content", "parts"]))
        .and_then(|array| json::elements(raw, array).ok())
        .unwrap_or_default()
}

impl Codec for GeminiCodec {
    fn begin_round(&mut self) {
        self.keep_sources();
        self.before_parts = self.visible.len();
        self.before_bytes = match self.text_bytes {
            0 => 0,
            bytes => bytes + GLUE.len() as u64,
        };
        self.glued = None;
        self.said_sources = false;
        self.usage.close_round();
        self.started = false;
        self.round += 1;
        self.units.clear();
        self.assembler = Assembler::default();
        self.gathered = 0;
        self.finish_reason = None;
        self.moved = false;
        self.runs.begin_round();
        self.end = Bytes::new();
    }

    fn frame(&mut self, event: SseEvent) -> Result<DecodedFrame, Garbage> {
        self.streaming = true;
        self.read(event.data)
    }

    fn body(&mut self, body: Bytes) -> Result<DecodedFrame, Garbage> {
        let mut frame = self.read(body)?;
        self.end = frame.raw.clone();
        if !frame
            .parts
            .iter()
            .any(|part| matches!(part, FramePart::Stop { .. } | FramePart::Error))
        {
            frame.parts.push(FramePart::Stop { runnable: false });
        }
        Ok(frame)
    }

    fn call(&self, unit: u32) -> Option<CallSoFar<'_>> {
        let call = self.units.get(usize::try_from(unit).ok()?)?.call.as_ref()?;
        Some(CallSoFar {
            name: &call.name,
            named: true,
            id: &call.id,
        })
    }

    fn arguments(&self, unit: u32) -> String {
        let unit = usize::try_from(unit).ok().and_then(|unit| self.units.get(unit));
        unit.and_then(|unit| unit.call.as_ref())
            .map(|call| call.arguments.clone())
            .unwrap_or_default()
    }

    fn show(&mut self, frame: &DecodedFrame, shown: &[bool], out: &mut Vec<u8>) {
        let mut parts = Vec::new();
        let mut other = false;
        for (part, shown) in frame.parts.iter().zip(shown) {
            match part {
                FramePart::Error if *shown => return push_data_crlf(out, &frame.raw),
                FramePart::Other => other |= shown,
                FramePart::Unit { id, .. } if *shown => parts.extend(self.shown_part(*id)),
                _ => {}
            }
        }
        // Beside text that is held, the rest of its frame waits too.
        let is_held = |part: &FramePart| matches!(part, FramePart::Unit { kind, .. } if *kind != UnitKind::Call);
        if parts.is_empty() && (!other || frame.parts.iter().any(is_held)) {
            return;
        }
        self.visible.extend(parts.iter().cloned());
        if !self.streaming {
            return;
        }
        self.send_ending(out);
        if parts.is_empty() && frame.parts.iter().any(|part| matches!(part, FramePart::Unit { .. })) {
            parts.push(NOTHING.to_vec());
        }
        let ends = frame.parts.iter().any(|part| matches!(part, FramePart::Stop { .. }));
        if !ends {
            push_data_crlf(out, &self.rewritten(&frame.raw, &parts, None, false));
        } else if self.hidden_calls().next().is_some() {
            // The answer may go on after this frame.
            push_data_crlf(out, &self.plain(&parts, &frame.raw));
            self.said_sources = true;
        } else {
            self.ending = parts;
        }
    }

    /// As `executableCode`, before anything runs.
    fn show_calls(&mut self, units: &[u32], out: &mut Vec<u8>) {
        let parts = units.iter().filter_map(|unit| self.code_part(*unit)).collect();
        self.show_own(parts, out);
    }

    /// As `codeExecutionResult`, each with the images that the run made.
    fn show_results(&mut self, results: &[CallResult], out: &mut Vec<u8>) {
        let parts = self.runs.result_parts(results);
        self.show_own(parts, out);
    }

    fn turn(&self) -> Vec<Bytes> {
        let units = self.units.iter().filter(|unit| !unit.is_empty());
        let parts: Vec<&[u8]> = units.map(|unit| unit.raw.as_slice()).collect();
        if parts.is_empty() {
            return Vec::new();
        }
        let mut out = br#"{"role":"model","parts":["#.to_vec();
        out.extend_from_slice(&parts.join(&b","[..]));
        out.extend_from_slice(b"]}");
        vec![Bytes::from(out)]
    }

    fn gathered(&self) -> usize {
        self.gathered
    }

    fn finish(&mut self, ending: Ending, _: &[GeneratedFile], out: &mut Vec<u8>) {
        let reason = match ending {
            Ending::Limit => Some(&br#""TOO_MANY_TOOL_CALLS""#[..]),
            Ending::AsCame | Ending::ClientCalls => self.finish_reason.as_deref(),
        };
        // Streamed parts are not repeated; a body has everything at once.
        let mut parts = if self.streaming {
            std::mem::take(&mut self.ending)
        } else {
            self.visible.clone()
        };
        if parts.is_empty() && self.units.iter().any(|unit| unit.call.is_some()) {
            parts.push(NOTHING.to_vec());
        }
        let end = self.rewritten(&self.end, &parts, reason, true);
        if self.streaming {
            push_data_crlf(out, &end);
        } else {
            out.extend_from_slice(&end);
        }
    }

    fn visible(&self) -> Vec<Bytes> {
        if self.visible.is_empty() {
            return Vec::new();
        }
        let mut out = br#"{"role":"model","parts":["#.to_vec();
        out.extend_from_slice(&self.visible.join(&b','));
        out.extend_from_slice(b"]}");
        vec![Bytes::from(out)]
    }

    fn response_id(&self) -> &str {
        &self.id_text
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
