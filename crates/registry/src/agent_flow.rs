//! Agent Flow's `/api/v1/skills`: skills of one SKILL.md, by name.

use bytes::Bytes;
use http::Method;
use knack_skill::agent_flow::{self, AgentFlowSkill, ApiError, Status};
use knack_skill::model::{Input, InputKind, SkillFile};
use knack_skill::problem::Profile;
use knack_skill::tree::DOCUMENT_NAMES;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use crate::Files;
use crate::answer::{Answer, Refusal, RefusalKind, rfc3339};
use crate::check::check;
use crate::draft::Draft;
use crate::error::StoreError;
use crate::json::{read_aside, read_json};
use crate::model::SkillEntry;
use crate::owner::Owner;
use crate::store::{Store, all};

/// Skills of a list, which has no pages here; `total` counts all.
const LIST_MAX: usize = 1_000;

/// The request, with the name in the path.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the API")]
pub enum AgentFlow {
    Create,
    List,
    Get(String),
    Update(String),
    Delete(String),
    Run(String),
    /// A path or method that is not there.
    Unknown,
}

impl AgentFlow {
    /// Reads what follows `/api/v1/skills`.
    pub(crate) fn of(method: &Method, rest: &[&str]) -> Self {
        let name = |name: &str| percent_decode_str(name).decode_utf8_lossy().into_owned();
        match (method.as_str(), rest) {
            ("POST", []) => Self::Create,
            ("GET", []) => Self::List,
            ("GET", [named]) => Self::Get(name(named)),
            ("PUT", [named]) => Self::Update(name(named)),
            ("DELETE", [named]) => Self::Delete(name(named)),
            ("POST", [named, "run"]) => Self::Run(name(named)),
            _ => Self::Unknown,
        }
    }
}

/// The refusal of a path or method that is not there.
pub(crate) fn unknown() -> Refusal {
    let text = "Supported: GET and POST /api/v1/skills, GET, PUT and DELETE /api/v1/skills/{name}, and POST \
                /api/v1/skills/{name}/run.";
    Refusal::new(RefusalKind::NotFound, "path", text)
}

pub(crate) async fn call(store: &dyn Store, owner: &Owner, call: AgentFlow, body: &Bytes) -> Result<Answer, Refusal> {
    match call {
        AgentFlow::Create => {
            let body = read_aside(body, parsed).await?;
            let (name, content) = agent_flow::parse_create_body(&body)?;
            let taken = find(store, owner, &name.to_lowercase()).await?;
            agent_flow::create(name, content, None, taken.as_ref().map(|entry| &*entry.name))?;
            let draft = draft(name, Files::new(), content)?;
            let created = store.create(owner, None, draft).await;
            let entry = created.map_err(|error| Refusal::of(error, name))?;
            Ok((201, Some(detail(&entry, content)?)))
        }
        AgentFlow::List => Ok((200, Some(list(store, owner).await?))),
        AgentFlow::Get(name) => {
            let entry = named(store, owner, &name).await?;
            let content = document(store, owner, &entry).await?;
            Ok((200, Some(detail(&entry, &content)?)))
        }
        AgentFlow::Update(name) => {
            let body = read_aside(body, parsed).await?;
            let content = body.get("content").and_then(Value::as_str);
            let content = content.ok_or_else(|| Refusal::invalid("content", "content must be text"))?;
            let entry = find(store, owner, &name).await?;
            agent_flow::update(&name, entry.is_some(), content)?;
            let entry = entry.ok_or_else(|| missing(&name))?;
            // Scripts that came by another API stay.
            let files = match entry.default {
                Some(number) => store
                    .content(owner, &entry.id, number)
                    .await
                    .map_err(|error| Refusal::of(error, &name))?,
                None => Files::new(),
            };
            // There are no versions here, so the oldest makes room.
            let draft = draft(&name, files, content)?;
            let entry = store.add_in_turn(owner, &entry.id, draft).await;
            let entry = entry.map_err(|error| not_found(error, &name))?;
            Ok((200, Some(detail(&entry, content)?)))
        }
        AgentFlow::Delete(name) => {
            let entry = named(store, owner, &name).await?;
            let deleted = store.delete(owner, &entry.id).await;
            deleted.map_err(|error| not_found(error, &name))?;
            Ok((204, None))
        }
        AgentFlow::Run(name) => {
            named(store, owner, &name).await?;
            Err(Refusal::new(
                RefusalKind::NotFound,
                "path",
                format!(
                    "Skill '{name}' runs at a gateway, not at a registry: send this request to the gateway's address"
                ),
            ))
        }
        AgentFlow::Unknown => Err(unknown()),
    }
}

fn parsed(body: &[u8]) -> Result<Value, Refusal> {
    read_json(body).map_err(|error| Refusal::invalid("body", format!("the body is {error}")))
}

async fn find(store: &dyn Store, owner: &Owner, name: &str) -> Result<Option<SkillEntry>, Refusal> {
    store.find(owner, name).await.map_err(|error| Refusal::of(error, name))
}

/// The skill of a path. Names that are not legal here are looked for too: other APIs may have stored them.
async fn named(store: &dyn Store, owner: &Owner, name: &str) -> Result<SkillEntry, Refusal> {
    if let Some(entry) = find(store, owner, name).await? {
        return Ok(entry);
    }
    agent_flow::check_name(name)?;
    Err(missing(name))
}

fn missing(name: &str) -> Refusal {
    agent_flow::not_found(name).into()
}

fn not_found(error: StoreError, name: &str) -> Refusal {
    match error {
        StoreError::NotFound => missing(name),
        other => Refusal::of(other, name),
    }
}

fn draft(name: &str, mut files: Files, content: &str) -> Result<Draft, Refusal> {
    for document in DOCUMENT_NAMES {
        files.remove(document);
    }
    let file = SkillFile {
        bytes: content.as_bytes().into(),
        executable: false,
    };
    files.insert(DOCUMENT_NAMES[0].to_owned(), file);
    // Its own rules were asked before.
    check(name, files, Profile::Load)
}

async fn document(store: &dyn Store, owner: &Owner, entry: &SkillEntry) -> Result<String, Refusal> {
    let number = entry.default.ok_or_else(|| missing(&entry.name))?;
    let content = store.document(owner, &entry.id, number).await;
    let content = content.map_err(|error| not_found(error, &entry.name))?;
    content.ok_or_else(|| missing(&entry.name))
}

/// The newest change first. Left out is what this API cannot read, and what was deleted meanwhile; never what could not be read
/// at this moment, since nobody would miss it.
async fn list(store: &dyn Store, owner: &Owner) -> Result<Value, Refusal> {
    let mut entries = all(store, owner).await.map_err(|error| Refusal::of(error, ""))?;
    entries.sort_by_key(|entry| std::cmp::Reverse(entry.updated));
    let total = entries.len();
    let mut skills = Vec::new();
    for entry in entries.iter().take(LIST_MAX) {
        let content = match document(store, owner, entry).await {
            Err(refused) if refused.kind == RefusalKind::NotFound => continue,
            read => read?,
        };
        if let Ok(skill) = agent_flow::get(&entry.name, Some(&content)) {
            skills.push(summary(entry, &skill));
        }
    }
    let total = if total <= LIST_MAX { skills.len() } else { total };
    Ok(json!({"skills": skills, "total": total}))
}

fn inputs(skill: &AgentFlowSkill) -> Option<Vec<Value>> {
    let one = |input: &Input| {
        let kind = match input.kind {
            InputKind::Text => "text",
            InputKind::Textarea => "textarea",
        };
        json!({
            "name": input.name, "label": input.label, "type": kind, "required": input.required,
            "default": input.default, "description": input.description,
        })
    };
    skill.inputs.as_ref().map(|inputs| inputs.iter().map(one).collect())
}

fn summary(entry: &SkillEntry, skill: &AgentFlowSkill) -> Value {
    let inputs = inputs(skill);
    json!({
        "name": skill.name, "description": skill.description,
        "has_inputs": inputs.as_ref().is_some_and(|inputs| !inputs.is_empty()), "inputs": inputs,
        "has_knowledge_base": skill.knowledge_base.as_ref().is_some_and(|base| !base.is_empty()),
        "updated_at": rfc3339(entry.updated),
    })
}

fn detail(entry: &SkillEntry, content: &str) -> Result<Value, Refusal> {
    let skill = agent_flow::get(&entry.name, Some(content))?;
    let model = skill.model.as_ref();
    let model = model.map(|model| json!({"temperature": model.temperature, "max_tokens": model.max_tokens}));
    Ok(json!({
        "name": skill.name, "description": skill.description, "license": skill.license, "metadata": skill.metadata,
        "inputs": inputs(&skill), "knowledge_base": skill.knowledge_base, "model": model, "user_id": skill.user_id,
        "prompt": skill.prompt, "raw_content": content,
        "created_at": rfc3339(entry.created), "updated_at": rfc3339(entry.updated),
    }))
}

pub(crate) fn refuse(refusal: &Refusal) -> Value {
    json!({"detail": {"field": refusal.field, "message": refusal.message}})
}

impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Self {
        let kind = match error.status {
            Status::Invalid => RefusalKind::Invalid,
            Status::NotFound => RefusalKind::NotFound,
            Status::Conflict => RefusalKind::Conflict,
        };
        Self::new(kind, &error.field, error.message)
    }
}
