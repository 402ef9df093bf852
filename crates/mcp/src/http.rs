//! The route: who calls, how much, with which catalog; then the SDK's transport.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use http_body_util::{BodyExt, Full};
use knack_gateway::fault::RETRY_AFTER_SECONDS;
use knack_gateway::{Gateway, caller, model};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::json;

use crate::asked::Asked;
use crate::offer::Offers;
use crate::server::Server;
use crate::slots::Slots;
use ::http::{HeaderValue, StatusCode, header};

/// Where MCP is served.
pub const PATH: &str = "/mcp";

/// Bytes of one request: the code and the arguments that a model wrote, of which the largest are some hundred KiB. The
/// whole of it is read into values, which take several times as much.
const REQUEST_MAX_BYTES: usize = 4 << 20;

/// The JSON-RPC code of a refusal by the transport: the first of those that are left to servers.
const REFUSED: i32 = -32_000;

struct Shared {
    gateway: Arc<Gateway>,
    offers: Offers,
    slots: Arc<Slots>,
    service: StreamableHttpService<Server, NeverSessionManager>,
}

/// The route of MCP, for a gateway that refuses foreign hosts and origins before it ([`knack_gateway::HostPolicy`]).
pub fn router(gateway: Arc<Gateway>) -> Router {
    let server = Server::new(Arc::clone(&gateway));
    // Sessions would hold state for clients that never come back; nothing is told without being asked, so none needs one.
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_max_request_body_bytes(REQUEST_MAX_BYTES)
        // The gateway has checked both, for every route and by one rule.
        .disable_allowed_hosts()
        .disable_allowed_origins();
    let shared = Shared {
        gateway,
        offers: Offers::default(),
        slots: Arc::default(),
        service: StreamableHttpService::new(move || Ok(server.clone()), Arc::default(), config),
    };
    Router::new()
        .route(PATH, any(serve))
        // As hosts also write it; it would be the provider's otherwise.
        .route(&format!("{PATH}/"), any(serve))
        .with_state(Arc::new(shared))
}

async fn serve(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let gateway = &shared.gateway;
    let (mut parts, body) = request.into_parts();
    let caller = caller::identify(&gateway.secret.current(), &parts.headers, &parts.uri);
    let key = caller.bucket();
    let Some(slot) = shared.slots.take(key) else {
        return refuse(
            429,
            "Too many requests of this caller at once; try again when one has ended.",
        );
    };
    let held = match gateway.requests.read(&key, &parts.headers, body).await {
        Ok(held) => held,
        Err(error) => {
            let fault = model::body_fault(error);
            return refuse(fault.status, &fault.message);
        }
    };
    let (served, snapshot) = gateway.served_to(&parts).await;
    let offer = shared.offers.of(snapshot).await;
    parts.extensions.insert(Asked {
        caller,
        offer,
        executor: served.executor,
    });
    let request = Request::from_parts(parts, Full::new(held.bytes.clone()));
    let response = shared.service.handle(request).await;
    let size = http_body::Body::size_hint(response.body()).exact().unwrap_or(0);
    let Ok(sent) = gateway.requests.hold(&key, usize::try_from(size).unwrap_or(usize::MAX)) else {
        return refuse(
            503,
            "The gateway holds too many large answers at this moment; try again in a second.",
        );
    };
    // All of it is given back when the answer is sent, or its client has left.
    let holding = (slot, held, sent);
    response.map(|body| {
        Body::new(body.map_frame(move |frame| {
            let _ = &holding;
            frame
        }))
    })
}

/// A refusal before there is a JSON-RPC request to answer.
fn refuse(status: u16, message: &str) -> Response {
    let body = json!({"jsonrpc": "2.0", "id": null, "error": {"code": REFUSED, "message": message}});
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = (status, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response();
    if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
        let headers = response.headers_mut();
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_SECONDS));
    }
    response
}
