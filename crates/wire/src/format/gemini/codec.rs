//! A Gemini response being rewritten.
//!
//! Every part of a content is a unit of its own and comes whole. Frames are fragments of a response: the shown parts of
//! a frame go out in a frame of the same bytes, with the ids of round 1 and the usage of all rounds; the finish reason
//! goes out once, in the last frame.

use bytes::Bytes;

use super::partial::Assembler;
use crate::drive::{CallResult, GeneratedFile};
use crate::format::{CallSoFar, Codec, Decoded, Ending, Garbage, Layout, Part, UnitKind};
use crate::frame::{SseEvent, push_data_crlf};
use crate::json::{self, Edits, Kind, Span};
use crate::usage::UsageSum;

/// What a part is.
#[derive(Debug, Clone)]
struct Unit {
    raw: Vec<u8>,
    call: Option<Call>,
}

#[derive(Debug, Clone)]
struct Call {
    id: String,
    name: String,
    arguments: String,
    signature: Option<Vec<u8>>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct GeminiCodec {
    streaming: bool,
    /// Members `responseId` and `modelVersion` of round 1, as JSON.
    response_id: Option<Vec<u8>>,
    model_version: Option<Vec<u8>>,
    id_text: String,
    units: Vec<Unit>,
    assembler: Assembler,
    gathered: usize,
    finish_reason: Option<Vec<u8>>,
    usage: UsageSum,
    round: u32,
    /// The round whose text was shown last.
    text_round: Option<u32>,
    /// A hidden call's signature that waits for the next shown part of its turn.
    signature: Option<Vec<u8>>,
    visible: Vec<Vec<u8>>,
    shown_calls: Vec<String>,
    /// The round has begun.
    started: bool,
    /// The frame that ended the turn, or the body: what else stands in it goes out with the end.
    end: Bytes,
}

impl GeminiCodec {
    fn read(&mut self, raw: Bytes) -> Result<Decoded, Garbage> {
        let document = json::document(&raw).map_err(|error| Garbage(error.to_string()))?;
        if json::kind(&raw, document) != Some(Kind::Object) {
            return Err(Garbage("a response must be an object".to_owned()));
        }
        if json::get(&raw, document, "error").is_some() {
            return Ok(Decoded {
                raw,
                parts: vec![Part::Error],
                layout: Layout::None,
            });
        }
        let mut parts = Vec::new();
        if !self.started {
            self.started = true;
            parts.push(Part::Start);
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
        self.read_parts(&raw, candidate, &mut parts);
        if let Some(usage) = json::get(&raw, document, "usageMetadata") {
            self.usage.report(usage.of(&raw));
            parts.push(Part::Usage);
        }
        let reason = candidate.and_then(|span| json::get(&raw, span, "finishReason"));
        let blocked = json::path(&raw, document, &["promptFeedback", "blockReason"]).is_some();
        if let Some(reason) = reason.filter(|span| !json::is_null(&raw, *span)) {
            self.finish_reason = Some(reason.of(&raw).to_vec());
            self.end = raw.clone();
            parts.push(Part::Stop {
                runnable: reason.of(&raw) == b"\"STOP\"",
            });
            parts.push(Part::End);
        } else if blocked {
            self.end = raw.clone();
            parts.push(Part::Stop { runnable: false });
            parts.push(Part::End);
        }
        Ok(Decoded {
            raw,
            parts,
            layout: Layout::None,
        })
    }

    fn read_parts(&mut self, raw: &Bytes, candidate: Option<Span>, parts: &mut Vec<Part>) {
        let array = candidate.and_then(|span| json::path(raw, span, &["content", "parts"]));
        for span in array
            .and_then(|array| json::elements(raw, array).ok())
            .unwrap_or_default()
        {
            self.gathered += span.len();
            // Pieces of a call: nothing is known before the last one.
            let Some(source) = self.assembler.push(raw, span) else {
                continue;
            };
            let id = u32::try_from(self.units.len()).unwrap_or(u32::MAX);
            let unit = Unit::new(source);
            parts.push(Part::Unit { id, kind: unit.kind() });
            parts.push(Part::UnitEnd { id });
            self.units.push(unit);
        }
    }

    /// A part as it is shown: the client's parts as they came, with the separator and signature that hiding makes needed.
    fn shown_part(&mut self, id: u32) -> Option<Vec<u8>> {
        let unit = self.units.get(usize::try_from(id).ok()?)?.clone();
        let src = unit.raw.as_slice();
        let span = Span::new(0, src.len());
        let mut edits = Edits::new();
        if unit.kind() == UnitKind::Text
            && let Some(text) = json::get(src, span, "text").filter(|text| text.len() > 2)
        {
            if self.text_round.is_some_and(|round| round != self.round) {
                edits.insert(text.start + 1, "\\n\\n");
            }
            self.text_round = Some(self.round);
        }
        let has_signature = json::get(src, span, "thoughtSignature").is_some();
        if !has_signature && let Some(signature) = self.signature.take() {
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

    /// A frame or body with these parts in place of its own, the ids of round 1 and the usage of all rounds.
    fn rewritten(&self, raw: &[u8], parts: &[Vec<u8>], reason: Option<&[u8]>) -> Vec<u8> {
        let mut edits = Edits::new();
        let document = Span::new(0, raw.len());
        let candidate = json::get(raw, document, "candidates")
            .and_then(|span| json::elements(raw, span).ok())
            .and_then(|list| list.first().copied());
        if let Some(candidate) = candidate {
            let list = [b"[", parts.join(&b',').as_slice(), b"]"].concat();
            match json::path(raw, candidate, &["content", "parts"]) {
                Some(own) => edits.replace(own, list),
                None if parts.is_empty() => {}
                None => {
                    let content = [br#""content":{"role":"model","parts":"#, list.as_slice(), b"},"].concat();
                    edits.insert(candidate.start + 1, content);
                }
            }
            if let (Some(reason), Some(own)) = (reason, json::get(raw, candidate, "finishReason")) {
                edits.replace(own, reason.to_vec());
            }
        }
        let usage = self.usage.total();
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

    /// A frame of nothing but these parts: the frame that ends a turn is held, its parts are not.
    fn plain(&self, parts: &[Vec<u8>]) -> Vec<u8> {
        let mut frame = br#"{"candidates":[{"content":{"role":"model","parts":[]},"index":0}]"#.to_vec();
        for key in ["usageMetadata", "modelVersion", "responseId"] {
            frame.extend_from_slice(format!(r#","{key}":null"#).as_bytes());
        }
        frame.push(b'}');
        self.rewritten(&frame, parts, None)
    }
}

impl Unit {
    fn new(raw: Vec<u8>) -> Self {
        let span = Span::new(0, raw.len());
        let call = json::get(&raw, span, "functionCall").map(|call| Call {
            id: json::get_text(&raw, call, "id").unwrap_or_default().into_owned(),
            name: json::get_text(&raw, call, "name").unwrap_or_default().into_owned(),
            arguments: json::get(&raw, call, "args")
                .map(|args| String::from_utf8_lossy(args.of(&raw)).into_owned())
                .unwrap_or_default(),
            signature: json::get(&raw, span, "thoughtSignature").map(|value| value.of(&raw).to_vec()),
        });
        Self { raw, call }
    }

    fn kind(&self) -> UnitKind {
        let span = Span::new(0, self.raw.len());
        let thought = json::get(&self.raw, span, "thought").is_some_and(|value| value.of(&self.raw) == b"true");
        if self.call.is_some() {
            UnitKind::Call
        } else if !thought && json::get(&self.raw, span, "text").is_some() {
            UnitKind::Text
        } else {
            UnitKind::Live
        }
    }
}

impl Codec for GeminiCodec {
    fn begin_round(&mut self) {
        self.usage.close_round();
        self.started = false;
        self.round += 1;
        self.units.clear();
        self.assembler = Assembler::default();
        self.gathered = 0;
        self.finish_reason = None;
        self.signature = None;
    }

    fn frame(&mut self, event: SseEvent) -> Result<Decoded, Garbage> {
        self.streaming = true;
        self.read(event.data)
    }

    fn body(&mut self, body: Bytes) -> Result<Decoded, Garbage> {
        self.read(body)
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

    fn show(&mut self, frame: &Decoded, shown: &[bool], out: &mut Vec<u8>) {
        let mut parts = Vec::new();
        for (part, shown) in frame.parts.iter().zip(shown) {
            let Part::Unit { id, .. } = part else { continue };
            if *shown {
                parts.extend(self.shown_part(*id));
            } else if let Some(Unit { call: Some(call), .. }) =
                usize::try_from(*id).ok().and_then(|id| self.units.get(id))
            {
                self.signature = self.signature.take().or_else(|| call.signature.clone());
            }
        }
        if parts.is_empty() {
            return;
        }
        if self.streaming {
            let ends = frame.parts.iter().any(|part| matches!(part, Part::Stop { .. }));
            let bytes = if ends {
                self.plain(&parts)
            } else {
                self.rewritten(&frame.raw, &parts, None)
            };
            push_data_crlf(out, &bytes);
        }
        self.visible.extend(parts);
    }

    fn show_calls(&mut self, _: &[u32], _: &mut Vec<u8>) {}

    fn show_results(&mut self, _: &[CallResult], _: &mut Vec<u8>) {}

    fn turn(&self) -> Vec<Bytes> {
        // A part without any member is refused; clients make such parts of fields that they do not know.
        let parts: Vec<&[u8]> = self
            .units
            .iter()
            .map(|unit| unit.raw.as_slice())
            .filter(|raw| *raw != b"{}")
            .collect();
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
        // What was streamed is not said again; a body says everything at once.
        let parts = if self.streaming { &[] } else { self.visible.as_slice() };
        let end = self.rewritten(&self.end, parts, reason);
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

    fn shown_calls(&self) -> &[String] {
        &self.shown_calls
    }

    fn usage(&self) -> Option<Vec<u8>> {
        self.usage.total()
    }
}
