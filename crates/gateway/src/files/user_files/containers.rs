//! Calls about containers.

use axum::Json;
use axum::response::{IntoResponse, Response};
use jiff::SignedDuration;
use knack_registry::read_json;
use knack_wire::Format;
use knack_wire::own_files::{CONTAINER_PREFIX, is_own_file};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::files_caller::FilesCaller;
use super::files_request::FilesRequest;
use super::form::{self, FormFile};
use super::info::{Content, FoundFile};
use super::named::of_container;
use super::objects::{Container, ContainerFile, NewContainer, NewContainerFile, SkillReference, Source};
use super::operation::SKILLS_MAX;
use super::page::container_page;
use super::refusal::FilesRefusal;
use super::route::FilesCall;
use super::store::new_id;
use super::{UserFiles, shapes};
use crate::model_calls::inject;
use crate::state::Gateway;

/// Longest name of a container, bytes.
const NAME_MAX_BYTES: usize = 255;
/// Files that a new container may be given, as OpenAI's API has it.
const FILE_IDS_MAX: usize = 50;
/// Longest id of a skill that may be attached: as long as one may be here.
const SKILL_ID_MAX_BYTES: usize = 128;
/// Longest version of a skill that may be attached: a word.
const VERSION_MAX_BYTES: usize = 64;
/// The memory limits that OpenAI's API knows.
const MEMORY_LIMITS: [&str; 4] = ["1g", "4g", "16g", "64g"];

/// The body of a create.
#[derive(Debug)]
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
pub(super) async fn answer(
    asked: &FilesRequest<'_>,
    store: &UserFiles,
    call: FilesCall,
) -> Result<Response, FilesRefusal> {
    let caller = &asked.who;
    let query = asked.parts.uri.query();
    let json = |value: Value| Json(value).into_response();
    match call {
        FilesCall::CreateContainer => create(asked, store).await.map(|one| json(shapes::container(&one))),
        FilesCall::Containers => {
            let (page, name) = container_page(query)?;
            let (mut all, gone) = store.containers(caller, page.places()).await?;
            all.retain(|one| name.as_ref().is_none_or(|name| *name == one.name));
            let listed = page.of(all, |one| (one.created, one.id.clone()), &gone)?;
            Ok(json(shapes::containers(&listed)))
        }
        FilesCall::Container(id) => {
            let (found, _) = store.container(caller, &id, Vec::new()).await?;
            Ok(json(shapes::container(&found)))
        }
        FilesCall::DeleteContainer(id) => {
            store.delete_container(caller, &id).await?;
            Ok(json(shapes::deleted("container.deleted", &id)))
        }
        FilesCall::AddContainerFile(id) => {
            let file = add(asked, store, &id).await?;
            Ok(json(shapes::container_file(&id, &file)))
        }
        FilesCall::ContainerFiles(id) => {
            let (page, _) = container_page(query)?;
            let (container, gone) = store.container(caller, &id, page.places()).await?;
            let listed = page.of(container.files, |one| (one.created, one.id.clone()), &gone)?;
            Ok(json(shapes::container_files(&id, &listed)))
        }
        FilesCall::ContainerFile { container: id, file } => {
            let (container, _) = store.container(caller, &id, Vec::new()).await?;
            let found = container.files.into_iter().find(|one| one.id == file);
            let found = found.ok_or(FilesRefusal::Missing("Container file", file))?;
            Ok(json(shapes::container_file(&id, &found)))
        }
        FilesCall::ContainerFileContent { container: id, file } => {
            let (container, _) = store.container(caller, &id, Vec::new()).await?;
            let size = container.files.iter().find(|one| one.id == file).map(|one| one.size);
            let held = asked.gateway.hold_content(caller, size.unwrap_or(0))?;
            let (found, bytes) = store.container_file_content(caller, &id, &file).await?;
            Ok(shapes::content(&found.mime, bytes, held))
        }
        FilesCall::DeleteContainerFile { container: id, file } => {
            store.delete_container_file(caller, &id, &file).await?;
            Ok(json(shapes::deleted("container.file.deleted", &file)))
        }
        _ => Err(FilesRefusal::NoSuchPath),
    }
}

async fn create(asked: &FilesRequest<'_>, store: &UserFiles) -> Result<Container, FilesRefusal> {
    let body = read(&asked.body)?;
    let new = new_container(&body)?;
    demand_served(asked, &new.skills).await?;
    let ids = body.file_ids.unwrap_or_default();
    for id in &ids {
        demand_own(id, "file_ids")?;
    }
    asked.gateway.container_with(&asked.who, store, new, &ids).await
}

/// Reads the body of a create. Errors name the member that is wrong.
fn read(body: &[u8]) -> Result<Create, FilesRefusal> {
    let body: Map<String, Value> = read_json(body)
        .and_then(|value| Ok(serde_json::from_value(value)?))
        .map_err(|error| FilesRefusal::Invalid("body", format!("the container is not a JSON object: {error}")))?;
    let member = |name: &str| body.get(name).filter(|value| !value.is_null());
    let name = member("name").ok_or_else(|| FilesRefusal::Invalid("name", "name: required".to_owned()))?;
    Ok(Create {
        name: typed("name", name)?,
        expires_after: member("expires_after")
            .map(|value| typed("expires_after", value))
            .transpose()?,
        memory_limit: member("memory_limit")
            .map(|value| typed("memory_limit", value))
            .transpose()?,
        network_policy: member("network_policy").cloned(),
        skills: member("skills").map(|value| typed("skills", value)).transpose()?,
        file_ids: member("file_ids").map(|value| typed("file_ids", value)).transpose()?,
    })
}

fn typed<T: DeserializeOwned>(name: &'static str, value: &Value) -> Result<T, FilesRefusal> {
    T::deserialize(value).map_err(|error| FilesRefusal::Invalid(name, format!("{name}: {error}")))
}

fn new_container(body: &Create) -> Result<NewContainer, FilesRefusal> {
    let invalid = |field, text: &str| Err(FilesRefusal::Invalid(field, format!("{field}: {text}")));
    if body.name.len() > NAME_MAX_BYTES {
        return invalid("name", "at most 255 bytes");
    }
    let kind = body.network_policy.as_ref().map(|policy| &policy["type"]);
    if kind.is_some_and(|kind| kind != "disabled") {
        return invalid(
            "network_policy",
            "programs have no network here; omit it, or send {\"type\": \"disabled\"}",
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
            "anchor must be last_active_at, and minutes must be at least 1",
        );
    }
    Ok(NewContainer {
        id: new_id(CONTAINER_PREFIX),
        name: body.name.clone(),
        idle: idle.map(|idle| SignedDuration::from_mins(idle.minutes.min(24 * 60))),
        memory_limit: body.memory_limit.clone(),
        skills: skills(body.skills.as_deref().unwrap_or_default())?,
    })
}

/// Reads the references to skills.
fn skills(entries: &[Value]) -> Result<Vec<SkillReference>, FilesRefusal> {
    let invalid = |text: String| FilesRefusal::Invalid("skills", format!("skills: {text}"));
    if entries.len() > SKILLS_MAX {
        return Err(invalid(format!(
            "at most {SKILLS_MAX}; attach more to the shell of a request"
        )));
    }
    let read = |entry: &Value| {
        match entry["type"].as_str() {
            Some("skill_reference") => {}
            Some("inline") => {
                let text =
                    "a whole skill is for the shell of one request; upload it to /v1/skills, and name its id here";
                return Err(invalid(text.to_owned()));
            }
            _ => return Err(invalid("type must be skill_reference".to_owned())),
        }
        let id = entry["skill_id"].as_str().unwrap_or_default();
        if id.is_empty() || id.len() > SKILL_ID_MAX_BYTES {
            let text = format!("skill_id must be a text of 1 to {SKILL_ID_MAX_BYTES} bytes");
            return Err(invalid(text));
        }
        let version = match &entry["version"] {
            Value::Null => None,
            Value::String(version) if version.len() <= VERSION_MAX_BYTES => Some(version.clone()),
            Value::Number(version) if version.is_u64() => Some(version.to_string()),
            _ => {
                return Err(invalid(format!(
                    "version of {id} must be a short text, such as \"latest\" or \"2\""
                )));
            }
        };
        Ok(SkillReference {
            id: id.to_owned(),
            version,
        })
    };
    entries.iter().map(read).collect()
}

/// Refuses skills that are not served here. Without a catalog that is not known: each request that names the container
/// checks them.
async fn demand_served(asked: &FilesRequest<'_>, skills: &[SkillReference]) -> Result<(), FilesRefusal> {
    if skills.is_empty() {
        return Ok(());
    }
    let (_, snapshot) = asked.gateway.served_to(&asked.parts).await;
    if snapshot.absent.is_some() {
        return Ok(());
    }
    inject::demand_served(&of_container(skills, Format::Responses), &snapshot.catalog)
        .map_err(|text| FilesRefusal::Invalid("skills", format!("skills: {text}")))
}

/// Refuses an id that names a file of the provider.
fn demand_own(id: &str, field: &'static str) -> Result<(), FilesRefusal> {
    if is_own_file(id) {
        return Ok(());
    }
    let text = format!(
        "{field}: {id} is a file of the provider; a container of this gateway accepts only files that were uploaded here"
    );
    Err(FilesRefusal::Invalid(field, text))
}

async fn add(asked: &FilesRequest<'_>, store: &UserFiles, id: &str) -> Result<ContainerFile, FilesRefusal> {
    let caller = &asked.who;
    store.container(caller, id, Vec::new()).await?;
    if form::is_form(&asked.parts.headers) {
        let FormFile { name, mime, bytes } = form::read(&asked.parts.headers, asked.body.clone()).await?.file;
        return store.add_to_container(caller, id, of_user(name, mime), bytes).await;
    }
    let named: ByFileId = serde_json::from_slice(&asked.body).map_err(|_| {
        let text = "send a file as multipart/form-data in a part named file, or {\"file_id\": \"…\"} as JSON";
        FilesRefusal::Invalid("file", text.to_owned())
    })?;
    demand_own(&named.file_id, "file_id")?;
    let found = asked.gateway.own_file(caller, &named.file_id).await?;
    let name = container_name(&found.info.name).to_owned();
    asked.gateway.put(caller, store, id, (&found, name)).await
}

/// The name of a file in a container: one that a run made has a path.
fn container_name(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or_default()
}

/// A name that no other file of a list has.
fn distinct(name: &str, taken: &[String]) -> String {
    let is_free = |name: &String| !taken.contains(name);
    let name = name.to_owned();
    if is_free(&name) {
        return name;
    }
    (2..=FILE_IDS_MAX)
        .map(|number| {
            let mut numbered = format!("{number}-{name}");
            while numbered.len() > form::NAME_MAX_BYTES {
                numbered.pop();
            }
            numbered
        })
        .find(is_free)
        .unwrap_or(name)
}

const fn of_user(path: String, mime: String) -> NewContainerFile {
    NewContainerFile {
        path,
        mime,
        source: Source::User,
    }
}

impl Gateway {
    /// Makes a container with these files of a caller. Files of one name get numbers, as attachments do.
    pub(super) async fn container_with(
        &self,
        who: &FilesCaller,
        store: &UserFiles,
        new: NewContainer,
        ids: &[String],
    ) -> Result<Container, FilesRefusal> {
        if ids.len() > FILE_IDS_MAX {
            let text = format!("file_ids: at most {FILE_IDS_MAX}");
            return Err(FilesRefusal::Invalid("file_ids", text));
        }
        let (mut files, mut names) = (Vec::new(), Vec::new());
        for (index, id) in ids.iter().enumerate() {
            if ids.iter().take(index).any(|earlier| earlier == id) {
                continue;
            }
            let found = self.own_file(who, id).await?;
            // The content of a file of another replica was read already.
            let read = if matches!(found.content, Content::Read(_)) {
                found.info.size
            } else {
                0
            };
            let held = self.hold_content(who, read)?;
            let name = distinct(container_name(&found.info.name), &names);
            names.push(name.clone());
            files.push((found, name, held));
        }
        let made = store.add_container(who, new).await?;
        for (found, name, _held) in files {
            if let Err(refusal) = self.put(who, store, &made.id, (&found, name)).await {
                // If this fails, the container expires.
                let _ = store.delete_container(who, &made.id).await;
                return Err(refusal);
            }
        }
        store.use_container(who, &made.id).await
    }

    /// Puts a file of a caller into one of its containers. An upload is copied where it is kept.
    async fn put(
        &self,
        who: &FilesCaller,
        store: &UserFiles,
        container: &str,
        (found, name): (&FoundFile, String),
    ) -> Result<ContainerFile, FilesRefusal> {
        if matches!(found.content, Content::Uploaded) {
            return store.copy_to_container(who, container, (&found.info, &name)).await;
        }
        let _held = self.hold_content(who, found.info.size)?;
        let bytes = self.content_of(who, found).await?;
        let file = of_user(name, found.info.mime.clone());
        store.add_to_container(who, container, file, bytes).await
    }
}

#[cfg(test)]
mod tests {
    use super::distinct;

    #[test]
    fn files_of_one_name_get_numbers_that_fit_a_file_system() {
        let mut taken = Vec::new();
        for expected in ["a.csv", "2-a.csv", "3-a.csv"] {
            let name = distinct("a.csv", &taken);
            assert_eq!(name, expected);
            taken.push(name);
        }
        let long = "é".repeat(127);
        let numbered = distinct(&long, std::slice::from_ref(&long));
        assert!(numbered.starts_with("2-é") && numbered.len() <= 255, "{numbered}");
    }
}
