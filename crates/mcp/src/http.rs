//! The route: who calls, how much, with which catalog; then the SDK's transport.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::any;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use knack_gateway::callers::caller;
use knack_gateway::http_server::fault::{MCP_PATH, REFUSED_CODE, body_fault, mcp_error, mcp_fault};
use knack_gateway::telemetry::log::MCP;
use knack_gateway::telemetry::own_request::OwnRequest;
use knack_gateway::{Cancellations, Gateway, HostPolicy};
use knack_registry::weigh_json;
use knack_wire::Fault;
use knack_wire::history::Caller;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde::Deserialize;
use serde_json::Value;

use crate::call_context::CallContext;
use crate::cancellation::{Message, opened, request_key, session_of};
use crate::mcp_catalog::McpCatalogs;
use crate::server::Server;
use crate::slots::Slots;
use ::http::request::Parts;
use ::http::{HeaderMap, StatusCode, header};

/// Where MCP is served.
pub const PATH: &str = MCP_PATH;

/// Bytes of one request: the code and the arguments that a model wrote, of which the largest are some hundred KiB. The
/// whole of it is read into values, which take several times as much, of which there is a bound too.
const REQUEST_MAX_BYTES: usize = 4 << 20;

struct Shared {
    gateway: Arc<Gateway>,
    mcp_catalogs: McpCatalogs,
    slots: Arc<Slots>,
    /// The gateway's cancellations, which its other replicas reach too.
    cancellations: Arc<Cancellations>,
    service: StreamableHttpService<Server, NeverSessionManager>,
}

/// The route of MCP, behind the checks of who may call that the gateway has for all of its routes.
pub fn router(gateway: Arc<Gateway>) -> Router {
    let server = Server::new(Arc::clone(&gateway));
    // Sessions would hold state for clients that never come back; the server sends nothing unasked, so no client needs one. The id
    // of one that clients get distinguishes those with one credential.
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_max_request_body_bytes(REQUEST_MAX_BYTES)
        // Both are checked before: by the gateway for every route, or here.
        .disable_allowed_hosts()
        .disable_allowed_origins();
    let replicas = gateway.replicas.as_ref();
    let shared = Shared {
        cancellations: replicas.map(|replicas| replicas.cancellations()).unwrap_or_default(),
        gateway,
        mcp_catalogs: McpCatalogs::default(),
        slots: Arc::default(),
        service: StreamableHttpService::new(move || Ok(server.clone()), Arc::default(), config),
    };
    Router::new()
        .route(PATH, any(serve))
        // As hosts also write it; it would be the provider's otherwise.
        .route(&format!("{PATH}/"), any(serve))
        .with_state(Arc::new(shared))
}

/// Serves a request and reports it. A call of a tool of the catalog is reported by itself, with what it ran.
async fn serve(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let mut own = OwnRequest::begin(&shared.gateway, MCP, &request);
    let response = admit(&shared, &mut own, request).await;
    own.answered(response)
}

async fn admit(shared: &Shared, own: &mut OwnRequest<'_>, request: Request) -> Response {
    let gateway = &shared.gateway;
    let (mut parts, body) = request.into_parts();
    let mut refused = |status, text: &str| {
        own.fails(error_text(REFUSED_CODE));
        refuse(status, text)
    };
    if let Some(why) = of_a_page(gateway, &parts.headers) {
        return refused(403, why);
    }
    let secret = gateway.secret.current();
    let caller = caller::identify(&secret, &parts.headers, &parts.uri);
    let counted = caller::counted_beside(&caller, &secret, &parts);
    let key = counted.bucket();
    let Some(slot) = shared.slots.take(key) else {
        return refused(
            429,
            "Too many requests of this caller at once; try again when one has ended.",
        );
    };
    let held = match gateway.requests.read(&key, &parts.headers, body).await {
        Ok(held) => held,
        Err(error) => {
            let fault = body_fault(error);
            return refused(fault.status, &fault.message);
        }
    };
    if let Err(error) = weigh_json(&held.bytes) {
        return refused(400, &format!("The request is {error}."));
    }
    let message = Message::read(&held.bytes);
    own.asks(message.known_method(), message.is_sign_of_life());
    let (served, snapshot) = gateway.served_to(&parts).await;
    let mcp_catalog = shared.mcp_catalogs.of(snapshot).await;
    let called = Arc::new(AtomicBool::new(false));
    parts.extensions.insert(CallContext {
        caller,
        mcp_catalog,
        executor: served.executor,
        called: Arc::clone(&called),
        body: held.bytes.clone(),
    });
    let response = answer(shared, (&counted, &message), parts, &held.bytes).await;
    let response = noted(response, own).await;
    let size = http_body::Body::size_hint(response.body()).exact().unwrap_or(0);
    let sent = gateway.requests.hold(&key, usize::try_from(size).unwrap_or(usize::MAX));
    // The result of a call is sent without room too: a client that is told to try again would run the tool twice. It has at most
    // the text and the files that one result carries, for as many requests as a caller has slots.
    if sent.is_err() && !called.load(Ordering::Relaxed) {
        own.fails(error_text(REFUSED_CODE));
        return refuse(
            503,
            "The gateway holds too many large answers at this moment; try again in a second.",
        );
    }
    // All of it is given back when the answer is sent, or its client has left.
    let holding = (slot, held, sent);
    response.map(|body| {
        Body::new(body.map_frame(move |frame| {
            let _ = &holding;
            frame
        }))
    })
}

/// An answer, whose error is noted: the code alone, since the text repeats what the client sent.
async fn noted(response: Response, own: &mut OwnRequest<'_>) -> Response {
    #[derive(Deserialize)]
    struct Answer {
        error: Option<ErrorCode>,
    }
    #[derive(Deserialize)]
    struct ErrorCode {
        code: i32,
    }
    let size = http_body::Body::size_hint(response.body()).exact();
    if size.is_none_or(|size| size > REFUSAL_MAX_BYTES as u64) {
        return response;
    }
    let (parts, body) = response.into_parts();
    let body = to_bytes(body, REFUSAL_MAX_BYTES).await.unwrap_or_default();
    let answer = serde_json::from_slice::<Answer>(&body).ok();
    if let Some(error) = answer.and_then(|answer| answer.error) {
        own.fails(error_text(error.code));
    }
    Response::from_parts(parts, Body::from(body))
}

/// How the log says an error; the SDK's own lines have the whole request.
fn error_text(code: i32) -> String {
    format!("JSON-RPC error {code}")
}

/// The answer of the transport. A request that its client cancels is dropped, as if the client had left.
async fn answer(shared: &Shared, (caller, message): (&Caller, &Message), parts: Parts, body: &Bytes) -> Response {
    let session = session_of(&parts.headers);
    let request = Request::from_parts(parts, Full::new(body.clone()));
    let has_json_type = is_json(request.headers());
    let key = request_key(caller, session, message.id());
    let handled = Box::pin(shared.service.handle(request));
    let Some(response) = shared.cancellations.run(key, handled).await else {
        // Its client waits for no answer; what it gets is whole, so that its connection can be used again.
        let fault = Fault::new(200, "The client cancelled the request.");
        return mcp_error(&fault, REFUSED_CODE, message.id().unwrap_or(&Value::Null));
    };
    let cancelled = request_key(caller, session, message.cancels());
    if let Some(cancelled) = cancelled.filter(|_| response.status() == StatusCode::ACCEPTED)
        && !shared.cancellations.cancel(&cancelled)
        && let Some(replicas) = &shared.gateway.replicas
    {
        replicas.cancel(caller.bucket(), cancelled).await;
    }
    let response = as_json_rpc(response.map(Body::new), has_json_type, body).await;
    if message.is_initialize() {
        opened(response)
    } else {
        response
    }
}

/// Why a request that a web page caused is refused. `knack dev` has checked Host and Origin by its own rule; on a cluster any
/// Host is Knack's, so a rebound name cannot be distinguished from it, and no page has business here.
fn of_a_page(gateway: &Gateway, headers: &HeaderMap) -> Option<&'static str> {
    let is_page = headers.contains_key(header::ORIGIN);
    (gateway.host_policy == HostPolicy::Any && is_page)
        .then_some("Web pages may not call this server; call it from a program.")
}

/// Bytes of a refusal: a sentence. What is longer is a result.
const REFUSAL_MAX_BYTES: usize = 64 << 10;
/// JSON-RPC's code of what is no JSON.
const PARSE_ERROR: i32 = -32_700;
/// JSON-RPC's code of JSON that is no request.
const INVALID_REQUEST: i32 = -32_600;

/// A refusal of the SDK's transport, which is plain text, in JSON-RPC. It says 415 of a body that it cannot read, too.
async fn as_json_rpc(response: Response, has_json_type: bool, asked: &[u8]) -> Response {
    let status = response.status();
    if status.as_u16() < 400 || is_json(response.headers()) {
        return response;
    }
    if status == StatusCode::UNSUPPORTED_MEDIA_TYPE && has_json_type {
        return match serde_json::from_slice::<Value>(asked) {
            Err(error) => {
                let fault = Fault::new(400, format!("The request is not JSON: {error}."));
                mcp_error(&fault, PARSE_ERROR, &Value::Null)
            }
            Ok(value) => {
                let fault = Fault::new(
                    400,
                    "The request is not a JSON-RPC message: it must be one object with jsonrpc \"2.0\" and method; batches are not supported.",
                );
                let id = value.get("id").filter(|id| id.is_string() || id.is_number());
                mcp_error(&fault, INVALID_REQUEST, id.unwrap_or(&Value::Null))
            }
        };
    }
    let (mut parts, body) = response.into_parts();
    let text = to_bytes(body, REFUSAL_MAX_BYTES).await.unwrap_or_default();
    let mut refused = refuse(status.as_u16(), &String::from_utf8_lossy(&text));
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.remove(header::CONTENT_TYPE);
    refused.headers_mut().extend(parts.headers);
    refused
}

/// Whether a body is JSON by its headers.
fn is_json(headers: &HeaderMap) -> bool {
    let written = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = written.and_then(|written| written.split(';').next());
    essence.is_some_and(|essence| essence.trim().eq_ignore_ascii_case("application/json"))
}

fn refuse(status: u16, message: &str) -> Response {
    mcp_fault(&Fault::new(status, message))
}
