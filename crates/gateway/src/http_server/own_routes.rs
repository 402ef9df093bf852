//! The gateway's own endpoints: health, metrics, and the files that runs made.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{HeaderMap, StatusCode, Uri, header};
use knack_wire::Format;
use serde_json::json;

use super::budget::BodyError;
use super::fault::{body_fault, fault};
use crate::callers::caller;
use crate::files::file_id;
use crate::files::user_files;
use crate::state::Gateway;

/// Alive: the process answers.
pub(crate) async fn healthz() -> &'static str {
    "ok\n"
}

/// Ready: serves a snapshot and is not shutting down.
pub(crate) async fn readyz(State(gateway): State<Arc<Gateway>>) -> Response {
    if gateway.is_draining() {
        return (StatusCode::SERVICE_UNAVAILABLE, "draining\n").into_response();
    }
    let snapshot = gateway.catalog.current();
    format!("ok revision={} skills={}\n", snapshot.revision, snapshot.skills.len()).into_response()
}

/// OpenMetrics text.
pub(crate) async fn metrics(State(gateway): State<Arc<Gateway>>) -> Response {
    (
        [(
            header::CONTENT_TYPE,
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
        )],
        gateway.metrics_text(),
    )
        .into_response()
}

/// `GET /knack/v1/responses/{id}/files`.
pub(crate) async fn list_files(
    State(gateway): State<Arc<Gateway>>,
    Path(response): Path<String>,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    let caller = caller::identify(&gateway.secret.current(), &headers, &uri);
    let mut files = gateway.files.list(&caller.bucket(), &response);
    if let (None, Some(replicas)) = (&files, &gateway.replicas) {
        files = replicas.list(&caller, &response).await;
    }
    match files {
        Some(files) => Json(json!({ "files": files })).into_response(),
        None => not_found(&format!("no files of response {response}")),
    }
}

/// `GET /knack/v1/responses/{id}/files/{name}`.
pub(crate) async fn read_file(
    State(gateway): State<Arc<Gateway>>,
    Path((response, name)): Path<(String, String)>,
    parts: Parts,
) -> Response {
    let secret = gateway.secret.current();
    let caller = caller::identify(&secret, &parts.headers, &parts.uri);
    let counted = caller::counted_beside(&caller, &secret, &parts).bucket();
    let hold = |bytes: u64| {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        gateway.requests.hold(&counted, bytes)
    };
    let busy = |over| fault(&body_fault(BodyError::Busy(over)), Format::Chat);
    let missing = || not_found(&format!("no file {name} of response {response}"));
    if let Some(made) = gateway.files.find(&caller.bucket(), &file_id(&response, &name)) {
        let held = match hold(made.entry.size_bytes) {
            Ok(held) => held,
            Err(over) => return busy(over),
        };
        let bytes = made.stored.read().await;
        return bytes.map_or_else(missing, |bytes| user_files::content(&made.entry.mime_type, bytes, held));
    }
    let Some(replicas) = &gateway.replicas else {
        return missing();
    };
    match replicas.named_file(&caller, &response, &name).await {
        Some((entry, bytes)) => match hold(entry.size_bytes) {
            Ok(held) => user_files::content(&entry.mime_type, bytes, held),
            Err(over) => busy(over),
        },
        None => missing(),
    }
}

/// The same answer for unknown, expired and other callers' files, so that it does not reveal which.
fn not_found(what: &str) -> Response {
    let message = format!(
        "{what}: unknown, expired (files are kept for one hour), made with another credential, or it could not be kept (see the gateway's log)"
    );
    (
        StatusCode::NOT_FOUND,
        Json(
            json!({"error": {"message": message, "type": "not_found_error", "param": null, "code": "file_not_found"}}),
        ),
    )
        .into_response()
}
