//! The way of a request through the gateway, layer by layer.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::StatusCode;
use knack_wire::{Fault, Format, Kind, Route, route};

use super::state::{Gateway, HostPolicy};
use super::upstream::Api;
use super::{host_guard, model, own_routes, proxy};

/// The whole service. The order of layers is the order of the checks: who may come in at all is asked first, since it
/// costs nothing and protects everything behind it, health included.
pub fn router(gateway: Arc<Gateway>) -> Router {
    Router::new()
        .route("/healthz", get(own_routes::healthz))
        .route("/readyz", get(own_routes::readyz))
        .route("/metrics", get(own_routes::metrics))
        .route("/knack/v1/responses/{response}/files", get(own_routes::list_files))
        .route(
            "/knack/v1/responses/{response}/files/{*name}",
            get(own_routes::read_file),
        )
        .fallback(dispatch)
        .layer(from_fn_with_state(Arc::clone(&gateway), guard))
        .with_state(gateway)
}

/// Refuses foreign hosts and web pages before anything reads the request.
async fn guard(State(gateway): State<Arc<Gateway>>, request: Request, next: Next) -> Response {
    if gateway.host_policy == HostPolicy::LocalOnly
        && let Err(reason) = host_guard::check(request.headers(), request.uri())
    {
        return fault(
            &Fault {
                retry: false,
                ..Fault::new(403, format!("knack dev answers local programs only: {reason}."))
            },
            error_format(&request),
        );
    }
    next.run(request).await
}

/// Everything that is not the gateway's own: a model call, or somebody else's API.
async fn dispatch(State(gateway): State<Arc<Gateway>>, request: Request) -> Response {
    let path = request.uri().path();
    if path.starts_with("/knack/") {
        return fault(
            &Fault::new(
                404,
                format!("No such Knack endpoint: {path}. There is GET /knack/v1/responses/{{id}}/files."),
            ),
            error_format(&request),
        );
    }
    if own_routes::is_own_file(path) {
        return own_routes::files_api(gateway, request).await;
    }
    let model = match route(request.method().as_str(), path) {
        Route::Model(found) if routed(found.format, found.kind) => Some(found),
        Route::Model(_) | Route::Untouched => None,
    };
    let api = match &model {
        Some(found) => Api::of_format(found.format),
        None => Api::of_request(path, request.headers()),
    };
    if let Err(refused) = gateway.upstreams.admit(api, request.method(), path) {
        return fault(&refused, error_format(&request));
    }
    match model {
        Some(found) => model::serve(gateway, found, request).await,
        None => proxy::pass(gateway, api, request).await,
    }
}

/// Formats whose loop is complete. Responses and Gemini are proxied untouched until theirs is.
const fn routed(format: Format, kind: Kind) -> bool {
    matches!(
        (format, kind),
        (Format::Chat | Format::Messages, Kind::Generate | Kind::Count)
    )
}

/// The format in which an error of ours is told to whoever sent this request.
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
    let mut response = (
        status,
        [(http::header::CONTENT_TYPE, "application/json")],
        fault.body(format),
    )
        .into_response();
    if !fault.retry {
        response
            .headers_mut()
            .insert("x-should-retry", http::HeaderValue::from_static("false"));
    }
    if fault.status == 503 || fault.status == 429 {
        response.headers_mut().insert(
            http::header::RETRY_AFTER,
            http::HeaderValue::from_static(RETRY_AFTER_SECONDS),
        );
    }
    response
}

/// What a refused client is told to wait: long enough for a burst to pass, short enough for a person.
pub const RETRY_AFTER_SECONDS: &str = "1";
