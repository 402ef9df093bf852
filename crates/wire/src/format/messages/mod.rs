//! Anthropic Messages (docs/design/wire-formats.md#anthropic-messages).

mod block;
mod codec;
mod request;
mod system;
mod write;

use bytes::Bytes;

use super::{AnswerDialect, Codec, CodecOptions, splice};
use crate::drive::CallResult;
use crate::fault::Fault;
use crate::frame::{push_event, push_line};
use crate::json::{self, Span, ValueKind};
use crate::request::Request;

pub(crate) use codec::MessagesLayout;

/// See the module.
pub(crate) struct Messages;

impl AnswerDialect for Messages {
    fn results(&self, results: &[CallResult]) -> Vec<Bytes> {
        let mut out = b"{\"role\":\"user\",\"content\":[".to_vec();
        for (at, result) in results.iter().enumerate() {
            out.extend_from_slice(if at > 0 { b"," } else { b"" });
            out.extend_from_slice(b"{\"type\":\"tool_result\",\"tool_use_id\":");
            json::push_string(&mut out, &result.id);
            out.extend_from_slice(b",\"content\":");
            json::push_string(&mut out, &result.text);
            out.extend_from_slice(if result.is_error { b",\"is_error\":true}" } else { b"}" });
        }
        out.extend_from_slice(b"]}");
        vec![out.into()]
    }

    fn named_calls(&self, src: &[u8], turn: Span) -> Vec<Span> {
        let blocks = json::get(src, turn, "content").and_then(|list| json::elements(src, list).ok());
        let is_call = |block: &Span| {
            let text = |key| json::get_text(src, *block, key).unwrap_or_default();
            text("type") == "tool_use" && text(block::TOOLSET).is_empty()
        };
        blocks.unwrap_or_default().into_iter().filter(is_call).collect()
    }

    fn next_body(&self, body: &Bytes, turn: &[Bytes], results: &[Bytes]) -> Bytes {
        splice::grow(body, "messages", &[turn, results].concat())
    }

    fn codec(&self, _: &Request, options: CodecOptions) -> Box<dyn Codec> {
        Box::new(codec::MessagesCodec::new(options))
    }

    fn error_body(&self, fault: &Fault) -> Vec<u8> {
        error(
            fault.status,
            (&fault.message, fault.code.as_deref()),
            fault.request_id.as_deref(),
        )
    }

    fn error_frame(&self, fault: &Fault) -> Vec<u8> {
        let mut out = Vec::new();
        push_event(&mut out, b"error", &self.error_body(fault));
        out
    }

    fn upstream_error_frame(&self, status: u16, body: &[u8], request_id: Option<&str>) -> Vec<u8> {
        let mut line = Vec::new();
        let known = json::document(body).ok().filter(|span| {
            json::get(body, *span, "error").is_some_and(|error| json::kind(body, error) == Some(ValueKind::Object))
        });
        if let Some(span) = known {
            push_line(&mut line, span.of(body));
        } else {
            let text = format!("The upstream answered with status {status} in a later round.");
            line = error(status, (&text, None), request_id);
        }
        let mut out = Vec::new();
        push_event(&mut out, b"error", &line);
        out
    }

    fn keep_alive(&self) -> &'static [u8] {
        b"event: ping\ndata: {\"type\":\"ping\"}\n\n"
    }
}

/// An error body (docs/design/errors.md#words-of-the-formats).
fn error(status: u16, (message, code): (&str, Option<&str>), request_id: Option<&str>) -> Vec<u8> {
    let kind = match status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        409 => "conflict_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        400..=499 => "invalid_request_error",
        504 => "timeout_error",
        529 => "overloaded_error",
        _ => "api_error",
    };
    let mut out = format!(r#"{{"type":"error","error":{{"type":"{kind}","message":"#).into_bytes();
    json::push_string(&mut out, message);
    if let Some(code) = code {
        out.extend_from_slice(b",\"details\":{\"error_code\":");
        json::push_string(&mut out, code);
        out.push(b'}');
    }
    out.extend_from_slice(b"},\"request_id\":");
    match request_id {
        Some(id) => json::push_string(&mut out, id),
        None => out.extend_from_slice(b"null"),
    }
    out.push(b'}');
    out
}
