//! OpenAI Chat Completions (docs/design/wire-formats.md#chat-completions).

mod codec;
mod layout;
mod request;

use bytes::Bytes;

pub(crate) use layout::ChatLayout;

use super::{AnswerDialect, Codec, CodecOptions, openai_error, splice};
use crate::drive::CallResult;
use crate::fault::Fault;
use crate::frame::push_data;
use crate::json::{self, Span};
use crate::request::Request;

/// See the module.
pub(crate) struct Chat;

impl AnswerDialect for Chat {
    fn results(&self, results: &[CallResult]) -> Vec<Bytes> {
        let one = |result: &CallResult| {
            let mut out = b"{\"role\":\"tool\",\"tool_call_id\":".to_vec();
            json::push_string(&mut out, &result.id);
            out.extend_from_slice(b",\"content\":");
            json::push_string(&mut out, &result.text);
            out.push(b'}');
            Bytes::from(out)
        };
        results.iter().map(one).collect()
    }

    fn named_calls(&self, src: &[u8], turn: Span) -> Vec<Span> {
        let calls = json::get(src, turn, "tool_calls").and_then(|list| json::elements(src, list).ok());
        let named = |call: Span| json::get(src, call, "function");
        calls.unwrap_or_default().into_iter().filter_map(named).collect()
    }

    fn next_body(&self, body: &Bytes, turn: &[Bytes], results: &[Bytes]) -> Bytes {
        splice::grow(body, "messages", &[turn, results].concat())
    }

    fn codec(&self, request: &Request, options: CodecOptions) -> Box<dyn Codec> {
        Box::new(codec::ChatCodec::new(
            request,
            request::asks_for_usage(request),
            options,
        ))
    }

    fn error_body(&self, fault: &Fault) -> Vec<u8> {
        openai_error::body(fault)
    }

    fn error_frame(&self, fault: &Fault) -> Vec<u8> {
        let mut out = Vec::new();
        push_data(&mut out, &openai_error::body(fault));
        out
    }

    fn upstream_error_frame(&self, status: u16, body: &[u8], _: Option<&str>) -> Vec<u8> {
        let mut out = Vec::new();
        push_data(&mut out, &openai_error::from_upstream(status, body));
        out
    }

    fn keep_alive(&self) -> &'static [u8] {
        b": keepalive\n\n"
    }
}
