//! The metadata of an upstream answer: id, model, finish reasons, usage.
//!
//! For telemetry only. The loop reads answers to act on them; this module reads their metadata, also of answers that
//! the loop does not read. Nothing depends on it: a value that cannot be read is absent.

use bytes::{Bytes, BytesMut};

use crate::frame::{SseDecoder, SseEvent};
use crate::json::{self, Span};
use crate::route::Format;

/// Most bytes of a body that is no stream; a larger one is not read. As much as a turn may hold.
const MAX_BODY: usize = 8 << 20;
/// Longest text that is kept: ids and model names are far shorter, and telemetry is no place for more.
const MAX_TEXT: usize = 256;
/// Most finish reasons: one for each choice; larger counts are not requested in practice.
const MAX_REASONS: usize = 16;

/// The metadata of an answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AnswerFacts {
    /// The provider's id of the answer.
    pub id: Option<String>,
    /// The model that answered.
    pub model: Option<String>,
    /// Why each choice ended, in the provider's words.
    pub finish_reasons: Vec<String>,
    /// The provider's word for an error inside an answer with a good status.
    pub error: Option<String>,
    /// Tokens.
    pub usage: Usage,
}

/// Tokens of one answer, as the provider counts them, except that input includes what came from a cache and output
/// includes reasoning, for every provider.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Input, cached tokens included.
    pub input: Option<u64>,
    /// Output, reasoning included.
    pub output: Option<u64>,
    /// Of the input: read from a cache.
    pub cache_read: Option<u64>,
    /// Of the input: written to a cache.
    pub cache_write: Option<u64>,
    /// Of the output: reasoning.
    pub reasoning: Option<u64>,
}

/// The settings of a request, as far as telemetry reports them.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RequestFacts {
    /// Most tokens of the answer.
    pub max_tokens: Option<u64>,
    /// Temperature.
    pub temperature: Option<f64>,
}

/// Reads what a request body asks for.
pub fn request(format: Format, body: &[u8]) -> RequestFacts {
    let Ok(top) = json::document(body) else {
        return RequestFacts::default();
    };
    let (limits, temperature): (&[&[&str]], &[&str]) = match format {
        Format::Chat => (&[&["max_completion_tokens"], &["max_tokens"]], &["temperature"]),
        Format::Messages => (&[&["max_tokens"]], &["temperature"]),
        Format::Responses => (&[&["max_output_tokens"]], &["temperature"]),
        Format::Gemini => (
            &[&["generationConfig", "maxOutputTokens"]],
            &["generationConfig", "temperature"],
        ),
    };
    let number = |keys: &[&str]| json::path(body, top, keys);
    RequestFacts {
        max_tokens: limits.iter().find_map(|keys| json::uint(body, number(keys)?)),
        temperature: number(temperature)
            .and_then(|span| std::str::from_utf8(span.of(body)).ok()?.parse().ok())
            .filter(|value: &f64| value.is_finite()),
    }
}

/// Reads one answer while it passes by.
#[derive(Debug)]
pub struct Glance {
    format: Format,
    body: GlanceBody,
    facts: AnswerFacts,
}

#[derive(Debug)]
enum GlanceBody {
    Stream(SseDecoder),
    Whole(BytesMut),
    /// Too large, or invalid: the rest is not read.
    Blind,
}

impl Glance {
    /// For an answer that comes as an event stream, or as one JSON document.
    pub fn new(format: Format, stream: bool) -> Self {
        let body = if stream {
            GlanceBody::Stream(SseDecoder::new())
        } else {
            GlanceBody::Whole(BytesMut::new())
        };
        Self {
            format,
            body,
            facts: AnswerFacts::default(),
        }
    }

    /// Bytes of the body, in any pieces.
    pub fn push(&mut self, bytes: &[u8]) {
        match &mut self.body {
            GlanceBody::Stream(decoder) => {
                let mut events = Vec::new();
                let blind = decoder.push(bytes, &mut events).is_err();
                self.events(&events);
                if blind {
                    self.body = GlanceBody::Blind;
                }
            }
            GlanceBody::Whole(gathered) if gathered.len() + bytes.len() <= MAX_BODY => {
                gathered.extend_from_slice(bytes)
            }
            GlanceBody::Whole(_) => self.body = GlanceBody::Blind,
            GlanceBody::Blind => {}
        }
    }

    /// The body is over, or nothing more is wanted of it.
    pub fn finish(mut self) -> AnswerFacts {
        match std::mem::replace(&mut self.body, GlanceBody::Blind) {
            GlanceBody::Stream(mut decoder) => {
                let mut events = Vec::new();
                // An incomplete event is not read.
                let _ = decoder.finish(&mut events);
                self.events(&events);
            }
            GlanceBody::Whole(body) => self.document(&body.freeze()),
            GlanceBody::Blind => {}
        }
        self.facts
    }

    fn events(&mut self, events: &[SseEvent]) {
        for event in events {
            self.document(&event.data);
        }
    }

    fn document(&mut self, data: &Bytes) {
        // Ends of streams (`[DONE]`) and keep-alives are no objects.
        if data.first() != Some(&b'{') && !data.first().is_some_and(u8::is_ascii_whitespace) {
            return;
        }
        let Ok(top) = json::document(data) else { return };
        self.facts.error(data, top);
        match self.format {
            Format::Chat => self.facts.chat(data, top),
            Format::Messages => self.facts.messages(data, top),
            Format::Responses => self.facts.responses(data, top),
            Format::Gemini => self.facts.gemini(data, top),
        }
    }
}

/// The text at a path, cut to [`MAX_TEXT`]; `None` for an empty one.
fn text_at(src: &[u8], top: Span, keys: &[&str]) -> Option<String> {
    let text = json::text(src, json::path(src, top, keys)?)?;
    let end = (0..=MAX_TEXT.min(text.len()))
        .rev()
        .find(|at| text.is_char_boundary(*at))?;
    (end > 0).then(|| text[..end].to_owned())
}

fn number_at(src: &[u8], top: Span, keys: &[&str]) -> Option<u64> {
    json::uint(src, json::path(src, top, keys)?)
}

/// A later report replaces an earlier one; silence replaces nothing.
fn update<T>(old: &mut Option<T>, new: Option<T>) {
    if new.is_some() {
        *old = new;
    }
}

fn sum(parts: &[Option<u64>]) -> Option<u64> {
    parts.iter().any(Option::is_some).then(|| {
        parts
            .iter()
            .flatten()
            .fold(0, |sum: u64, part| sum.saturating_add(*part))
    })
}

impl AnswerFacts {
    /// `{"error": {"type": …, "code": …, "status": …}}`, on its own or in an event.
    fn error(&mut self, src: &[u8], top: Span) {
        let Some(error) = json::get(src, top, "error").filter(|span| !json::is_null(src, *span)) else {
            return;
        };
        if json::kind(src, error) != Some(json::ValueKind::Object) {
            return;
        }
        let word = ["type", "code", "status"]
            .iter()
            .find_map(|key| text_at(src, error, &[key]));
        self.error = Some(word.unwrap_or_else(|| "error".to_owned()));
    }

    fn reason(&mut self, reason: Option<String>) {
        if let Some(reason) = reason
            && self.finish_reasons.len() < MAX_REASONS
        {
            self.finish_reasons.push(reason);
        }
    }

    /// The reasons in order of the choices; a stream has each choice's once.
    fn reasons(&mut self, src: &[u8], top: Span, list: &str, key: &str) {
        let choices = json::get(src, top, list).and_then(|span| json::elements(src, span).ok());
        for choice in choices.unwrap_or_default() {
            self.reason(text_at(src, choice, &[key]));
        }
    }

    fn chat(&mut self, src: &[u8], top: Span) {
        update(&mut self.id, text_at(src, top, &["id"]));
        update(&mut self.model, text_at(src, top, &["model"]));
        self.reasons(src, top, "choices", "finish_reason");
        let number = |keys: &[&str]| number_at(src, json::get(src, top, "usage")?, keys);
        update(&mut self.usage.input, number(&["prompt_tokens"]));
        update(&mut self.usage.output, number(&["completion_tokens"]));
        update(
            &mut self.usage.cache_read,
            number(&["prompt_tokens_details", "cached_tokens"]),
        );
        update(
            &mut self.usage.reasoning,
            number(&["completion_tokens_details", "reasoning_tokens"]),
        );
    }

    /// Whole, and as `message_start` and `message_delta`, whose counts are totals so far.
    fn messages(&mut self, src: &[u8], top: Span) {
        let message = json::get(src, top, "message").unwrap_or(top);
        update(&mut self.id, text_at(src, message, &["id"]));
        update(&mut self.model, text_at(src, message, &["model"]));
        let reason = text_at(src, message, &["stop_reason"]).or_else(|| text_at(src, top, &["delta", "stop_reason"]));
        self.reason(reason);
        let Some(usage) = json::get(src, message, "usage") else {
            return;
        };
        let number = |key: &str| number_at(src, usage, &[key]);
        let old = self.usage;
        let (read, write) = (
            number("cache_read_input_tokens").or(old.cache_read),
            number("cache_creation_input_tokens").or(old.cache_write),
        );
        // This API counts cached tokens apart; the rest of an earlier report is its total without them.
        let earlier = old.input.map(|all| {
            all.saturating_sub(old.cache_read.unwrap_or(0))
                .saturating_sub(old.cache_write.unwrap_or(0))
        });
        let fresh = number("input_tokens").or(earlier);
        self.usage.input = fresh.and_then(|_| sum(&[fresh, read, write]));
        self.usage.cache_read = read;
        self.usage.cache_write = write;
        update(&mut self.usage.output, number("output_tokens"));
    }

    /// Whole, and as the `response` of an event.
    fn responses(&mut self, src: &[u8], top: Span) {
        let Some(response) = json::get(src, top, "response").or_else(|| json::get(src, top, "output").map(|_| top))
        else {
            return;
        };
        self.error(src, response);
        update(&mut self.id, text_at(src, response, &["id"]));
        update(&mut self.model, text_at(src, response, &["model"]));
        let reason = text_at(src, response, &["incomplete_details", "reason"]).or_else(|| {
            text_at(src, response, &["status"]).filter(|status| status != "in_progress" && status != "queued")
        });
        if self.finish_reasons.is_empty() {
            self.reason(reason);
        }
        let number = |keys: &[&str]| number_at(src, json::get(src, response, "usage")?, keys);
        update(&mut self.usage.input, number(&["input_tokens"]));
        update(&mut self.usage.output, number(&["output_tokens"]));
        update(
            &mut self.usage.cache_read,
            number(&["input_tokens_details", "cached_tokens"]),
        );
        update(
            &mut self.usage.reasoning,
            number(&["output_tokens_details", "reasoning_tokens"]),
        );
    }

    /// Each event is a whole answer with totals so far.
    fn gemini(&mut self, src: &[u8], top: Span) {
        update(&mut self.id, text_at(src, top, &["responseId"]));
        update(&mut self.model, text_at(src, top, &["modelVersion"]));
        self.reasons(src, top, "candidates", "finishReason");
        let Some(usage) = json::get(src, top, "usageMetadata") else {
            return;
        };
        let number = |key: &str| number_at(src, usage, &[key]);
        update(&mut self.usage.input, number("promptTokenCount"));
        update(&mut self.usage.cache_read, number("cachedContentTokenCount"));
        update(&mut self.usage.reasoning, number("thoughtsTokenCount"));
        let written = number("candidatesTokenCount");
        update(&mut self.usage.output, sum(&[written, number("thoughtsTokenCount")]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(id: &str, model: &str, reasons: &[&str], usage: [Option<u64>; 5]) -> AnswerFacts {
        let [input, output, cache_read, cache_write, reasoning] = usage;
        AnswerFacts {
            id: Some(id.to_owned()),
            model: Some(model.to_owned()),
            finish_reasons: reasons.iter().map(|reason| (*reason).to_owned()).collect(),
            error: None,
            usage: Usage {
                input,
                output,
                cache_read,
                cache_write,
                reasoning,
            },
        }
    }

    /// Read whole, byte by byte, and in pieces of seven.
    fn read(format: Format, stream: bool, body: &str) -> AnswerFacts {
        let of_pieces = |size: usize| {
            let mut glance = Glance::new(format, stream);
            for piece in body.as_bytes().chunks(size) {
                glance.push(piece);
            }
            glance.finish()
        };
        let whole = of_pieces(body.len().max(1));
        assert_eq!(of_pieces(1), whole, "{body}");
        assert_eq!(of_pieces(7), whole, "{body}");
        whole
    }

    #[test]
    fn whole_answers_of_each_format_give_id_model_reason_and_usage() {
        let cases = [
            (
                Format::Chat,
                r#"{"id":"c1","model":"gpt-x-1","choices":[{"finish_reason":"stop"},{"finish_reason":"length"}],
                    "usage":{"prompt_tokens":7,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":2},
                    "completion_tokens_details":{"reasoning_tokens":1}}}"#,
                facts(
                    "c1",
                    "gpt-x-1",
                    &["stop", "length"],
                    [Some(7), Some(3), Some(2), None, Some(1)],
                ),
            ),
            (
                Format::Messages,
                r#"{"id":"msg_1","type":"message","model":"claude-x","stop_reason":"tool_use",
                    "usage":{"input_tokens":5,"output_tokens":4,"cache_read_input_tokens":100,"cache_creation_input_tokens":20}}"#,
                facts(
                    "msg_1",
                    "claude-x",
                    &["tool_use"],
                    [Some(125), Some(4), Some(100), Some(20), None],
                ),
            ),
            (
                Format::Responses,
                r#"{"id":"resp_1","model":"gpt-y","status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},
                    "error":null,"output":[],"usage":{"input_tokens":9,"output_tokens":8,
                    "input_tokens_details":{"cached_tokens":0},"output_tokens_details":{"reasoning_tokens":6}}}"#,
                facts(
                    "resp_1",
                    "gpt-y",
                    &["max_output_tokens"],
                    [Some(9), Some(8), Some(0), None, Some(6)],
                ),
            ),
            (
                Format::Gemini,
                r#"{"responseId":"r1","modelVersion":"gemini-z","candidates":[{"finishReason":"STOP"}],
                    "usageMetadata":{"promptTokenCount":11,"candidatesTokenCount":2,"thoughtsTokenCount":5,"cachedContentTokenCount":4}}"#,
                facts("r1", "gemini-z", &["STOP"], [Some(11), Some(7), Some(4), None, Some(5)]),
            ),
        ];
        for (format, body, expected) in cases {
            assert_eq!(read(format, false, body), expected, "{format:?}");
        }
    }

    #[test]
    fn streams_of_each_format_give_the_same() {
        let cases = [
            (
                Format::Chat,
                "data: {\"id\":\"c1\",\"model\":\"m\",\"choices\":[{\"delta\":{},\"finish_reason\":null}],\"usage\":null}\n\n\
                 data: {\"id\":\"c1\",\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n\
                 data: {\"id\":\"c1\",\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3}}\n\ndata: [DONE]\n\n",
                facts("c1", "m", &["stop"], [Some(7), Some(3), None, None, None]),
            ),
            (
                Format::Messages,
                "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"model\":\"m\",\"stop_reason\":null,\
                 \"usage\":{\"input_tokens\":5,\"cache_read_input_tokens\":10,\"output_tokens\":1}}}\n\n\
                 event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":9}}\n\n",
                facts("msg_1", "m", &["end_turn"], [Some(15), Some(9), Some(10), None, None]),
            ),
            (
                Format::Responses,
                "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_1\",\"model\":\"m\",\"status\":\"in_progress\"}}\n\n\
                 event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"x\"}\n\n\
                 event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"id\":\"resp_1\",\"model\":\"m\",\"status\":\"completed\",\
                 \"usage\":{\"input_tokens\":2,\"output_tokens\":1}}}\n\n",
                facts("resp_1", "m", &["completed"], [Some(2), Some(1), None, None, None]),
            ),
            (
                Format::Gemini,
                "data: {\"responseId\":\"r\",\"modelVersion\":\"m\",\"usageMetadata\":{\"promptTokenCount\":4,\"candidatesTokenCount\":1}}\r\n\r\n\
                 data: {\"responseId\":\"r\",\"candidates\":[{\"finishReason\":\"STOP\"}],\"usageMetadata\":{\"promptTokenCount\":4,\"candidatesTokenCount\":6}}\r\n\r\n",
                facts("r", "m", &["STOP"], [Some(4), Some(6), None, None, None]),
            ),
        ];
        for (format, body, expected) in cases {
            assert_eq!(read(format, true, body), expected, "{format:?}");
        }
    }

    #[test]
    fn errors_inside_a_good_answer_are_reported_by_their_type() {
        for (format, stream, body, expected) in [
            (
                Format::Messages,
                true,
                "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"m\"}}\n\n",
                Some("overloaded_error"),
            ),
            (
                Format::Chat,
                true,
                "data: {\"error\":{\"code\":\"server_error\",\"type\":null}}\n\n",
                Some("server_error"),
            ),
            (
                Format::Gemini,
                false,
                r#"{"error":{"code":503,"status":"UNAVAILABLE"}}"#,
                Some("UNAVAILABLE"),
            ),
            (Format::Chat, false, r#"{"error":{}}"#, Some("error")),
            (
                Format::Responses,
                true,
                "data: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\"error\":{\"code\":\"rate_limit_exceeded\"}}}\n\n",
                Some("rate_limit_exceeded"),
            ),
            (Format::Chat, false, r#"{"error":null}"#, None),
        ] {
            assert_eq!(read(format, stream, body).error.as_deref(), expected, "{body}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_absent() {
        for format in [Format::Chat, Format::Messages, Format::Responses, Format::Gemini] {
            for (stream, body) in [
                (false, ""),
                (false, "<html>"),
                (false, "[1]"),
                (
                    false,
                    "{\"id\":1,\"model\":[],\"choices\":{},\"usage\":3,\"candidates\":4,\"usageMetadata\":[],\"response\":\"x\"}",
                ),
                (true, "data: {\"id\":\n\ndata: 7\n\n: hello\n\n"),
            ] {
                assert_eq!(read(format, stream, body), AnswerFacts::default(), "{format:?} {body}");
            }
        }
    }

    #[test]
    fn texts_and_bodies_are_bounded() {
        let long = format!(r#"{{"id":"{}","model":"m"}}"#, "é".repeat(MAX_TEXT));
        let read = read(Format::Chat, false, &long);
        assert_eq!(read.id.map(|id| id.len()), Some(MAX_TEXT));
        let mut glance = Glance::new(Format::Chat, false);
        glance.push(b"{\"id\":\"a\"");
        glance.push(&vec![b' '; MAX_BODY]);
        glance.push(b"}");
        assert_eq!(glance.finish(), AnswerFacts::default());
    }

    #[test]
    fn limit_and_temperature_are_read_from_requests() {
        for (format, body, max_tokens, temperature) in [
            (
                Format::Chat,
                r#"{"max_tokens":5,"max_completion_tokens":6,"temperature":0.5}"#,
                Some(6),
                Some(0.5),
            ),
            (Format::Chat, r#"{"max_tokens":5}"#, Some(5), None),
            (
                Format::Messages,
                r#"{"max_tokens":1024,"temperature":1}"#,
                Some(1024),
                Some(1.0),
            ),
            (
                Format::Responses,
                r#"{"max_output_tokens":null,"temperature":"hot"}"#,
                None,
                None,
            ),
            (
                Format::Gemini,
                r#"{"generationConfig":{"maxOutputTokens":9,"temperature":1e999}}"#,
                Some(9),
                None,
            ),
            (Format::Chat, "garbage", None, None),
        ] {
            let expected = RequestFacts {
                max_tokens,
                temperature,
            };
            assert_eq!(request(format, body.as_bytes()), expected, "{body}");
        }
    }
}
