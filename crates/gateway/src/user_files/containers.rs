//! Calls about containers.

use std::sync::Arc;

use axum::Json;
use axum::response::{IntoResponse, Response};
use jiff::SignedDuration;
use knack_registry::Paged;
use knack_wire::own_files::{CONTAINER_PREFIX, is_own_file};
use serde::Deserialize;
use serde_json::Value;

use super::asked::Asked;
use super::form::{self, FormFile};
use super::page::container_page;
use super::route::Call;
use super::table::{Container, ContainerFile, Made, NewContainer, Refusal, Source};
use super::{CONTAINER_FILE_PREFIX, FileInfo, UserFiles, new_id, shapes};

/// Longest name of a container, bytes.
const NAME_MAX_BYTES: usize = 255;
/// Files that a new container may be given, as OpenAI's API has it.
const FILE_IDS_MAX: usize = 50;
/// The memory limits that OpenAI's API knows.
const MEMORY_LIMITS: [&str; 4] = ["1g", "4g", "16g", "64g"];

/// The body of a create.
#[derive(Debug, Deserialize)]
struct Create {
    name: String,
    expires_after: Option<ExpiresAfter>,
    memory_limit: Option<String>,
    network_policy: Option<Value>,
    skills: Option<Vec<Value>>,
    file_ids: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
struct ExpiresAfter {
    anchor: String,
    minutes: i64,
}

/// The body that names an upload.
#[derive(Debug, Deserialize)]
struct ByFileId {
    file_id: String,
}

/// Answers one call.
pub(super) async fn answer(asked: &Asked<'_>, store: &Arc<UserFiles>, call: Call) -> Result<Response, Refusal> {
    let caller = asked.caller.bucket();
    let query = asked.parts.uri.query();
    let json = |value: Value| Json(value).into_response();
    match call {
        Call::CreateContainer => create(asked, store).await.map(|one| json(shapes::container(&one))),
        Call::Containers => {
            let (page, name) = container_page(query)?;
            let listed: Result<Paged<Container>, Refusal> = store.with(|table, _| {
                let is_asked = |one: &&Container| name.as_ref().is_none_or(|name| *name == one.name);
                let all = table.containers_of(&caller).filter(is_asked).cloned().collect();
                page.of(all, |one| (one.created, one.id.clone()), |id| table.gone(&caller, id))
            });
            listed.map(|page| json(shapes::containers(&page)))
        }
        Call::Container(id) => {
            let found = store.with(|table, _| table.container(&caller, &id).cloned());
            found.map(|one| json(shapes::container(&one)))
        }
        Call::DeleteContainer(id) => {
            let gone = store.with(|table, _| table.delete_container(&caller, &id));
            if !gone {
                return Err(store.with(|table, _| table.missing(&caller, "Container", &id)));
            }
            Ok(json(shapes::deleted("container.deleted", &id)))
        }
        Call::AddContainerFile(id) => {
            let file = add(asked, store, &id).await?;
            Ok(json(shapes::container_file(&id, &file)))
        }
        Call::ContainerFiles(id) => {
            let (page, _) = container_page(query)?;
            let listed: Result<Paged<ContainerFile>, Refusal> = store.with(|table, _| {
                let all = table.container(&caller, &id)?.files.clone();
                page.of(all, |one| (one.created, one.id.clone()), |id| table.gone(&caller, id))
            });
            listed.map(|page| json(shapes::container_files(&id, &page)))
        }
        Call::ContainerFile(id, file) => {
            let found = store.with(|table, _| table.container_file(&caller, &id, &file).cloned())?;
            Ok(json(shapes::container_file(&id, &found)))
        }
        Call::ContainerFileContent(id, file) => {
            let found = store.with(|table, _| table.container_file(&caller, &id, &file).cloned())?;
            let bytes = found.stored.read().await.ok_or(Refusal::Failed)?;
            Ok(shapes::content(&found.mime, bytes))
        }
        Call::DeleteContainerFile(id, file) => {
            store.with(|table, _| table.delete_container_file(&caller, &id, &file))?;
            Ok(json(shapes::deleted("container.file.deleted", &file)))
        }
        _ => Err(Refusal::NotAllowed("The API has no such method here.")),
    }
}

async fn create(asked: &Asked<'_>, store: &Arc<UserFiles>) -> Result<Container, Refusal> {
    let body: Create = serde_json::from_slice(&asked.body)
        .map_err(|error| Refusal::Invalid("body", format!("the container cannot be read: {error}")))?;
    let new = new_container(&body)?;
    let mut files = Vec::new();
    for id in body.file_ids.iter().flatten() {
        files.push(uploaded(asked, id, "file_ids").await?);
    }
    let caller = asked.caller.bucket();
    let id = new.id.clone();
    store.with(|table, now| table.add_container(&caller, new, now).map(|_| ()))?;
    for file in files {
        if let Err(refusal) = put(asked, store, &id, file).await {
            store.with(|table, _| table.delete_container(&caller, &id));
            return Err(refusal);
        }
    }
    store.with(|table, _| table.container(&caller, &id).cloned())
}

fn new_container(body: &Create) -> Result<NewContainer, Refusal> {
    let invalid = |field, text: &str| Err(Refusal::Invalid(field, format!("{field}: {text}")));
    if body.name.len() > NAME_MAX_BYTES {
        return invalid("name", "at most 255 bytes");
    }
    if body.skills.as_ref().is_some_and(|skills| !skills.is_empty()) {
        return invalid(
            "skills",
            "attach skills to the shell of a request; a container of this gateway has files only",
        );
    }
    let kind = body.network_policy.as_ref().map(|policy| &policy["type"]);
    if kind.is_some_and(|kind| kind != "disabled") {
        return invalid(
            "network_policy",
            "programs have no network here; leave it out, or send {\"type\": \"disabled\"}",
        );
    }
    if body.file_ids.as_ref().is_some_and(|ids| ids.len() > FILE_IDS_MAX) {
        return invalid("file_ids", "at most 50");
    }
    let limit = body.memory_limit.as_deref();
    if limit.is_some_and(|limit| !MEMORY_LIMITS.contains(&limit)) {
        return invalid("memory_limit", "1g, 4g, 16g or 64g");
    }
    let idle = body.expires_after.as_ref();
    if idle.is_some_and(|idle| idle.anchor != "last_active_at" || idle.minutes < 1) {
        return invalid(
            "expires_after",
            "the anchor is last_active_at, and minutes is 1 or more",
        );
    }
    Ok(NewContainer {
        id: new_id(CONTAINER_PREFIX),
        name: body.name.clone(),
        idle: idle.map(|idle| SignedDuration::from_mins(idle.minutes.min(24 * 60))),
        memory_limit: body.memory_limit.clone(),
    })
}

/// The upload that an id names, as a file of a form.
async fn uploaded(asked: &Asked<'_>, id: &str, field: &'static str) -> Result<FormFile, Refusal> {
    if !is_own_file(id) {
        let text = format!(
            "{field}: {id} is a file of the provider; a container of this gateway takes files that were uploaded here"
        );
        return Err(Refusal::Invalid(field, text));
    }
    let found = asked.file(id).await?;
    let bytes = found.content().await.ok_or(Refusal::Failed)?;
    let FileInfo { name, mime, .. } = found.info;
    // A file that a run made has a path.
    let name = name.rsplit('/').next().unwrap_or_default().to_owned();
    Ok(FormFile { name, mime, bytes })
}

async fn add(asked: &Asked<'_>, store: &Arc<UserFiles>, id: &str) -> Result<ContainerFile, Refusal> {
    let caller = asked.caller.bucket();
    store.with(|table, _| table.container(&caller, id).map(|_| ()))?;
    let file = if form::is_form(&asked.parts.headers) {
        form::read(&asked.parts.headers, asked.body.clone()).await?.file
    } else {
        let named: ByFileId = serde_json::from_slice(&asked.body).map_err(|_| {
            let text = "send a file as multipart/form-data in a part named file, or {\"file_id\": \"…\"} as JSON";
            Refusal::Invalid("file", text.to_owned())
        })?;
        uploaded(asked, &named.file_id, "file_id").await?
    };
    put(asked, store, id, file).await
}

async fn put(asked: &Asked<'_>, store: &Arc<UserFiles>, id: &str, file: FormFile) -> Result<ContainerFile, Refusal> {
    let size = file.bytes.len() as u64;
    let [stored] = <[_; 1]>::try_from(store.write(vec![file.bytes]).await?).map_err(|_| Refusal::Failed)?;
    let made = Made {
        id: new_id(CONTAINER_FILE_PREFIX),
        path: file.name,
        mime: file.mime,
        size,
        stored,
    };
    let caller = asked.caller.bucket();
    store.with(|table, now| table.add_to_container(&caller, id, (made, Source::User), now))
}
