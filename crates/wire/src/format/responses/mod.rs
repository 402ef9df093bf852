//! OpenAI Responses (docs/design/wire-formats.md#responses).

mod codec;
mod item;
mod request;
mod snapshot;
#[cfg(test)]
mod tests;

use bytes::Bytes;

use super::{AnswerDialect, Codec, CodecOptions, openai_error};
use crate::drive::CallResult;
use crate::fault::Fault;
use crate::frame::push_event;
use crate::json::{self, Kind, Span};
use crate::request::Request;

/// See the module.
#[derive(Debug)]
pub(crate) struct Responses;

impl AnswerDialect for Responses {
    fn results(&self, results: &[CallResult]) -> Vec<Bytes> {
        let one = |result: &CallResult| {
            let mut out = br#"{"type":"function_call_output","call_id":"#.to_vec();
            json::push_string(&mut out, &result.id);
            out.extend_from_slice(br#","output":"#);
            json::push_string(&mut out, &result.text);
            out.push(b'}');
            Bytes::from(out)
        };
        results.iter().map(one).collect()
    }

    fn codec(&self, request: &Request, _: CodecOptions) -> Box<dyn Codec> {
        Box::new(codec::ResponsesCodec::new(snapshot::Restore::of(request)))
    }

    fn error_body(&self, fault: &Fault) -> Vec<u8> {
        openai_error::body(fault)
    }

    fn error_frame(&self, fault: &Fault) -> Vec<u8> {
        frame_of(&openai_error::body(fault))
    }

    fn upstream_error_frame(&self, status: u16, body: &[u8]) -> Vec<u8> {
        frame_of(&openai_error::from_upstream(status, body))
    }

    fn keep_alive(&self) -> &'static [u8] {
        b": keepalive\n\n"
    }
}

/// An error body in the nested event form, which the SDK raises.
fn frame_of(body: &[u8]) -> Vec<u8> {
    let error =
        json::get(body, Span::new(0, body.len()), "error").filter(|span| json::kind(body, *span) == Some(Kind::Object));
    let error = error.map_or(&b"null"[..], |span| span.of(body));
    let mut out = Vec::new();
    push_event(
        &mut out,
        b"error",
        &[br#"{"type":"error","error":"#, error, b"}"].concat(),
    );
    out
}
