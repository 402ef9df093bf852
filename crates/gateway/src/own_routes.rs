//! The gateway's own endpoints: health, metrics, and the files that runs made.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode, Uri, header};
use serde_json::json;

use super::state::Gateway;
use super::{caller, user_files};

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
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    let caller = caller::identify(&gateway.secret.current(), &headers, &uri);
    let mut file = gateway.files.read(&caller.bucket(), &response, &name).await;
    if let (None, Some(replicas)) = (&file, &gateway.replicas) {
        file = replicas.named_file(&caller, &response, &name).await;
    }
    match file {
        Some((entry, bytes)) => user_files::content(&entry.mime_type, bytes),
        None => not_found(&format!("no file {name} of response {response}")),
    }
}

/// The same answer for unknown, expired and other callers' files, so that it does not reveal which.
fn not_found(what: &str) -> Response {
    let message = format!("{what}: unknown, expired (files are kept for one hour), or made with another credential");
    (
        StatusCode::NOT_FOUND,
        Json(
            json!({"error": {"message": message, "type": "not_found_error", "param": null, "code": "file_not_found"}}),
        ),
    )
        .into_response()
}
