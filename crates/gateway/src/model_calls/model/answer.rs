//! The response to a model call: the answer of its exchange, or a refusal.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures::Stream;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use knack_skill::plan::Plan;
use knack_vocabulary::HEADER_KNACK;
use knack_wire::drive::{BodyKind, ClientHead};
use knack_wire::{Fault, Format};
use tokio::time::Instant;

use crate::catalog::Snapshot;
use crate::http_server::fault::{RETRY_AFTER_SECONDS, fault_of, set_name, set_request_id};
use crate::model_calls::exchange::{AnswerPiece, Exchange, insert_stream_headers};
use crate::state::Gateway;
use crate::telemetry::log::RequestLog;
use crate::telemetry::trace::RequestTrace;

/// The answer, from its head on.
pub(super) async fn first(mut exchange: Box<Exchange>, knack_header: HeaderValue, format: Format) -> Response {
    match exchange.next().await {
        Some(AnswerPiece::Head(head)) => answer(exchange, head, knack_header, format),
        // The loop always begins with a head; without one there is nothing left to say.
        Some(AnswerPiece::Bytes(_) | AnswerPiece::Broken) | None => {
            let fault = Fault::new(500, "The gateway could not begin its answer.");
            fault_of(&fault, format, &exchange.log().request_id)
        }
    }
}

/// The response of an exchange whose head is known; its body is the rest.
fn answer(mut exchange: Box<Exchange>, head: ClientHead, knack_header: HeaderValue, format: Format) -> Response {
    let mut headers = if head.upstream_headers {
        exchange.take_headers(head.status)
    } else {
        HeaderMap::new()
    };
    match head.body {
        BodyKind::AsUpstream => {}
        BodyKind::Stream => {
            insert_stream_headers(&mut headers);
        }
        BodyKind::Json => {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
    }
    if head.status == 503 && !head.upstream_headers && !head.no_retry {
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_SECONDS));
    }
    if head.no_retry {
        headers.insert("x-should-retry", HeaderValue::from_static("false"));
    }
    let knack_header = if exchange.went_without() {
        without_skills(&knack_header)
    } else {
        knack_header
    };
    headers.insert(HeaderName::from_static(HEADER_KNACK), knack_header);
    let request_id = &exchange.log().request_id;
    if head.upstream_headers {
        set_request_id(&mut headers, request_id);
    } else {
        // An answer of Knack has no id of the provider.
        set_name(&mut headers, format, request_id);
    }
    let mut response = Response::new(Body::from_stream(body(exchange)));
    *response.status_mut() = StatusCode::from_u16(head.status).unwrap_or(StatusCode::BAD_GATEWAY);
    *response.headers_mut() = headers;
    response
}

/// The rest of an answer as a stream.
fn body(exchange: Box<Exchange>) -> impl Stream<Item = std::io::Result<Bytes>> + Send + 'static {
    futures::stream::unfold(exchange, |mut exchange| async move {
        loop {
            match exchange.next().await? {
                AnswerPiece::Bytes(bytes) => return Some((Ok(bytes), exchange)),
                AnswerPiece::Broken => {
                    return Some((
                        Err(std::io::Error::other("the connection to the provider was lost")),
                        exchange,
                    ));
                }
                AnswerPiece::Head(_) => {}
            }
        }
    })
}

/// `x-knack`: what was done to this request, for a person with curl.
pub(super) fn knack_header(snapshot: &Snapshot, plan: &Plan) -> HeaderValue {
    if plan.shared {
        // The plan is the catalog's own, so the text is the same each time.
        let made = snapshot.usual_header.get_or_init(|| header_of(snapshot, plan));
        return made.clone();
    }
    header_of(snapshot, plan)
}

fn header_of(snapshot: &Snapshot, plan: &Plan) -> HeaderValue {
    let skills: Vec<&str> = plan.active.iter().map(|active| &*active.handle).collect();
    let text = format!(
        "revision={}; skills={}; added-tokens={}",
        snapshot.revision,
        skills.join(","),
        plan.added_tokens
    );
    HeaderValue::from_str(&text).unwrap_or_else(|_| unknown_revision())
}

/// `x-knack` of a request that was sent without the planned skills.
fn without_skills(planned: &HeaderValue) -> HeaderValue {
    let planned = planned.to_str().unwrap_or_default();
    let revision = planned.split(';').next().unwrap_or_default();
    HeaderValue::from_str(&format!("{revision}; skills=; added-tokens=0")).unwrap_or_else(|_| unknown_revision())
}

fn unknown_revision() -> HeaderValue {
    HeaderValue::from_static("revision=?")
}

/// Logs the end of a request that is refused, and answers with the fault.
pub(super) fn refuse(
    gateway: &Gateway,
    (mut log, mut trace): (RequestLog, RequestTrace),
    begun: Instant,
    error: &Fault,
    format: Format,
) -> Response {
    log.status = error.status;
    log.end = Some(error.message.clone());
    log.duration = begun.elapsed();
    trace.finish(&log, None);
    let answer = fault_of(error, format, &log.request_id);
    log.publish(&*gateway.console, &gateway.metrics, &gateway.recent);
    answer
}
