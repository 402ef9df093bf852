//! Model requests that name files and containers of this gateway: what their runs get, and what the provider sees instead.

use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use knack_serving::run_off_thread_if_large;
use knack_wire::history::Caller;
use knack_wire::json::{Edits, quoted};
use knack_wire::own_files::{self, CONTAINER_PREFIX, OwnFiles, OwnPart};
use knack_wire::request::{Attachment, ContainerSkill, SkillVersion};
use knack_wire::{CallKind, Fault, Format, ModelRoute, Request};

use super::files_caller::FilesCaller;
use super::objects::{Container, SkillReference};
use super::refusal::FilesRefusal;
use super::shapes;
use super::store::new_container;
use crate::files::request_files::{MADE_MAX_FILES, STAGED_MAX_BYTES, input_name};
use crate::http_server::budget::Holding;
use crate::model_calls::hidden_turns::StagedFile;
use crate::model_calls::turn_store::KeyedHash;
use crate::state::Gateway;

/// The files and the container of this gateway that a request names.
#[derive(Debug, Default)]
pub(crate) struct NamedFiles {
    /// The files of its container, and those that its messages name, for its runs.
    pub files: Vec<StagedFile>,
    /// The container that it names and that is there.
    pub(crate) container: Option<Container>,
    /// Whether only programs here can read what it names, so that its code tool runs here.
    pub(crate) runs_here: bool,
    /// The caller against whose limits the memory of its files counts.
    counted: KeyedHash,
    bytes: usize,
    /// Its share of the memory, until the files are staged, which take theirs.
    pub(crate) holding: Option<Holding>,
}

impl NamedFiles {
    /// Takes room for one file more than so many, before it is read.
    fn admit(&mut self, gateway: &Gateway, files: usize, size: u64) -> Result<(), Fault> {
        let bytes = self.bytes + usize::try_from(size).unwrap_or(STAGED_MAX_BYTES);
        if files >= MADE_MAX_FILES || bytes > STAGED_MAX_BYTES {
            let text = format!(
                "a request has at most {MADE_MAX_FILES} files of this gateway, of {STAGED_MAX_BYTES} bytes in all"
            );
            return Err(fault_of_param(&FilesRefusal::Invalid("file_id", text), "file_id"));
        }
        self.grow_to(gateway, bytes)
    }

    /// Has room for at least so many bytes.
    fn grow_to(&mut self, gateway: &Gateway, bytes: usize) -> Result<(), Fault> {
        self.bytes = self.bytes.max(bytes);
        let held = match &mut self.holding {
            Some(holding) => holding.grow_to(self.bytes),
            None => gateway
                .requests
                .hold(&self.counted, self.bytes)
                .map(|holding| self.holding = Some(holding)),
        };
        held.map_err(|_| Fault::new(503, NO_MEMORY))
    }
}

/// Time for all files of a container.
const CONTENTS_TIMEOUT: Duration = Duration::from_mins(1);
/// The message while there is no room for the files of a request.
const NO_MEMORY: &str = "The gateway is short of memory for the files of this request; try again in a second.";

/// Looks up what a request names; its body becomes the one that the provider may see. Errors (400, 404): what is not there, and what only a provider could read.
///
/// The files are those of the caller, and their memory counts for who comes beside it.
pub(crate) async fn resolve(
    gateway: &Gateway,
    caller: &Caller,
    counted: KeyedHash,
    address: Option<IpAddr>,
    route: &ModelRoute,
    body: &mut Bytes,
) -> Result<NamedFiles, Fault> {
    if route.format == Format::Gemini || memchr::memmem::find(body, b"_knack_").is_none() {
        return Ok(NamedFiles::default());
    }
    // Boxed, so that requests which name nothing do not carry its state.
    Box::pin(resolve_named(gateway, caller, counted, address, route, body)).await
}

async fn resolve_named(
    gateway: &Gateway,
    caller: &Caller,
    counted: KeyedHash,
    address: Option<IpAddr>,
    route: &ModelRoute,
    body: &mut Bytes,
) -> Result<NamedFiles, Fault> {
    let who = &FilesCaller::new(caller.clone(), counted, address).waiting(CONTENTS_TIMEOUT);
    let (parsed, route) = (body.clone(), route.clone());
    let read = run_off_thread_if_large(body.len(), move || {
        Request::parse(route, parsed).map(|request| (own_files::read(&request), request))
    });
    // A body that cannot be read is refused where it is read for good.
    let Ok((own, request)) = read.await else {
        return Ok(NamedFiles::default());
    };
    if own == OwnFiles::default() {
        return Ok(NamedFiles::default());
    }
    let mut named = NamedFiles {
        counted,
        ..NamedFiles::default()
    };
    if request.kind() == CallKind::Generate {
        named.container = container(gateway, who, &own).await?;
        if let Some(container) = named.container.clone() {
            named.runs_here = container.id.starts_with(CONTAINER_PREFIX);
            named.files = contents(gateway, who, &container, &mut named).await?;
        }
    }
    if !own.parts.is_empty() {
        named.runs_here = true;
        *body = parts(gateway, who, &request, &own, &mut named).await?;
    }
    Ok(named)
}

/// The contents of a container, each of which has taken room before.
async fn contents(
    gateway: &Gateway,
    who: &FilesCaller,
    container: &Container,
    named: &mut NamedFiles,
) -> Result<Vec<StagedFile>, Fault> {
    let Some(store) = &gateway.user_files else {
        return Ok(Vec::new());
    };
    for (count, file) in container.files.iter().enumerate() {
        named.admit(gateway, count, file.size)?;
    }
    let read = tokio::time::timeout(CONTENTS_TIMEOUT, store.contents(who, container)).await;
    let read = read
        .unwrap_or(Err(FilesRefusal::Away))
        .map_err(|refusal| fault_of_param(&refusal, "container"))?;
    // Another request may have replaced them by larger ones meanwhile.
    named.grow_to(gateway, read.iter().map(|(_, content)| content.len()).sum())?;
    Ok(read)
}

/// The container that a request names, or the one that is made for the files that its tool names.
async fn container(gateway: &Gateway, who: &FilesCaller, own: &OwnFiles) -> Result<Option<Container>, Fault> {
    let store = gateway.user_files.as_ref();
    if let Some(id) = &own.container {
        let found = match store {
            Some(store) => store.use_container(who, id).await,
            None => Err(FilesRefusal::Missing("Container", id.clone())),
        };
        return match found {
            Ok(found) => Ok(Some(found)),
            // An answer showed it: it is replaced by a new one, which the answer names.
            Err(FilesRefusal::Missing(..) | FilesRefusal::Expired(_)) if !id.starts_with(CONTAINER_PREFIX) => Ok(None),
            Err(refusal) => Err(fault_of_param(&refusal, "container")),
        };
    }
    if own.container_files.is_empty() {
        return Ok(None);
    }
    let Some(store) = store else {
        let text = "file_ids of this gateway need a container, but files are not enabled here; ask the operator to enable them";
        return Err(fault_of_param(
            &FilesRefusal::Invalid("file_ids", text.to_owned()),
            "file_ids",
        ));
    };
    let made = gateway
        .container_with(who, store, new_container(), &own.container_files)
        .await;
    made.map(Some).map_err(|refusal| fault_of_param(&refusal, "file_ids"))
}

/// The body in which texts replace the files of this gateway; the files become inputs of the runs.
async fn parts(
    gateway: &Gateway,
    who: &FilesCaller,
    request: &Request,
    own: &OwnFiles,
    named: &mut NamedFiles,
) -> Result<Bytes, Fault> {
    let mut edits = Edits::new();
    // A file may be named in many messages; its name is the same in each request of a conversation.
    let mut names: Vec<(&str, String)> = Vec::new();
    for part in &own.parts {
        if let Some(kind) = &part.for_model {
            return Err(for_model(request.format(), part, kind));
        }
        let known = names.iter().find(|(id, _)| *id == part.id);
        let name = if let Some((_, name)) = known {
            name.clone()
        } else {
            let found = gateway.own_file(who, &part.id).await;
            let found = found.map_err(|refusal| fault_of_param(&refusal, "file_id"))?;
            named.admit(gateway, named.files.len(), found.info.size)?;
            let bytes = gateway.content_of(who, &found).await;
            let bytes = bytes.map_err(|refusal| fault_of_param(&refusal, "file_id"))?;
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
        "the file {} is stored by this gateway, so a model cannot read it as {kind:?}; {instead} to give it to programs, or send it \
         inline",
        part.id
    );
    fault_of_param(&FilesRefusal::Invalid("file_id", text), "file_id")
}

/// A refusal that names the parameter of a model request.
pub(crate) fn fault_of_param(refusal: &FilesRefusal, param: &str) -> Fault {
    Fault {
        param: Some(param.to_owned()),
        ..shapes::fault_of(refusal)
    }
}

/// The skills of a container, as a request of a format would name them.
pub(crate) fn of_container(skills: &[SkillReference], format: Format) -> Vec<ContainerSkill> {
    let kind = match format {
        Format::Responses => "skill_reference",
        Format::Messages | Format::Chat | Format::Gemini => "custom",
    };
    let one = |skill: &SkillReference| ContainerSkill {
        kind: kind.to_owned(),
        id: skill.id.clone(),
        version: skill.version.clone().map_or(SkillVersion::Absent, SkillVersion::Text),
    };
    skills.iter().map(one).collect()
}

/// Bytes of memory that a container allows its runs.
pub(crate) fn memory_bytes(container: &Container) -> Option<u64> {
    let limit = container.memory_limit.as_deref()?;
    limit.strip_suffix('g')?.parse::<u64>().ok()?.checked_mul(1 << 30)
}
