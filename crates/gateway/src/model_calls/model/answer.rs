//! The response to a model call: the answer of its exchange, or a refusal.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures::Stream;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use knack_serving::reason::StatusReason;
use knack_skill::plan::{HeaderNote, Plan};
use knack_vocabulary::HEADER_KNACK;
use knack_wire::drive::{BodyKind, ClientHead};
use knack_wire::{Fault, Format};

use crate::catalog::Snapshot;
use crate::http_server::fault::{RETRY_AFTER_SECONDS, fault_of, set_name, set_request_id};
use crate::model_calls::call::ModelCall;
use crate::model_calls::exchange::{AnswerPiece, Exchange, insert_stream_headers};

/// Names of tools that `x-knack` lists as left out; of more it says how many. A name has at most 64 bytes, and proxies take
/// headers of 4 KiB and more.
const LEFT_OUT_NAMED: usize = 16;
/// Why nothing is injected where there is no catalog, as `x-knack` says it.
const NO_CATALOG: &str = "no-catalog";
/// Why nothing is injected into a request whose tools the provider refused, as `x-knack` says it.
const TOOLS_REFUSED: &str = "refused-by-provider";

/// The answer, from its head on.
pub(super) async fn first(mut exchange: Box<Exchange>, knack_header: HeaderValue, format: Format) -> Response {
    match exchange.next().await {
        Some(AnswerPiece::Head(head)) => answer(exchange, head, knack_header, format),
        // The loop always begins with a head; without one there is nothing left to say.
        Some(AnswerPiece::Bytes(_) | AnswerPiece::Broken) | None => {
            let fault = Fault::new(500, "The gateway could not begin its answer.");
            fault_of(&fault, format, &exchange.log_mut().request_id)
        }
    }
}

/// The response of an exchange whose head is known; its body is the rest.
fn answer(mut exchange: Box<Exchange>, head: ClientHead, knack_header: HeaderValue, format: Format) -> Response {
    let (mut headers, reason) = if head.upstream_headers {
        exchange.take_headers(head.status)
    } else {
        (HeaderMap::new(), StatusReason::default())
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
    let knack_header = if exchange.resent_without_tools() {
        without_skills(&knack_header)
    } else {
        knack_header
    };
    headers.insert(HeaderName::from_static(HEADER_KNACK), knack_header);
    let request_id = &exchange.log_mut().request_id;
    if head.upstream_headers {
        set_request_id(&mut headers, request_id);
    } else {
        // An answer of Knack has no id of the provider.
        set_name(&mut headers, format, request_id);
    }
    let mut response = Response::new(Body::from_stream(body(exchange)));
    *response.status_mut() = StatusCode::from_u16(head.status).unwrap_or(StatusCode::BAD_GATEWAY);
    *response.headers_mut() = headers;
    reason.give(&mut response);
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
    if plan.shared && !plan.off {
        // The plan is the catalog's own, so the text is the same each time.
        let made = snapshot.usual_header.get_or_init(|| header_of(snapshot, plan));
        return made.clone();
    }
    header_of(snapshot, plan)
}

fn header_of(snapshot: &Snapshot, plan: &Plan) -> HeaderValue {
    let skills: Vec<&str> = plan.active.iter().map(|active| &*active.handle).collect();
    let mut text = format!(
        "revision={}; skills={}; added-tokens={}",
        snapshot.revision,
        skills.join(","),
        plan.added_tokens
    );
    text.push_str(&left_out(plan));
    let off = plan.notes.iter().find_map(|note| match note.header {
        Some(HeaderNote::Off(word)) => Some(word),
        Some(HeaderNote::LeftOut(_)) | None => None,
    });
    if let Some(word) = off.or_else(|| snapshot.absent.is_some().then_some(NO_CATALOG)) {
        text.push_str("; off=");
        text.push_str(&word.replace(' ', "-"));
    }
    HeaderValue::from_str(&text).unwrap_or_else(|_| unknown_revision())
}

/// The tools that a request did not get because it has others of their names.
fn left_out(plan: &Plan) -> String {
    let names = plan.notes.iter().filter_map(|note| match &note.header {
        Some(HeaderNote::LeftOut(name)) => Some(name.as_str()),
        Some(HeaderNote::Off(_)) | None => None,
    });
    let mut names: Vec<&str> = names.collect();
    if names.is_empty() {
        return String::new();
    }
    let more = names.len().saturating_sub(LEFT_OUT_NAMED);
    names.truncate(LEFT_OUT_NAMED);
    let list = names.join(",");
    if more > 0 {
        format!("; left-out={list},+{more}")
    } else {
        format!("; left-out={list}")
    }
}

/// `x-knack` of a request that was sent without the planned skills. What the plan had left out stays.
fn without_skills(planned: &HeaderValue) -> HeaderValue {
    let planned = planned.to_str().unwrap_or_default();
    let mut parts = planned.split("; ");
    let revision = parts.next().unwrap_or_default();
    let mut text = format!("{revision}; skills=; added-tokens=0");
    if let Some(left_out) = parts.find(|part| part.starts_with("left-out=")) {
        text.push_str("; ");
        text.push_str(left_out);
    }
    text.push_str("; off=");
    text.push_str(TOOLS_REFUSED);
    HeaderValue::from_str(&text).unwrap_or_else(|_| unknown_revision())
}

fn unknown_revision() -> HeaderValue {
    HeaderValue::from_static("revision=?")
}

impl ModelCall {
    /// Logs the end of a call that is refused, and answers with the fault. `x-knack` has the revision of the catalog, if the
    /// call came as far as one.
    pub(super) fn refuse(self, error: &Fault) -> Response {
        let Self {
            gateway,
            mut log,
            mut trace,
            begun,
            format,
        } = self;
        log.status = error.status;
        log.end = Some(error.message.clone());
        log.duration = begun.elapsed();
        trace.finish(&log, None);
        let mut answer = fault_of(error, format, &log.request_id);
        if !log.revision.is_empty() {
            let revision = HeaderValue::from_str(&format!("revision={}", log.revision));
            let header = revision.unwrap_or_else(|_| unknown_revision());
            answer
                .headers_mut()
                .insert(HeaderName::from_static(HEADER_KNACK), header);
        }
        log.publish(&*gateway.console, &gateway.metrics, &gateway.recent);
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use knack_skill::plan::Note;

    #[test]
    fn tools_that_are_left_out_are_named_up_to_a_bound() {
        let plan = |count: usize| Plan {
            notes: (0..count)
                .map(|at| Note {
                    skill: None,
                    text: "a client's \u{e9}".to_owned(),
                    header: Some(HeaderNote::LeftOut(format!("t{at}"))),
                })
                .collect(),
            ..Plan::default()
        };
        assert_eq!(left_out(&plan(0)), "");
        assert_eq!(left_out(&plan(2)), "; left-out=t0,t1");
        let long = left_out(&plan(LEFT_OUT_NAMED + 3));
        assert!(long.ends_with(",t15,+3"), "{long}");
    }

    #[test]
    fn what_was_left_out_stays_when_the_provider_refuses_the_rest() {
        for (planned, expected) in [
            (
                "revision=a1; skills=x,y; added-tokens=12",
                "revision=a1; skills=; added-tokens=0; off=refused-by-provider",
            ),
            (
                "revision=a1; skills=x; added-tokens=12; left-out=lookup",
                "revision=a1; skills=; added-tokens=0; left-out=lookup; off=refused-by-provider",
            ),
        ] {
            assert_eq!(without_skills(&HeaderValue::from_static(planned)), expected);
        }
    }
}
