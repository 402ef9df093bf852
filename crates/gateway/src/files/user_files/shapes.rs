//! The JSON of the two vendors, and their errors. Pure.

use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, header};
use jiff::Timestamp;
use knack_registry::{Dialect, Paged};
use knack_serving::until_sent;
use knack_wire::{Fault, Format};
use serde_json::{Value, json};

use super::CONTAINER_FOLDER;
use super::objects::{Container, ContainerFile, FileInfo, Source};
use super::refusal::FilesRefusal;
use crate::http_server::budget::Holding;
use crate::http_server::fault::fault;

/// A time as Anthropic writes it.
pub(crate) fn text_time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// One file.
pub(super) fn file(dialect: Dialect, file: &FileInfo) -> Value {
    match dialect {
        Dialect::Anthropic { .. } => json!({
            "id": file.id, "type": "file", "filename": file.name, "mime_type": file.mime, "size_bytes": file.size,
            "created_at": text_time(file.created), "downloadable": true, "expires_at": text_time(file.expires),
        }),
        Dialect::OpenAi => json!({
            "id": file.id, "object": "file", "bytes": file.size, "created_at": file.created.as_second(),
            "expires_at": file.expires.as_second(), "filename": file.name, "purpose": file.purpose,
            "status": "processed",
        }),
    }
}

/// A list of files.
pub(super) fn files(dialect: Dialect, page: &Paged<FileInfo>) -> Value {
    let data: Vec<Value> = page.items.iter().map(|item| file(dialect, item)).collect();
    match dialect {
        Dialect::Anthropic { beta: false } => {
            let next = page.items.last().filter(|_| page.more).map(|file| &file.id);
            json!({"data": data, "next_page": next})
        }
        Dialect::Anthropic { beta: true } => listed(&data, page.more, false),
        Dialect::OpenAi => listed(&data, page.more, true),
    }
}

/// A list with the ids of its ends.
fn listed(data: &[Value], more: bool, names_object: bool) -> Value {
    let id = |item: Option<&Value>| item.map(|item| item["id"].clone());
    let (first, last) = (id(data.first()), id(data.last()));
    let mut list = json!({"data": data, "first_id": first, "last_id": last, "has_more": more});
    if names_object {
        list["object"] = "list".into();
    }
    list
}

/// A file that was deleted.
pub(super) fn deleted_file(dialect: Dialect, id: &str) -> Value {
    match dialect {
        Dialect::Anthropic { .. } => json!({"id": id, "type": "file_deleted"}),
        Dialect::OpenAi => json!({"id": id, "object": "file", "deleted": true}),
    }
}

/// The memory limit that the API shows of a container without one.
const MEMORY_LIMIT: &str = "1g";

/// A container.
pub(super) fn container(one: &Container) -> Value {
    json!({
        "id": one.id, "object": "container", "created_at": one.created.as_second(), "name": one.name,
        "status": "running", "last_active_at": one.active.as_second(),
        "expires_after": {"anchor": "last_active_at", "minutes": one.idle.as_mins()},
        "network_policy": {"type": "disabled"},
        "memory_limit": one.memory_limit.as_deref().unwrap_or(MEMORY_LIMIT),
    })
}

/// A list of containers.
pub(super) fn containers(page: &Paged<Container>) -> Value {
    let data: Vec<Value> = page.items.iter().map(container).collect();
    listed(&data, page.more, true)
}

/// A file of a container.
pub(super) fn container_file(id: &str, file: &ContainerFile) -> Value {
    json!({
        "id": file.id, "object": "container.file", "container_id": id, "created_at": file.created.as_second(),
        "bytes": file.size, "path": format!("{CONTAINER_FOLDER}{}", file.path),
        "source": match file.source { Source::User => "user", Source::Assistant => "assistant" },
    })
}

/// The files of a container.
pub(super) fn container_files(id: &str, page: &Paged<ContainerFile>) -> Value {
    let data: Vec<Value> = page.items.iter().map(|file| container_file(id, file)).collect();
    listed(&data, page.more, true)
}

/// A container, or a file in one, that was deleted.
pub(super) fn deleted(object: &str, id: &str) -> Value {
    json!({"id": id, "object": object, "deleted": true})
}

/// The content of a file, with its share of the memory until it is sent.
pub fn content(mime: &str, bytes: bytes::Bytes, held: Holding) -> Response {
    let mut response = until_sent(bytes, held).into_response();
    let headers: &mut HeaderMap = response.headers_mut();
    let kind = HeaderValue::from_str(mime).unwrap_or(HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::CONTENT_TYPE, kind);
    // Content that a model or a stranger wrote must not run in a browser in this origin.
    headers.insert(header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// The format whose errors a dialect has.
pub(super) const fn format(dialect: Dialect) -> Format {
    match dialect {
        Dialect::Anthropic { .. } => Format::Messages,
        Dialect::OpenAi => Format::Chat,
    }
}

/// A refusal. The same for what is missing and what is another's.
pub(super) fn refused(dialect: Dialect, refusal: &FilesRefusal) -> Response {
    let mut response = fault(&fault_of(refusal), format(dialect));
    if let FilesRefusal::NotAllowed(_, methods) = refusal {
        response
            .headers_mut()
            .insert(header::ALLOW, HeaderValue::from_static(methods));
    }
    response
}

/// A refusal as an error of Knack.
pub(super) fn fault_of(refusal: &FilesRefusal) -> Fault {
    let fixed = |status, message: String| Fault {
        retry: false,
        ..Fault::new(status, message)
    };
    match refusal {
        FilesRefusal::Missing(what, id) => Fault {
            code: Some("not_found".to_owned()),
            param: Some("id".to_owned()),
            ..fixed(
                404,
                format!("{what} {id} was not found: it is unknown, expired, or made with another credential."),
            )
        },
        FilesRefusal::Expired(id) => Fault {
            code: Some("file_expired".to_owned()),
            param: Some("id".to_owned()),
            ..fixed(404, format!("{id} has expired."))
        },
        FilesRefusal::Invalid(param, message) => Fault {
            param: Some((*param).to_owned()),
            ..fixed(400, format!("{message}."))
        },
        FilesRefusal::TooLarge(message) => fixed(413, format!("{message}.")),
        FilesRefusal::Full(message) => fixed(
            507,
            format!("Storage limit reached: {message}. Delete what is no longer needed, or wait until it expires."),
        ),
        FilesRefusal::NotAllowed(message, _) => fixed(405, (*message).to_owned()),
        FilesRefusal::NoSuchPath => fixed(404, "The Files API has no such path.".to_owned()),
        FilesRefusal::Failed => Fault::new(
            500,
            "The file could not be written to disk or read from it; the log has the cause.",
        ),
        FilesRefusal::Away => Fault::new(
            503,
            "The registry that stores files does not answer this gateway at this moment; the gateway's log has the cause. Try \
             again in a few seconds.",
        ),
        FilesRefusal::Busy => Fault::new(
            503,
            "Too many requests about files, or too many bytes of them, are in progress, or their volume does not answer; try again in a \
             second.",
        ),
        FilesRefusal::TooOften(message) => Fault::new(429, message.clone()),
    }
}
