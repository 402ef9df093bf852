//! Gemini generateContent (docs/design/wire-formats.md#gemini).

mod citations;
mod codec;
mod partial;
mod request;
pub(crate) mod run;
#[cfg(test)]
mod tests;
mod unit;

use bytes::Bytes;

use super::{AnswerDialect, Codec, CodecOptions, splice};
use crate::drive::CallResult;
use crate::fault::Fault;
use crate::frame::push_data_crlf;
use crate::json::{self, Span, ValueKind};
use crate::request::Request;

/// See the module.
#[derive(Debug)]
pub(crate) struct Gemini;

impl AnswerDialect for Gemini {
    /// One `user` content with one response per call: the counts must be equal, and all must be in one content.
    fn results(&self, results: &[CallResult]) -> Vec<Bytes> {
        if results.is_empty() {
            return Vec::new();
        }
        let mut out = br#"{"role":"user","parts":["#.to_vec();
        for (index, result) in results.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            out.extend_from_slice(br#"{"functionResponse":{"#);
            // A call without an id is answered without one: by name and order.
            if !result.id.is_empty() {
                out.extend_from_slice(br#""id":"#);
                json::push_string(&mut out, &result.id);
                out.push(b',');
            }
            out.extend_from_slice(br#""name":"#);
            json::push_string(&mut out, &result.name);
            out.extend_from_slice(if result.is_error {
                br#","response":{"error":"#
            } else {
                br#","response":{"output":"#
            });
            json::push_string(&mut out, &result.text);
            out.extend_from_slice(b"}}}");
        }
        out.extend_from_slice(b"]}");
        vec![Bytes::from(out)]
    }

    fn named_calls(&self, src: &[u8], turn: Span) -> Vec<Span> {
        let parts = json::get(src, turn, "parts").map(|parts| json::one_or_more(src, parts));
        let named = |part: Span| {
            ["functionCall", "function_call"]
                .iter()
                .find_map(|key| json::get(src, part, key))
        };
        parts.unwrap_or_default().into_iter().filter_map(named).collect()
    }

    fn next_body(&self, body: &Bytes, turn: &[Bytes], results: &[Bytes]) -> Bytes {
        splice::grow(body, "contents", &[turn, results].concat())
    }

    fn codec(&self, request: &Request, options: CodecOptions) -> Box<dyn Codec> {
        Box::new(codec::GeminiCodec::new(run::ShownRuns::new(
            options.run_tool,
            !request.route().vertex,
        )))
    }

    fn error_body(&self, fault: &Fault) -> Vec<u8> {
        let mut out = format!(r#"{{"error":{{"code":{},"message":"#, fault.status).into_bytes();
        json::push_string(&mut out, &fault.message);
        out.extend_from_slice(format!(r#","status":"{}"}}}}"#, status_name(fault.status)).as_bytes());
        out
    }

    fn error_frame(&self, fault: &Fault) -> Vec<u8> {
        let mut out = Vec::new();
        push_data_crlf(&mut out, &self.error_body(fault));
        out
    }

    fn upstream_error_frame(&self, status: u16, body: &[u8], _: Option<&str>) -> Vec<u8> {
        let mut out = Vec::new();
        if let Some(span) = error_object(body) {
            push_data_crlf(&mut out, span.of(body));
        } else {
            let message = format!("The upstream answered with status {status} in a later round.");
            push_data_crlf(&mut out, &self.error_body(&Fault::new(status, message)));
        }
        out
    }

    fn keep_alive(&self) -> &'static [u8] {
        b"\r\n"
    }
}

/// The first generation of models that takes functions and a demanded form of the answer in one request.
pub(crate) const BOTH_FROM: u32 = 3;

/// The generation in the name of a Gemini model, behind any path (`models/`, `google/`).
pub(crate) fn generation(model: &str) -> Option<u32> {
    let name = model.rsplit('/').next()?.strip_prefix("gemini-")?;
    let digits = name.split(|char: char| !char.is_ascii_digit()).next()?;
    digits.parse().ok()
}

/// The object with the member `error`; on stream routes it may be wrapped in an array.
fn error_object(body: &[u8]) -> Option<Span> {
    let document = json::document(body).ok()?;
    let span = match json::kind(body, document)? {
        ValueKind::Array => *json::elements(body, document).ok()?.first()?,
        _ => document,
    };
    json::get(body, span, "error").map(|_| span)
}

/// The canonical name of a status (docs/design/errors.md#words-of-the-formats).
fn status_name(status: u16) -> &'static str {
    match status {
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        409 => "ABORTED",
        429 => "RESOURCE_EXHAUSTED",
        503 => "UNAVAILABLE",
        504 => "DEADLINE_EXCEEDED",
        400..=499 => "INVALID_ARGUMENT",
        _ => "INTERNAL",
    }
}
