//! Answers and refusals as HTTP, in the dialect of the call.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri, header};
use knack_skill::agent_flow::ApiError;
use serde_json::Value;

use crate::agent_flow::AgentFlow;
use crate::answer::{Answer, ApiOutcome, Refusal, RefusalKind};
use crate::litellm::LiteLlm;
use crate::omniroute::OmniRoute;
use crate::route::{ApiCall, BETA, Dialect, Operation, route};
use crate::{agent_flow, anthropic, litellm, omniroute, openai};

const JSON: &str = "application/json";
const ZIP: &str = "application/zip";
/// Default Retry-After, seconds: claims, memory for downloads and a restarted API server are available again after about as long.
const RETRY_AFTER_SECONDS: u64 = 2;

/// 404: a path that no API here has, or one about a skill that is not kept here, in the shape of the API that it would be of.
pub fn no_such_path(method: &Method, uri: &Uri, headers: &HeaderMap, text: &str, request_id: &str) -> Response<Bytes> {
    let refusal = Refusal::new(RefusalKind::NotFound, "", text);
    match route(method, uri.path(), uri.query(), headers) {
        Some(call) => refuse_call(&call, refusal, request_id),
        None => respond(Dialect::of(headers, BETA), Err(refusal), request_id),
    }
}

/// The answer to a call of a path or method that its API does not have; `None`: it has them.
pub fn refuse_unknown(call: &ApiCall, request_id: &str) -> Option<Response<Bytes>> {
    let refusal = match call {
        ApiCall::Vendor(_, Operation::NotAllowed(methods)) => not_allowed(methods),
        ApiCall::Vendor(_, Operation::Unknown) => unknown_path(),
        ApiCall::AgentFlow(AgentFlow::Unknown) => agent_flow::unknown(),
        ApiCall::OmniRoute(OmniRoute::Unknown) => omniroute::unknown(),
        ApiCall::LiteLlm(LiteLlm::NotAllowed(methods)) => litellm::not_allowed(methods),
        ApiCall::LiteLlm(LiteLlm::Unknown) => litellm::unknown(),
        _ => return None,
    };
    Some(refuse_call(call, refusal, request_id))
}

/// The refusal of a method that a vendor's API does not have on a path, which has `methods`.
pub(crate) fn not_allowed(methods: &'static str) -> Refusal {
    let text = "The Skills API has no such method on this path; docs/registry.md lists what it has.";
    Refusal::new(RefusalKind::NotAllowed(methods), "", text)
}

/// The refusal of a path that a vendor's API does not have.
pub(crate) fn unknown_path() -> Refusal {
    let text = "The Skills API has no such path; docs/registry.md lists what it has.";
    Refusal::new(RefusalKind::NotFound, "", text)
}

/// The answer to a call that a server refuses before it comes to a store, in its dialect. `retry_after`: seconds.
pub fn deny(
    call: &ApiCall,
    kind: RefusalKind,
    text: String,
    retry_after: Option<u64>,
    request_id: &str,
) -> Response<Bytes> {
    let field = match kind {
        RefusalKind::NoCredential => "authorization",
        _ => "",
    };
    let mut response = refuse_call(call, Refusal::new(kind, field, text), request_id);
    if let Some(seconds) = retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

/// The answer to a call whose request is wrong, in its dialect.
pub fn refuse(call: &ApiCall, error: ApiError, request_id: &str) -> Response<Bytes> {
    refuse_call(call, error.into(), request_id)
}

fn refuse_call(call: &ApiCall, refusal: Refusal, request_id: &str) -> Response<Bytes> {
    match call {
        ApiCall::Vendor(dialect, _) => respond(*dialect, Err(refusal), request_id),
        ApiCall::AgentFlow(_) => respond_json(Err(refusal), agent_flow::refuse, request_id),
        ApiCall::OmniRoute(_) => respond_json(Err(refusal), omniroute::refuse, request_id),
        ApiCall::LiteLlm(_) => respond_json(Err(refusal), litellm::refuse, request_id),
    }
}

/// The answer to a call of a vendor's API, with the id of its request where the SDKs of that API look for it.
pub(crate) fn respond(dialect: Dialect, done: Result<ApiOutcome, Refusal>, request_id: &str) -> Response<Bytes> {
    let mut response = match done {
        Ok(ApiOutcome::Zip(zip)) => response(200, ZIP, Bytes::from(zip)),
        Ok(outcome) => response(200, JSON, json(&dialect.show(&outcome))),
        Err(refusal) => refused(&refusal, &dialect.refuse(&refusal, request_id)),
    };
    if let Ok(id) = HeaderValue::from_str(request_id) {
        response.headers_mut().insert(dialect.request_id_header(), id);
    }
    response
}

/// A zip, or a refusal as JSON.
pub(crate) fn respond_zip(
    done: Result<Vec<u8>, Refusal>,
    refuse: fn(&Refusal) -> Value,
    request_id: &str,
) -> Response<Bytes> {
    let zip = match done {
        Ok(zip) => zip,
        Err(refusal) => return respond_json(Err(refusal), refuse, request_id),
    };
    let mut response = response(200, ZIP, Bytes::from(zip));
    if let Ok(id) = HeaderValue::from_str(request_id) {
        response.headers_mut().insert("x-request-id", id);
    }
    response
}

pub(crate) fn respond_json(
    done: Result<Answer, Refusal>,
    refuse: fn(&Refusal) -> Value,
    request_id: &str,
) -> Response<Bytes> {
    let mut response = match done {
        Ok((status, Some(body))) => response(status, JSON, json(&body)),
        Ok((status, None)) => {
            let mut empty = response(status, JSON, Bytes::new());
            empty.headers_mut().remove(header::CONTENT_TYPE);
            empty
        }
        Err(refusal) => refused(&refusal, &refuse(&refusal)),
    };
    if let Ok(id) = HeaderValue::from_str(request_id) {
        response.headers_mut().insert("x-request-id", id);
    }
    response
}

fn response(status: u16, media_type: &'static str, body: Bytes) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Clients try again by themselves only where that may help: others are wrong as they are, or find no room until
/// something is deleted.
fn refused(refusal: &Refusal, body: &Value) -> Response<Bytes> {
    let mut response = response(refusal.kind.status(), JSON, json(body));
    if let RefusalKind::NotAllowed(methods) = refusal.kind {
        let methods = HeaderValue::from_static(methods);
        response.headers_mut().insert(header::ALLOW, methods);
    }
    if matches!(refusal.kind, RefusalKind::Throttled | RefusalKind::Unavailable) {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, RETRY_AFTER_SECONDS.into());
    }
    if !matches!(
        refusal.kind,
        RefusalKind::Failed | RefusalKind::Late | RefusalKind::Throttled | RefusalKind::Unavailable
    ) {
        let headers = response.headers_mut();
        headers.insert("x-should-retry", HeaderValue::from_static("false"));
    }
    response
}

fn json(value: &Value) -> Bytes {
    Bytes::from(value.to_string())
}

impl Dialect {
    fn show(self, outcome: &ApiOutcome) -> Value {
        match self {
            Self::Anthropic { beta } => anthropic::show(outcome, beta),
            Self::OpenAi => openai::show(outcome),
        }
    }

    fn refuse(self, refusal: &Refusal, request_id: &str) -> Value {
        match self {
            Self::Anthropic { .. } => anthropic::refuse(refusal, request_id),
            Self::OpenAi => openai::refuse(refusal),
        }
    }

    const fn request_id_header(self) -> &'static str {
        match self {
            Self::Anthropic { .. } => "request-id",
            Self::OpenAi => "x-request-id",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::RepeatRefusal;

    #[test]
    fn unknown_path_is_answered_in_the_shape_of_its_api() {
        let mut anthropic = HeaderMap::new();
        anthropic.insert("anthropic-version", HeaderValue::from_static("2023-06-01"));
        let plain = HeaderMap::new();
        for (uri, headers, text_at, id) in [
            ("/v1/skills/skill_01A", &plain, "/error/message", "x-request-id"),
            ("/v1/skills/skill_01A", &anthropic, "/error/message", "request-id"),
            (
                "/namespaces/A_b/api/v1/skills",
                &plain,
                "/detail/message",
                "x-request-id",
            ),
            ("/namespaces/A_b/api/skills?q=x", &plain, "/error", "x-request-id"),
        ] {
            let answer = no_such_path(&Method::GET, &Uri::from_static(uri), headers, "why", "req_1");
            let body: Value = serde_json::from_slice(answer.body()).unwrap();
            assert_eq!(answer.status(), 404, "{uri}");
            assert_eq!(body.pointer(text_at), Some(&"why".into()), "{uri}: {body}");
            assert_eq!(answer.headers()[id], "req_1", "{uri}");
        }
    }

    #[test]
    fn what_may_be_tried_again_says_when() {
        for kind in [
            RefusalKind::Throttled,
            RefusalKind::Unavailable,
            RefusalKind::Failed,
            RefusalKind::Repeated(RepeatRefusal::Failed),
            RefusalKind::Repeated(RepeatRefusal::Lost),
            RefusalKind::Full,
            RefusalKind::Repeated(RepeatRefusal::InProgress),
            RefusalKind::Conflict,
            RefusalKind::BadGateway,
        ] {
            let refusal = || Err(Refusal::new(kind, "", "why"));
            for answer in [
                respond(Dialect::OpenAi, refusal(), "req_1"),
                respond(Dialect::Anthropic { beta: false }, refusal(), "req_1"),
                respond_json(refusal_json(kind), agent_flow::refuse, "req_1"),
                respond_json(refusal_json(kind), omniroute::refuse, "req_1"),
                respond_json(refusal_json(kind), litellm::refuse, "req_1"),
            ] {
                let says = answer.headers().contains_key(header::RETRY_AFTER);
                assert_eq!(says, matches!(answer.status().as_u16(), 429 | 503), "{kind:?}");
            }
        }
    }

    fn refusal_json(kind: RefusalKind) -> Result<Answer, Refusal> {
        Err(Refusal::new(kind, "idempotency-key", "why"))
    }

    /// Whoever refuses a request before an API reads it says so in the shape of that API.
    #[test]
    fn a_denial_has_the_shape_of_its_api_and_says_whether_to_try_again() {
        let mut anthropic = HeaderMap::new();
        anthropic.insert("anthropic-version", HeaderValue::from_static("2023-06-01"));
        let plain = HeaderMap::new();
        for (path, query, headers, text_at, id) in [
            ("/v1/skills", None, &plain, "/error/message", "x-request-id"),
            ("/v1/skills", None, &anthropic, "/error/message", "request-id"),
            (
                "/v1/skills",
                Some("custom_llm_provider=litellm_proxy"),
                &plain,
                "/error/message",
                "x-request-id",
            ),
            ("/api/v1/skills", None, &plain, "/detail/message", "x-request-id"),
            ("/api/skills/install", None, &plain, "/error", "x-request-id"),
        ] {
            let call = route(&Method::POST, path, query, headers).unwrap();
            for (denial, status, is_final) in [
                (RefusalKind::Invalid, 400, true),
                (RefusalKind::NoCredential, 401, true),
                (RefusalKind::Forbidden, 403, true),
                (RefusalKind::Late, 408, false),
                (RefusalKind::TooLarge, 413, true),
                (RefusalKind::Throttled, 429, false),
                (RefusalKind::Unavailable, 503, false),
            ] {
                let answer = deny(&call, denial, "why".to_owned(), Some(2), "req_1");
                let body: Value = serde_json::from_slice(answer.body()).unwrap();
                let text = body.pointer(text_at).and_then(Value::as_str).unwrap_or_default();
                assert!(text.ends_with("why"), "{path} {denial:?}: {body}");
                assert_eq!(answer.status(), status, "{path} {denial:?}");
                assert_eq!(
                    answer.headers().contains_key("x-should-retry"),
                    is_final,
                    "{path} {denial:?}"
                );
                assert_eq!(answer.headers()[id], "req_1", "{path} {denial:?}");
                assert_eq!(answer.headers()[header::RETRY_AFTER], "2");
            }
        }
    }
}
