//! Errors in the shape of the API that was asked.

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use knack_serving::bodies::{ARRIVE_TIMEOUT, SILENCE_TIMEOUT};
use knack_wire::{Fault, Format, Route, route};

use super::budget::BodyError;
use super::provider::Api;

/// `Retry-After` of a refused request: long enough for a burst to pass, short enough for a person.
pub const RETRY_AFTER_SECONDS: &str = "1";

/// The format in which one of our errors is written to the sender of this request.
pub fn error_format(request: &Request) -> Format {
    match route(request.method().as_str(), request.uri().path()) {
        Route::Model(found) => found.format,
        Route::Untouched => match Api::of_request(request.uri().path(), request.headers()) {
            Api::OpenAi => Format::Chat,
            Api::Anthropic => Format::Messages,
            Api::Gemini => Format::Gemini,
        },
    }
}

/// An error of ours in the client's API shape.
pub fn fault(fault: &Fault, format: Format) -> Response {
    let status = StatusCode::from_u16(fault.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = (status, [(header::CONTENT_TYPE, "application/json")], fault.body(format)).into_response();
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
                "The request body is larger than 32 MiB, which is the most that this gateway takes.",
            )
        },
        BodyError::Busy(_) => Fault::new(
            503,
            "The gateway holds too many large requests at this moment; try again in a second.",
        ),
        BodyError::Late => Fault::new(
            408,
            format!(
                "The request body did not arrive in time: the gateway waits {} s for the next piece of it, and {} s for all.",
                SILENCE_TIMEOUT.as_secs(),
                ARRIVE_TIMEOUT.as_secs()
            ),
        ),
        BodyError::Broken => Fault::new(400, "The request body broke off before its end."),
    }
}

/// Where MCP is served, if it is.
pub const MCP_PATH: &str = "/mcp";

/// The JSON-RPC code of a refusal by the transport: the first of those that are left to servers.
const REFUSED: i32 = -32_000;

/// Whether a path is that of MCP, as hosts write it.
pub fn is_mcp(path: &str) -> bool {
    path.strip_suffix('/').unwrap_or(path) == MCP_PATH
}

/// An error of ours to an MCP client, before there is a JSON-RPC request to answer.
pub fn mcp_fault(fault: &Fault) -> Response {
    let body = serde_json::json!({"jsonrpc": "2.0", "id": null, "error": {"code": REFUSED, "message": fault.message}});
    let status = StatusCode::from_u16(fault.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = (status, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response();
    retry_later(fault, &mut response);
    response
}
