//! Errors in the shape of the API that was asked.

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use knack_serving::bodies::{ARRIVE_TIMEOUT, SILENCE_TIMEOUT};
use knack_wire::{Fault, Format, Route, route};
use serde_json::{Value, json};

use super::budget::BodyError;
use crate::providers::provider::Api;
use crate::telemetry::request_report::cut_copy;

/// `Retry-After` of a refused request: long enough for a burst to pass, short enough for a person.
pub(crate) const RETRY_AFTER_SECONDS: &str = "1";

/// The format in which one of Knack's errors is written to the sender of this request.
pub(crate) fn error_format(request: &Request) -> Format {
    match route(request.method().as_str(), request.uri().path()) {
        Route::Model(found) => found.format,
        Route::Untouched => match Api::of_request(request.uri(), request.headers()) {
            Api::OpenAi => Format::Chat,
            Api::Anthropic => Format::Messages,
            Api::Gemini => Format::Gemini,
        },
    }
}

/// The header with the name of a request, of every answer; the log and the spans have it too.
pub(crate) const HEADER_REQUEST_ID: HeaderName = HeaderName::from_static("x-knack-request-id");

/// The header in which the SDKs of an API look for the id of a request, if there is one. Only answers that the gateway makes have
/// its id there: in a provider's answer, the provider's id stays.
pub(crate) const fn sdk_header(format: Format) -> Option<HeaderName> {
    match format {
        Format::Chat | Format::Responses => Some(HeaderName::from_static("x-request-id")),
        Format::Messages => Some(HeaderName::from_static("request-id")),
        Format::Gemini => None,
    }
}

/// Names the request of an answer that has no name yet.
pub(crate) fn named(mut response: Response, request_id: &str) -> Response {
    if !response.headers().contains_key(HEADER_REQUEST_ID) {
        set_request_id(response.headers_mut(), request_id);
    }
    response
}

/// Adds the name of a request to an answer, beside the name that the provider may have for it.
pub(crate) fn set_request_id(headers: &mut HeaderMap, request_id: &str) {
    insert(headers, HEADER_REQUEST_ID, request_id);
}

/// Adds the name of a request to an answer of Knack.
pub(crate) fn set_name(headers: &mut HeaderMap, format: Format, request_id: &str) {
    set_request_id(headers, request_id);
    if let Some(name) = sdk_header(format) {
        insert(headers, name, request_id);
    }
}

fn insert(headers: &mut HeaderMap, name: HeaderName, text: &str) {
    if let Ok(value) = HeaderValue::from_str(text) {
        headers.insert(name, value);
    }
}

/// A name for a request that has none.
pub(crate) fn request_id() -> String {
    format!("req_knack_{}", uuid::Uuid::now_v7().simple())
}

/// An error of Knack in the client's API shape, of a request that is refused before it has a name: the log has its line here.
pub(crate) fn fault(fault: &Fault, format: Format) -> Response {
    let request_id = request_id();
    log_refusal(fault, &request_id);
    fault_of(fault, format, &request_id)
}

/// The line in the log for a request that is refused.
pub(crate) fn log_refusal(fault: &Fault, request_id: &str) {
    tracing::info!(
        request_id,
        status = fault.status,
        reason = cut_copy(&fault.message),
        "request refused"
    );
}

/// As [`fault`], for a request with a name. SDKs read it in a header, Anthropic's in the body too.
pub(crate) fn fault_of(fault: &Fault, format: Format, request_id: &str) -> Response {
    let status = StatusCode::from_u16(fault.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let named = Fault {
        request_id: Some(request_id.to_owned()),
        ..fault.clone()
    };
    let mut response = (status, [(header::CONTENT_TYPE, "application/json")], named.body(format)).into_response();
    set_name(response.headers_mut(), format, request_id);
    if !fault.retry {
        response
            .headers_mut()
            .insert("x-should-retry", HeaderValue::from_static("false"));
    }
    retry_later(fault, &mut response);
    response
}

/// `Retry-After` where waiting helps.
fn retry_later(fault: &Fault, response: &mut Response) {
    if matches!(fault.status, 429 | 503) {
        let headers = response.headers_mut();
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_SECONDS));
    }
}

/// The answer to the client about a body that was not accepted.
pub fn body_fault(error: BodyError) -> Fault {
    match error {
        BodyError::TooLarge => Fault {
            retry: false,
            ..Fault::new(
                413,
                "The request body exceeds 32 MiB, the maximum that this gateway accepts.",
            )
        },
        BodyError::Busy(_) => Fault::new(
            503,
            "The gateway holds too many large requests at this moment; try again in a second.",
        ),
        BodyError::Late => Fault::new(
            408,
            format!(
                "The request body did not arrive in time: the gateway waits {} s for the next part of it, and {} s for the whole body.",
                SILENCE_TIMEOUT.as_secs(),
                ARRIVE_TIMEOUT.as_secs()
            ),
        ),
        BodyError::Broken => Fault::new(400, "The request body ended prematurely."),
    }
}

/// Where MCP is served, if it is.
pub const MCP_PATH: &str = "/mcp";

/// The JSON-RPC code of a refusal by the transport: the first of those that are left to servers.
pub const REFUSED_CODE: i32 = -32_000;

/// Whether a path is that of MCP, as hosts write it.
pub(crate) fn is_mcp(path: &str) -> bool {
    path.strip_suffix('/').unwrap_or(path) == MCP_PATH
}

/// An error of Knack to an MCP client, before there is a JSON-RPC request to answer.
pub fn mcp_fault(fault: &Fault) -> Response {
    mcp_error(fault, REFUSED_CODE, &Value::Null)
}

/// An error of Knack to an MCP client with a code of JSON-RPC, and the id of the request if it has one.
pub fn mcp_error(fault: &Fault, code: i32, id: &Value) -> Response {
    let body = json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": fault.message}});
    let status = StatusCode::from_u16(fault.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = (status, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response();
    retry_later(fault, &mut response);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn clients_find_the_request_where_their_sdk_looks_for_it() {
        for (format, header, is_named) in [
            (Format::Messages, Some("request-id"), true),
            (Format::Chat, Some("x-request-id"), false),
            (Format::Responses, Some("x-request-id"), false),
            (Format::Gemini, None, false),
        ] {
            let response = fault_of(&Fault::new(404, "not \"here\""), format, "req_1");
            for name in ["request-id", "x-request-id", "x-knack-request-id"] {
                let expected = (name == "x-knack-request-id" || header == Some(name)).then_some("req_1");
                let got = response.headers().get(name).map(|id| id.to_str().unwrap());
                assert_eq!(got, expected, "{format:?} {name}");
            }
            let body = axum::body::to_bytes(response.into_body(), 1 << 10).await.unwrap();
            let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(body["request_id"] == "req_1", is_named, "{body}");
            assert_eq!(body["error"]["message"], "not \"here\"", "{body}");
        }
    }
}
