//! Everything that is not a model call of a known format: streamed through in both directions, untouched.

use std::io;
use std::sync::Arc;

use axum::body::{Body, HttpBody as _};
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use futures::{Stream, StreamExt};
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Version};
use knack_serving::reason::StatusReason;
use knack_serving::upgrade::Upgraded;
use knack_wire::Fault;
use tokio::time::Instant;

use super::forwarded_headers::{forward_request_headers, forward_response_headers};
use super::provider::Api;
use super::upstream::{causes, certificate_fault};
use super::websocket;
use crate::http_server::fault::{error_format, fault, fault_of, set_request_id};
use crate::http_server::request_id::RequestId;
use crate::state::Gateway;
use crate::telemetry::log::RequestLog;
use crate::telemetry::request_report::cut_copy;

/// Whether a client asks for a websocket. Another upgrade is an offer that a server may leave aside: clients in Java make one
/// of HTTP/2 (`h2c`) with every request without TLS.
fn asks_for_websocket(headers: &HeaderMap) -> bool {
    let offered = headers.get_all(UPGRADE).iter().filter_map(|value| value.to_str().ok());
    offered
        .flat_map(|value| value.split(','))
        .any(|protocol| protocol.trim().eq_ignore_ascii_case("websocket"))
}

/// The refusal of a websocket that cannot be passed on; `None`: it can be. Over a websocket of the Responses API skills would be
/// missing without a word.
fn refusal(request: &Request) -> Option<Fault> {
    let text = if request.uri().path().trim_end_matches('/').ends_with("/responses") {
        "This gateway serves the Responses API by HTTP requests and event streams; switch the client's websocket mode off."
    } else if request.version() != Version::HTTP_11 || request.method() != Method::GET {
        "A websocket begins with a GET of HTTP/1.1."
    } else {
        return None;
    };
    Some(Fault {
        retry: false,
        ..Fault::new(426, text)
    })
}

/// Passes a request to its provider and the answer back.
pub(crate) async fn pass(gateway: Arc<Gateway>, api: Api, mut request: Request) -> Response {
    let format = error_format(&request);
    let is_websocket = asks_for_websocket(request.headers());
    if let Some(refused) = is_websocket.then(|| refusal(&request)).flatten() {
        return fault(&refused, format);
    }
    let client = is_websocket.then(|| knack_serving::upgrade::of(&mut request));
    let (parts, body) = request.into_parts();
    let mut passing = ForwardedRequest::begin(Arc::clone(&gateway), &parts);
    let path = parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let mut headers = forward_request_headers(&parts.headers);
    let length = length(&parts.headers);
    if let Some(length) = &length {
        headers.insert(CONTENT_LENGTH, length.clone());
    }
    let mut outgoing = if is_websocket {
        gateway.upstreams.websocket(api, path, headers)
    } else {
        gateway.upstreams.request(api, parts.method.clone(), path, headers)
    };
    // By HTTP/2 a body may come without a word of it in the headers.
    if length.is_some() || !body.is_end_stream() {
        outgoing = outgoing.body(reqwest::Body::wrap_stream(gateway.requests.passing(body)));
    }
    match (outgoing.send().await, client) {
        (Ok(response), Some(client)) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
            passing.joined(response, async move { client.await.map_err(io::Error::other) })
        }
        (Ok(response), _) => {
            passing.log.status = response.status().as_u16();
            let mut answer = Response::new(Body::empty());
            *answer.status_mut() = response.status();
            StatusReason::of(response.extensions()).give(&mut answer);
            *answer.headers_mut() = forward_response_headers(response.headers());
            set_request_id(answer.headers_mut(), &passing.log.request_id);
            // The body is the provider's own bytes: its Content-Length is correct.
            if let Some(length) = length_of(response.headers()) {
                answer.headers_mut().insert(CONTENT_LENGTH, length);
            }
            // The writer of the answer stops polling after the last byte that was announced.
            passing.left = response.content_length();
            passing.ended = parts.method == http::Method::HEAD || passing.left == Some(0);
            *answer.body_mut() = Body::from_stream(passing.body(response.bytes_stream()));
            answer
        }
        (Err(error), _) => {
            let refused = certificate_fault(&error);
            tracing::warn!(
                request_id = %passing.log.request_id, error = %causes(error),
                certificate = refused.as_ref().map(|fault| fault.message.as_str()), "no answer from the provider"
            );
            passing.end(502, "no answer from the provider");
            let reported = refused.unwrap_or_else(|| Fault::new(502, Fault::UNREACHABLE));
            fault_of(&reported, format, &passing.log.request_id)
        }
    }
}

/// The length that a request announces, if it counts: beside a transfer encoding it does not.
fn length(headers: &HeaderMap) -> Option<HeaderValue> {
    let length = length_of(headers)?;
    (!headers.contains_key(TRANSFER_ENCODING)).then_some(length)
}

fn length_of(headers: &HeaderMap) -> Option<HeaderValue> {
    headers.get(CONTENT_LENGTH).cloned()
}

/// A request that is passed on: reported when its answer has ended, or its client has disconnected.
struct ForwardedRequest {
    gateway: Arc<Gateway>,
    log: RequestLog,
    begun: Instant,
    /// Bytes of the answer that are still to come, if that is known.
    left: Option<u64>,
    ended: bool,
}

impl ForwardedRequest {
    fn begin(gateway: Arc<Gateway>, parts: &Parts) -> Self {
        Self {
            gateway,
            log: RequestLog {
                request_id: RequestId::of(&parts.extensions),
                begun: jiff::Timestamp::now(),
                format: "proxy",
                subject: cut_copy(parts.uri.path()),
                ..RequestLog::default()
            },
            begun: Instant::now(),
            left: None,
            ended: false,
        }
    }

    /// The answer is complete.
    fn over(&mut self) {
        self.ended = true;
    }

    /// The session is over.
    fn closed(mut self, reason: Option<String>) {
        self.ended = true;
        self.log.end = reason;
    }

    fn end(&mut self, status: u16, reason: &str) {
        self.ended = true;
        self.log.status = status;
        self.log.end = Some(reason.to_owned());
    }

    /// The answer that joins the client's connection to the provider's. No body owns the rest of the exchange, so a task does, which
    /// ends with either connection.
    fn joined(
        mut self,
        response: reqwest::Response,
        client: impl Future<Output = io::Result<Upgraded>> + Send + 'static,
    ) -> Response {
        self.log.status = response.status().as_u16();
        let mut answer = Response::new(Body::empty());
        *answer.status_mut() = response.status();
        *answer.headers_mut() = forward_response_headers(response.headers());
        websocket::insert_upgrade(answer.headers_mut());
        set_request_id(answer.headers_mut(), &self.log.request_id);
        let provider = async move { response.upgrade().await.map_err(io::Error::other) };
        tokio::spawn(async move {
            let ended = websocket::join(client, provider, &self.gateway.stops).await;
            self.closed(ended.reason());
        });
        answer
    }

    /// The answer's body; the request is over with it.
    fn body(
        self,
        pieces: impl Stream<Item = reqwest::Result<Bytes>> + Send + 'static,
    ) -> impl Stream<Item = reqwest::Result<Bytes>> + Send + 'static {
        futures::stream::unfold((Box::pin(pieces), self), |(mut pieces, mut passing)| async move {
            match pieces.next().await {
                Some(Ok(piece)) => {
                    passing.left = passing.left.map(|left| left.saturating_sub(piece.len() as u64));
                    passing.ended |= passing.left == Some(0);
                    Some((Ok(piece), (pieces, passing)))
                }
                Some(Err(error)) => {
                    let status = passing.log.status;
                    passing.end(status, "the connection to the provider was lost");
                    passing.log.broken = (200..300).contains(&status);
                    Some((Err(error.without_url()), (pieces, passing)))
                }
                None => {
                    passing.over();
                    None
                }
            }
        })
    }
}

impl Drop for ForwardedRequest {
    fn drop(&mut self) {
        if !self.ended {
            self.log.dropped(self.gateway.is_cut());
        }
        self.log.duration = self.begun.elapsed();
        std::mem::take(&mut self.log).publish(&*self.gateway.console, &self.gateway.metrics, &self.gateway.recent);
    }
}
