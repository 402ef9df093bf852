//! The gateway's own endpoints: health, metrics, and the files that runs made.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use knack_wire::Fault;
use knack_wire::history::Caller;
use serde_json::json;

use super::caller;
use super::fault::{error_format, fault};
use super::files::{FILE_ID_PREFIX, FileEntry};
use super::state::Gateway;

/// Alive: the process answers.
pub async fn healthz() -> &'static str {
    "ok\n"
}

/// Ready: serves a snapshot and is not shutting down.
pub async fn readyz(State(gateway): State<Arc<Gateway>>) -> Response {
    if gateway.is_draining() {
        return (StatusCode::SERVICE_UNAVAILABLE, "draining\n").into_response();
    }
    let snapshot = gateway.catalog.current();
    format!("ok revision={} skills={}\n", snapshot.revision, snapshot.skills.len()).into_response()
}

/// OpenMetrics text.
pub async fn metrics(State(gateway): State<Arc<Gateway>>) -> Response {
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
pub async fn list_files(
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
pub async fn read_file(
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
        Some((entry, bytes)) => content(&entry, bytes),
        None => not_found(&format!("no file {name} of response {response}")),
    }
}

/// Whether a path is that of a file made here: `…/v1/files/file_knack_…[/content]`.
pub fn is_own_file(path: &str) -> bool {
    own_file(path).is_some()
}

fn own_file(path: &str) -> Option<(&str, bool)> {
    let (_, rest) = path.rsplit_once("/files/")?;
    let (id, wants_content) = rest.strip_suffix("/content").map_or((rest, false), |id| (id, true));
    (id.starts_with(FILE_ID_PREFIX) && !id.contains('/')).then_some((id, wants_content))
}

/// The Files API for files made here: their metadata and content, in the shape of the client's dialect.
pub async fn files_api(gateway: Arc<Gateway>, request: Request) -> Response {
    let format = error_format(&request);
    let missing = |id: &str| {
        fault(
            &Fault {
                retry: false,
                ..Fault::new(
                    404,
                    format!("File {id} was not found; generated files are kept for one hour."),
                )
            },
            format,
        )
    };
    let Some((id, wants_content)) = own_file(request.uri().path()) else {
        return missing("");
    };
    if request.method() != http::Method::GET {
        return fault(
            &Fault {
                retry: false,
                ..Fault::new(
                    405,
                    "Files made by skills can be read, not changed; they expire by themselves.",
                )
            },
            format,
        );
    }
    let caller = caller::identify(&gateway.secret.current(), request.headers(), request.uri());
    let Some((entry, bytes)) = file_by_id(&gateway, &caller, id).await else {
        return missing(id);
    };
    if wants_content {
        return content(&entry, bytes);
    }
    let metadata = if request.headers().contains_key("anthropic-version") {
        json!({"type": "file", "id": id, "filename": entry.name, "mime_type": entry.mime_type, "size_bytes": entry.size_bytes, "downloadable": true})
    } else {
        json!({"object": "file", "id": id, "filename": entry.name, "bytes": entry.size_bytes, "purpose": "assistants_output", "status": "processed"})
    };
    Json(metadata).into_response()
}

/// A file made here, or by another replica of this gateway.
async fn file_by_id(gateway: &Gateway, caller: &Caller, id: &str) -> Option<(FileEntry, Bytes)> {
    let bucket = caller.bucket();
    if let Some((response, entry)) = gateway.files.find(&bucket, id) {
        return gateway.files.read(&bucket, &response, &entry.name).await;
    }
    let replicas = gateway.replicas.as_ref()?;
    replicas.file(caller, id).await
}

fn content(entry: &FileEntry, bytes: Bytes) -> Response {
    let mut response = bytes.into_response();
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_str(&entry.mime_type).unwrap_or(HeaderValue::from_static("application/octet-stream")),
    );
    // What a model made is not to be run by a browser in this origin.
    headers.insert(header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// The same answer for unknown, expired and other callers' files: it must not reveal which it is.
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

#[cfg(test)]
mod tests {
    use super::own_file;

    #[test]
    fn only_paths_of_files_made_here_are_ours() {
        for (path, expected) in [
            ("/v1/files/file_knack_ab", Some(("file_knack_ab", false))),
            ("/gw/v1/files/file_knack_ab/content", Some(("file_knack_ab", true))),
            ("/v1/files/file_01", None),
            ("/v1/files", None),
            ("/v1/files/file_knack_ab/x/content", None),
        ] {
            assert_eq!(own_file(path), expected, "{path}");
        }
    }
}
