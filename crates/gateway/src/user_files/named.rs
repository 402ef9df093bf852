//! Model requests that name files and containers of ours: what they get of them, and what the provider sees in their place.

use bytes::Bytes;
use knack_serving::aside;
use knack_wire::history::Caller;
use knack_wire::json::{Edits, quoted};
use knack_wire::own_files::{self, CONTAINER_PREFIX, OwnFiles, OwnPart};
use knack_wire::request::Attachment;
use knack_wire::{Fault, Format, Kind, ModelRoute, Request};

use super::table::{Container, Made, NewContainer, Refusal, Source};
use super::{CONTAINER_FILE_PREFIX, UserFiles, new_id, shapes};
use crate::budget::Holding;
use crate::hidden::StagedFile;
use crate::request_files::{MADE_MAX_FILES, STAGED_MAX_BYTES, input_name};
use crate::state::Gateway;

/// What a request has of ours.
#[derive(Debug, Default)]
pub struct Named {
    /// The files of its container, and those that its messages name, for its runs.
    pub files: Vec<StagedFile>,
    /// The container that it names and that is there.
    pub container: Option<Container>,
    /// Whether only programs here can read what it names, so that its code tool runs here.
    pub runs_here: bool,
    bytes: usize,
    /// Its share of the memory, until the files are staged, which take theirs.
    pub holding: Option<Holding>,
}

impl Named {
    /// Takes room for one file more, before it is read.
    fn admit(&mut self, gateway: &Gateway, caller: &Caller, size: u64) -> Result<(), Fault> {
        let bytes = self.bytes + usize::try_from(size).unwrap_or(STAGED_MAX_BYTES);
        if self.files.len() >= MADE_MAX_FILES || bytes > STAGED_MAX_BYTES {
            let text = format!(
                "a request has at most {MADE_MAX_FILES} files of this gateway, of {STAGED_MAX_BYTES} bytes in all"
            );
            return Err(said(&Refusal::Invalid("file_id", text), "file_id"));
        }
        self.bytes = bytes;
        let held = match &mut self.holding {
            Some(holding) => holding.grow_to(bytes),
            None => gateway
                .requests
                .hold(&caller.bucket(), bytes)
                .map(|holding| self.holding = Some(holding)),
        };
        held.map_err(|_| Fault::new(503, NO_MEMORY))
    }
}

/// Said while the files of a request find no room.
const NO_MEMORY: &str = "The gateway is short of memory for the files of this request; try again in a second.";

/// Looks up what a request names; its body becomes the one that the provider may see. Errors (400, 404): what is not there, and what only a provider could read.
pub async fn resolve(gateway: &Gateway, caller: &Caller, route: &ModelRoute, body: &mut Bytes) -> Result<Named, Fault> {
    if route.format == Format::Gemini || memchr::memmem::find(body, b"_knack_").is_none() {
        return Ok(Named::default());
    }
    let (parsed, route) = (body.clone(), route.clone());
    let read = aside(body.len(), move || {
        Request::parse(route, parsed).map(|request| (own_files::read(&request), request))
    });
    // A body that cannot be read is refused where it is read for good.
    let Ok((own, request)) = read.await else {
        return Ok(Named::default());
    };
    if own == OwnFiles::default() {
        return Ok(Named::default());
    }
    let mut named = Named::default();
    if request.kind() == Kind::Generate {
        named.container = container(gateway, caller, &own).await?;
        if let Some(container) = named.container.clone() {
            named.runs_here = container.id.starts_with(CONTAINER_PREFIX);
            for file in container.files {
                named.admit(gateway, caller, file.size)?;
                let bytes = file.stored.read().await;
                let bytes = bytes.ok_or_else(|| said(&Refusal::Failed, "container"))?;
                named.files.push((file.path, bytes));
            }
        }
    }
    if !own.parts.is_empty() {
        named.runs_here = true;
        *body = parts(gateway, caller, (&request, &own), &mut named).await?;
    }
    Ok(named)
}

/// The container that a request names, or the one that is made for the files that its tool names.
async fn container(gateway: &Gateway, caller: &Caller, own: &OwnFiles) -> Result<Option<Container>, Fault> {
    let bucket = caller.bucket();
    if let Some(id) = &own.container {
        let store = gateway.user_files.as_ref();
        let found = store.and_then(|store| store.use_container(&bucket, id));
        return match (found, store) {
            (Some(found), _) => Ok(Some(found)),
            // An answer showed it: a new one takes its place, and the answer says which.
            (None, _) if !id.starts_with(CONTAINER_PREFIX) => Ok(None),
            (None, Some(store)) => Err(said(
                &store.with(|table, _| table.missing(&bucket, "Container", id)),
                "container",
            )),
            (None, None) => Err(said(&Refusal::Missing("Container", id.clone()), "container")),
        };
    }
    if own.container_files.is_empty() {
        return Ok(None);
    }
    let Some(store) = &gateway.user_files else {
        let text = "file_ids of this gateway need a container, and it keeps none; start it with --files";
        return Err(said(&Refusal::Invalid("file_ids", text.to_owned()), "file_ids"));
    };
    let id = new_id(CONTAINER_PREFIX);
    let new = NewContainer {
        id: id.clone(),
        ..NewContainer::default()
    };
    let added = store.with(|table, now| table.add_container(&bucket, new, now).map(|_| ()));
    added.map_err(|refusal| said(&refusal, "tools"))?;
    for file in &own.container_files {
        put(gateway, caller, store, (&id, file)).await.map_err(|refusal| {
            store.with(|table, _| table.delete_container(&bucket, &id));
            said(&refusal, "file_ids")
        })?;
    }
    Ok(store.use_container(&bucket, &id))
}

async fn put(gateway: &Gateway, caller: &Caller, store: &UserFiles, (id, file): (&str, &str)) -> Result<(), Refusal> {
    let found = gateway.own_file(caller, file).await?;
    let stored = found
        .stored()
        .ok_or_else(|| Refusal::Missing("File", file.to_owned()))?;
    let made = Made {
        id: new_id(CONTAINER_FILE_PREFIX),
        path: found.info.name.rsplit('/').next().unwrap_or_default().to_owned(),
        mime: found.info.mime,
        size: found.info.size,
        stored,
    };
    store.with(|table, now| table.add_to_container(&caller.bucket(), id, (made, Source::User), now))?;
    Ok(())
}

/// The body with words in the place of files of ours, which become inputs of the runs.
async fn parts(
    gateway: &Gateway,
    caller: &Caller,
    (request, own): (&Request, &OwnFiles),
    named: &mut Named,
) -> Result<Bytes, Fault> {
    let mut edits = Edits::new();
    // The same file may be named in many messages; its name is the same in each request of a conversation.
    let mut names: Vec<(&str, String)> = Vec::new();
    for part in &own.parts {
        if let Some(kind) = &part.for_model {
            return Err(for_model(request.format(), part, kind));
        }
        let known = names.iter().find(|(id, _)| *id == part.id);
        let name = if let Some((_, name)) = known {
            name.clone()
        } else {
            let found = gateway.own_file(caller, &part.id).await;
            let found = found.map_err(|refusal| said(&refusal, "file_id"))?;
            named.admit(gateway, caller, found.info.size)?;
            let bytes = found.content().await.ok_or_else(|| said(&Refusal::Failed, "file_id"))?;
            let given = Attachment {
                name: Some(found.info.name.clone()),
                media_type: Some(found.info.mime.clone()),
                bytes: Vec::new(),
            };
            let name = input_name(&given, names.len(), |name| names.iter().any(|(_, taken)| taken == name));
            named.files.push((format!("inputs/{name}"), bytes));
            names.push((&part.id, name.clone()));
            name
        };
        let text = quoted(&knack_skill::texts::uploaded_input(&name));
        let kind = match request.format() {
            Format::Responses => "input_text",
            _ => "text",
        };
        let words = [format!(r#"{{"type":"{kind}","text":"#).as_bytes(), &text, b"}"].concat();
        edits.replace(part.span, words);
    }
    Ok(edits.apply(request.raw()).into())
}

fn for_model(format: Format, part: &OwnPart, kind: &str) -> Fault {
    let instead = match format {
        Format::Messages => "name it in a container_upload block",
        _ => "name it in an input_file part",
    };
    let text = format!(
        "the file {} is kept by this gateway, so a model cannot read it as {kind:?}; {instead} to give it to programs, or send it \
         inline",
        part.id
    );
    said(&Refusal::Invalid("file_id", text), "file_id")
}

fn said(refusal: &Refusal, param: &str) -> Fault {
    Fault {
        param: Some(param.to_owned()),
        ..shapes::said(refusal)
    }
}

/// Bytes of memory that a container allows its runs.
pub fn memory_bytes(container: &Container) -> Option<u64> {
    let limit = container.memory_limit.as_deref()?;
    limit.strip_suffix('g')?.parse::<u64>().ok()?.checked_mul(1 << 30)
}

impl UserFiles {
    /// A new container for the runs of an answer, as OpenAI's API shows it. `None`: there is no room for one.
    pub fn open_container(&self, caller: &crate::records::Key) -> Option<Container> {
        let new = NewContainer {
            id: new_id(CONTAINER_PREFIX),
            ..NewContainer::default()
        };
        self.with(|table, now| table.add_container(caller, new, now).ok().cloned())
    }
}
