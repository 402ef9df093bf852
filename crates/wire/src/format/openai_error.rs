//! The error shape that Chat Completions and Responses share (docs/design/wire-formats.md#errors).

use crate::fault::Fault;
use crate::frame::push_line;
use crate::json::{self, push_string};

/// `{"error":{…}}` with all four members.
pub(crate) fn body(fault: &Fault) -> Vec<u8> {
    let kind = match fault.status {
        401 => "authentication_error",
        403 => "permission_error",
        429 => "rate_limit_error",
        400..=499 => "invalid_request_error",
        _ => "server_error",
    };
    let mut out = b"{\"error\":{\"message\":".to_vec();
    push_string(&mut out, &fault.message);
    out.extend_from_slice(b",\"type\":");
    push_string(&mut out, kind);
    for (key, value) in [("param", &fault.param), ("code", &fault.code)] {
        out.extend_from_slice(b",\"");
        out.extend_from_slice(key.as_bytes());
        out.extend_from_slice(b"\":");
        match value {
            Some(value) => push_string(&mut out, value),
            None => out.extend_from_slice(b"null"),
        }
    }
    out.extend_from_slice(b"}}");
    out
}

/// An upstream error body as one line with a member `error`; made up from the status if the body is something else.
pub(crate) fn from_upstream(status: u16, upstream: &[u8]) -> Vec<u8> {
    if let Ok(span) = json::document(upstream)
        && json::get(upstream, span, "error")
            .is_some_and(|error| json::kind(upstream, error) == Some(json::ValueKind::Object))
    {
        let mut line = Vec::with_capacity(upstream.len());
        push_line(&mut line, span.of(upstream));
        return line;
    }
    body(&Fault::new(
        status,
        format!("The upstream answered with status {status} in a later round."),
    ))
}
