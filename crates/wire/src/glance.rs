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
    /// Input tokens that were read from a cache.
    pub cache_read: Option<u64>,
    /// Input tokens that were written to a cache.
    pub cache_write: Option<u64>,
    /// Output tokens of reasoning.
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
                gathered.extend_from_slice(bytes);
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
        let is_object = |span: &Span| json::kind(src, *span) == Some(json::ValueKind::Object);
        // Groq's streams have it in a member of theirs, Moonshot's in the choice.
        let within = || {
            let choice = json::first_element(src, json::get(src, top, "choices")?);
            let of_choice = choice.and_then(|choice| json::get(src, choice, "usage"));
            json::path(src, top, &["x_groq", "usage"]).or(of_choice)
        };
        let usage = json::get(src, top, "usage").filter(is_object);
        let usage = usage.or_else(|| within().filter(is_object));
        let number = |keys: &[&str]| number_at(src, usage?, keys);
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
mod tests;
