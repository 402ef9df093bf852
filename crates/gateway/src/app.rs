//! The path of a request through the gateway, layer by layer.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::get;
use http::{HeaderValue, Method, StatusCode, header};
use knack_registry::{RefusalKind, deny};
use knack_wire::{Fault, Route, route};

use super::state::{Gateway, HostPolicy};
use crate::files::user_files;
use crate::http_server::fault::{error_format, fault, log_refusal, named};
use crate::http_server::request_id::RequestId;
use crate::http_server::{host_guard, own_routes, request_path};
use crate::model_calls::{model, stored};
use crate::providers::provider::Api;
use crate::runs::run_route;
use crate::skills_api::upload_routes;
use crate::telemetry::log::FILES_API;
use crate::telemetry::own_request::OwnRequest;
use crate::telemetry::recent_requests;

/// The methods of requests that are answered or passed on.
const METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

/// All routes; `routes` are additional routes of the program. Foreign hosts are refused before anything else, on every route, health
/// included: the check costs nothing. Clients are checked before that, by the outermost layer (`http_server/server.rs`).
pub(crate) fn router(gateway: Arc<Gateway>, routes: Router) -> Router {
    let reported = from_fn_with_state(Arc::clone(&gateway), report_files);
    let router = Router::new()
        .route("/healthz", get(own_routes::healthz))
        .route("/readyz", get(own_routes::readyz))
        .route(
            "/knack/v1/responses/{response}/files",
            get(own_routes::list_files).layer(reported.clone()),
        )
        .route(
            "/knack/v1/responses/{response}/files/{*name}",
            get(own_routes::read_file).layer(reported),
        )
        .fallback(dispatch)
        .with_state(Arc::clone(&gateway))
        .merge(routes);
    // Metrics cover all callers, so the port for applications serves them only if all callers are one person.
    let router = match gateway.host_policy {
        HostPolicy::LocalOnly => router
            .merge(
                Router::new()
                    .route("/metrics", get(own_routes::metrics))
                    .with_state(Arc::clone(&gateway)),
            )
            .merge(recent_requests::router(Arc::clone(&gateway.recent))),
        HostPolicy::Any => router.route("/metrics", get(metrics_are_elsewhere)),
    };
    router.layer(from_fn_with_state(gateway, guard))
}

/// Reports a request for files of a response, as one of the Files APIs. The name of a file is content, which the log does not have.
async fn report_files(State(gateway): State<Arc<Gateway>>, request: Request, next: Next) -> Response {
    const FILES: &str = "/files/";
    let path = request.uri().path();
    let shown = path.find(FILES).map_or(path, |at| &path[..at + FILES.len()]);
    let own = OwnRequest::begin_at(&gateway, FILES_API, &request, shown);
    own.answered(next.run(request).await)
}

/// Metrics name the skills of all tenants, and clients have the port of applications: a gateway of a cluster has another for them.
async fn metrics_are_elsewhere() -> (StatusCode, &'static str) {
    (
        StatusCode::NOT_FOUND,
        "metrics are on the port of probes and metrics (--metrics-listen)\n",
    )
}

/// Refuses foreign hosts and web pages before anything reads the request, and gives every request its id, which its answer has too.
async fn guard(State(gateway): State<Arc<Gateway>>, mut request: Request, next: Next) -> Response {
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
    if [Method::CONNECT, Method::TRACE].contains(request.method()) {
        return refuse_method(&request);
    }
    let id = RequestId::now();
    request.extensions_mut().insert(id.clone());
    named(next.run(request).await, id.as_str())
}

/// All other paths, in this order: those below `/knack/`, which do not exist; files of users; the index for installers; uploaded skills
/// and their runs; a model call; another API of the provider. Each is boxed, so that none carries the state of another.
async fn dispatch(State(gateway): State<Arc<Gateway>>, request: Request) -> Response {
    let path = request.uri().path();
    if path.starts_with("/knack/") {
        return fault(
            &Fault::new(
                404,
                format!(
                    "No such Knack endpoint: {path}. Supported: GET /knack/v1/responses/{{id}}/files and GET /knack/v1/responses/{{id}}/files/{{name}}."
                ),
            ),
            error_format(&request),
        );
    }
    // Before the first who judges a path, and sends it on.
    if let Some(why) = request_path::refusal(path) {
        return refuse_path(&gateway, &request, why);
    }
    if let Some(call) = user_files::route(
        request.method(),
        request.uri(),
        request.headers(),
        gateway.user_files.is_some(),
    ) {
        return Box::pin(user_files::serve(gateway, call, request)).await;
    }
    if let Some(discovery) = &gateway.discovery
        && discovery.takes(request.uri())
    {
        let (parts, _) = request.into_parts();
        let (_, snapshot) = gateway.served_to(&parts).await;
        return discovery.answer(&parts, snapshot).await.map(Body::from);
    }
    if let Some(uploads) = &gateway.uploads
        && uploads.takes(request.method(), request.uri(), request.headers())
    {
        let uploads = Arc::clone(uploads);
        return match run_route::route(&request) {
            Some(run) => Box::pin(run_route::serve(gateway, &*uploads, run, request)).await,
            None => Box::pin(upload_routes::serve(&gateway, &*uploads, request)).await,
        };
    }
    let model = match route(request.method().as_str(), path) {
        Route::Model(found) => Some(found),
        Route::Untouched => None,
    };
    let api = match &model {
        Some(found) => Api::of_format(found.format),
        None => Api::of_request(request.uri(), request.headers()),
    };
    let admitted = gateway.upstreams.mark.check(request.headers());
    if let Err(refused) = admitted.and_then(|()| gateway.upstreams.admit(api, request.method(), path)) {
        return fault(&refused, error_format(&request));
    }
    // Boxed here: the router moves the future of its handler several times before it is polled, and that of a call is large.
    match model {
        Some(found) => Box::pin(model::serve(gateway, found, request)).await,
        None => Box::pin(stored::pass(gateway, api, request)).await,
    }
}

/// 405 for what no API of a provider has: it is a request of the connection, not of what is behind the gateway.
fn refuse_method(request: &Request) -> Response {
    let refused = Fault {
        retry: false,
        ..Fault::new(405, format!("The gateway takes no {} requests.", request.method()))
    };
    let mut answer = fault(&refused, error_format(request));
    answer
        .headers_mut()
        .insert(header::ALLOW, HeaderValue::from_static(METHODS));
    answer
}

/// 400, in the shape of the API that the path is of.
fn refuse_path(gateway: &Gateway, request: &Request, why: String) -> Response {
    let (method, uri, headers) = (request.method(), request.uri(), request.headers());
    let skills = gateway.uploads.as_ref();
    let call = skills.and_then(|_| knack_registry::route(method, uri.path(), uri.query(), headers));
    let refused = Fault {
        retry: false,
        ..Fault::new(400, why)
    };
    match call {
        Some(call) => {
            let request_id = RequestId::find(request.extensions());
            log_refusal(&refused, request_id.as_str());
            deny(&call, RefusalKind::Invalid, refused.message, None, request_id.as_str()).map(Body::from)
        }
        None => fault(&refused, error_format(request)),
    }
}
