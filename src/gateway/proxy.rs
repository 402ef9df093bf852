//! Everything that is not a model call of a known format: streamed through in both directions, untouched.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use futures::StreamExt;
use knack_wire::Fault;
use tokio::time::Instant;

use super::app::{error_format, fault};
use super::observe::RequestLog;
use super::state::Gateway;
use super::upstream::{Api, forward_request_headers, forward_response_headers};

/// Passes a request to its provider and the answer back.
pub async fn pass(gateway: Arc<Gateway>, request: Request) -> Response {
    let begun = Instant::now();
    let format = error_format(&request);
    if request.headers().contains_key(http::header::UPGRADE) {
        let text = "This gateway serves HTTP requests and event streams; switch the client's websocket mode off.";
        return fault(
            &Fault {
                retry: false,
                ..Fault::new(426, text)
            },
            format,
        );
    }
    let (parts, body) = request.into_parts();
    let api = Api::of_request(parts.uri.path(), &parts.headers);
    let path = parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let has_body = parts.headers.contains_key(http::header::CONTENT_LENGTH)
        || parts.headers.contains_key(http::header::TRANSFER_ENCODING);
    let mut outgoing =
        gateway
            .upstreams
            .request(api, parts.method.clone(), path, forward_request_headers(&parts.headers));
    if has_body {
        outgoing = outgoing.body(reqwest::Body::wrap_stream(body.into_data_stream()));
    }
    let mut log = RequestLog {
        request_id: uuid::Uuid::now_v7().to_string(),
        format: "proxy",
        model: parts.uri.path().to_owned(),
        ..RequestLog::default()
    };
    let response = match outgoing.send().await {
        Ok(response) => {
            log.status = response.status().as_u16();
            let mut answer = Response::new(Body::empty());
            *answer.status_mut() = response.status();
            *answer.headers_mut() = forward_response_headers(response.headers());
            let chunks = response
                .bytes_stream()
                .map(|chunk| chunk.map_err(reqwest::Error::without_url));
            *answer.body_mut() = Body::from_stream(chunks);
            answer
        }
        Err(error) => {
            tracing::warn!(request_id = %log.request_id, error = %error.without_url(), "no answer from the provider");
            log.status = 502;
            log.end = Some("no answer from the provider".to_owned());
            fault(
                &Fault::new(
                    502,
                    "The provider could not be reached; the gateway's log has the cause.",
                ),
                format,
            )
        }
    };
    log.duration = begun.elapsed();
    log.publish(&*gateway.console, &gateway.metrics);
    response
}
