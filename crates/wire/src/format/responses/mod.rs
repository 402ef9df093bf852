//! OpenAI Responses (docs/design/wire-formats.md#responses).

pub(crate) mod citations;
mod codec;
mod item;
mod request;
pub(crate) mod shell;
mod snapshot;
#[cfg(test)]
mod tests;

use bytes::Bytes;
pub(crate) use item::{id_member, is_call, is_output};

use super::{AnswerDialect, Codec, CodecOptions, openai_error, splice};
use crate::drive::CallResult;
use crate::fault::Fault;
use crate::frame::push_event;
use crate::json::{self, Span, ValueKind};
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
            if let Some(caller) = &result.caller {
                out.extend_from_slice(format!(r#","caller":{caller}"#).as_bytes());
            }
            out.push(b'}');
            Bytes::from(out)
        };
        results.iter().map(one).collect()
    }

    fn named_calls(&self, src: &[u8], turn: Span) -> Vec<Span> {
        let text = |key| json::get_text(src, turn, key).unwrap_or_default();
        // A function in a namespace is the client's.
        let is_call = text("type") == "function_call" && text("namespace").is_empty();
        is_call.then_some(turn).into_iter().collect()
    }

    /// A conversation that the upstream keeps has the turn already, and everything before it: only the results go.
    fn next_body(&self, body: &Bytes, turn: &[Bytes], results: &[Bytes]) -> Bytes {
        let kept = splice::top_value(body, "conversation").is_some_and(|span| !json::is_null(body, span));
        if !kept {
            return splice::grow(body, INPUT, &[turn, results].concat());
        }
        let Some(list) = splice::top_value(body, INPUT) else {
            return splice::grow(body, INPUT, results);
        };
        let mut edits = json::Edits::new();
        edits.replace(list, [b"[", results.join(&b',').as_slice(), b"]"].concat());
        Bytes::from(edits.apply(body))
    }

    fn answer_open(&self, body: &[u8], refusal: &[u8], text: &str) -> Option<Vec<u8>> {
        let id = open_call(refusal)?;
        let top = json::object(body).ok()?;
        let member = |key| json::member(body, &top, key).map(|member| member.value);
        member("conversation").filter(|span| !json::is_null(body, *span))?;
        let list = member("input").filter(|span| json::kind(body, *span) == Some(ValueKind::Array))?;
        let mut output = self
            .results(&[CallResult {
                id,
                text: text.to_owned(),
                ..CallResult::default()
            }])
            .pop()?
            .to_vec();
        if !json::elements(body, list).unwrap_or_default().is_empty() {
            output.push(b',');
        }
        let mut edits = json::Edits::new();
        edits.insert(list.start + 1, output);
        Some(edits.apply(body))
    }

    fn lost_state(&self, body: &[u8], refusal: &[u8]) -> Option<Fault> {
        let call = open_call(refusal)?;
        let previous = splice::top_value(body, PREVIOUS).and_then(|span| json::text(body, span))?;
        let text = format!(
            "The response \"{previous}\" cannot be continued by its id: it ends in the call \"{call}\", which has no output. \
             If that is a call of your application's own tool, send its function_call_output. If it is not, a skill was called, \
             and its result is no longer stored, or belongs to other credentials: send the items of the conversation in \
             \"{INPUT}\" instead of \"{PREVIOUS}\"."
        );
        Some(Fault {
            code: Some("previous_response_not_found".to_owned()),
            ..Fault::bad(PREVIOUS, text)
        })
    }

    fn codec(&self, request: &Request, options: CodecOptions) -> Box<dyn Codec> {
        let container = options.container.as_deref().map(str::as_bytes);
        let container = container.and_then(|text| json::get_text(text, json::document(text).ok()?, "id"));
        Box::new(codec::ResponsesCodec::new(
            snapshot::RequestEcho::of(request),
            options.run_tool,
            container.map(std::borrow::Cow::into_owned),
        ))
    }

    fn error_body(&self, fault: &Fault) -> Vec<u8> {
        openai_error::body(fault)
    }

    fn error_frame(&self, fault: &Fault) -> Vec<u8> {
        frame_of(&openai_error::body(fault))
    }

    fn upstream_error_frame(&self, status: u16, body: &[u8], _: Option<&str>) -> Vec<u8> {
        frame_of(&openai_error::from_upstream(status, body))
    }

    fn keep_alive(&self) -> &'static [u8] {
        b": keepalive\n\n"
    }
}

/// The member that names a response to go on from.
const PREVIOUS: &str = "previous_response_id";
/// The member that holds the conversation.
const INPUT: &str = "input";

/// The call that a refusal names as open; `None` if it says something else.
fn open_call(refusal: &[u8]) -> Option<String> {
    let document = json::document(refusal).ok()?;
    let message = json::path(refusal, document, &["error", "message"]).and_then(|span| json::text(refusal, span))?;
    let id = message.strip_prefix(NO_OUTPUT)?.trim_end_matches('.');
    Some(id.to_owned())
}

/// How the API refuses a call without a result; the call's id and a full stop follow.
const NO_OUTPUT: &str = "No tool output found for function call ";

/// An error body in the nested event form, which the SDK raises.
fn frame_of(body: &[u8]) -> Vec<u8> {
    let error = json::get(body, Span::new(0, body.len()), "error")
        .filter(|span| json::kind(body, *span) == Some(ValueKind::Object));
    let error = error.map_or(&b"null"[..], |span| span.of(body));
    let mut out = Vec::new();
    push_event(
        &mut out,
        b"error",
        &[br#"{"type":"error","error":"#, error, b"}"].concat(),
    );
    out
}
