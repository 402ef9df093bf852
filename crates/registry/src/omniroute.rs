//! OmniRoute's management API: `/api/skills`, `/api/skills/install`, `/api/skills/executions`, and the catalogs to install
//! from.
//!
//! One skill is one row, in the version that is served by default. Skills from files are rows of the owner `system`, which
//! every caller sees and none can change here.

mod catalogs;
mod dry_run;
mod executions;
mod indexed;
mod install;
mod repeats;
mod rows;
mod unreachable;

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use knack_skill::ids;
use knack_skill::model::Skill;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

pub use executions::{AdHocRun, Identity, OnProgress, Progress, RunRefusal, Runs};
pub use repeats::{ClaimError, Claims, REPEAT_HEADER};
pub use rows::{Row, resolve, visible};

pub(crate) use executions::ExecutionContext;
pub(crate) use repeats::{Repeats, RunsInProgress, repeat_key};

use crate::answer::{Answer, Refusal, RefusalKind};
use crate::catalogs::{Catalog, Catalogs};
use crate::json::{read_aside, read_json};
use crate::mode::Mode;
use crate::model::{ID_PREFIX, Owner, SkillEntry, Version};
use crate::query::{from_one, parameters};
use crate::reader::Reader;
use crate::store::{Store, all};
use dry_run::{InstallBody, preview};
use install::Installation;
use rows::{FileSkills, Item, LOCAL, SYSTEM, detail, missing, of_entry, of_shared, refused, shown};

/// Rows of a page that does not say.
const LIMIT_DEFAULT: usize = 20;
/// Rows of a page at most.
const LIMIT_MAX: usize = 100;
/// Where OmniRoute's skills come from.
const SOURCES: [&str; 4] = [
    Catalog::SkillsMp.word(),
    Catalog::SkillsSh.word(),
    Catalog::Index.word(),
    LOCAL,
];
/// The message for unknown ids.
const NOT_HERE: &str = "Supported: GET /api/skills, POST /api/skills/install, GET, PUT and DELETE /api/skills/{id}, GET and \
    POST /api/skills/executions, GET /api/skills/executions/{id}, and GET and POST …/install of /api/skills/marketplace, \
    /api/skills/skillssh and /api/skills/index.";

/// The request, with the id in the path.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the API")]
pub enum OmniRoute {
    List,
    Install,
    Search(Catalog),
    InstallFrom(Catalog),
    Get(String),
    Update(String),
    Delete(String),
    Executions,
    Execution(String),
    Execute,
    /// A path or method that is not there.
    Unknown,
}

/// The words of this API that may be in the place of an id.
const WORDS: [&str; 3] = ["install", "executions", "collect"];

/// The catalog of a word of the path.
fn catalog_of(word: &str) -> Option<Catalog> {
    match word {
        "marketplace" => Some(Catalog::SkillsMp),
        "skillssh" => Some(Catalog::SkillsSh),
        "index" => Some(Catalog::Index),
        _ => None,
    }
}

impl OmniRoute {
    /// Reads what follows `/api/skills`.
    pub(crate) fn of(method: &Method, rest: &[&str]) -> Self {
        let id = |id: &str| percent_decode_str(id).decode_utf8_lossy().into_owned();
        match (method.as_str(), rest) {
            ("GET", []) => Self::List,
            ("POST", ["install"]) => Self::Install,
            ("GET", ["executions"]) => Self::Executions,
            ("POST", ["executions"]) => Self::Execute,
            ("GET", ["executions", name]) => Self::Execution(id(name)),
            (_, [word, after @ ..]) if catalog_of(word).is_some() => match (method.as_str(), after, catalog_of(word)) {
                ("GET", [], Some(catalog)) => Self::Search(catalog),
                ("POST", ["install"], Some(catalog)) => Self::InstallFrom(catalog),
                _ => Self::Unknown,
            },
            (_, [word]) if WORDS.contains(word) => Self::Unknown,
            ("GET", [name]) => Self::Get(id(name)),
            ("PUT", [name]) => Self::Update(id(name)),
            ("DELETE", [name]) => Self::Delete(id(name)),
            _ => Self::Unknown,
        }
    }
}

/// The refusal of a path or method that is not there.
pub(crate) fn unknown() -> Refusal {
    Refusal::new(RefusalKind::NotFound, "", NOT_HERE)
}

/// Answers a call of `owner`, beside whose skills the shared ones are.
pub(crate) async fn call(
    (store, reader, catalogs): (&dyn Store, &Reader, Option<&Catalogs>),
    (owner, shared): (&Owner, &FileSkills),
    call: OmniRoute,
    (query, body): (Option<&str>, &Bytes),
    ran: ExecutionContext<'_>,
) -> Result<Answer, Refusal> {
    let done = match call {
        OmniRoute::List => list(store, (owner, shared), query).await?,
        OmniRoute::Install => {
            let body = read_aside(body, InstallBody::read).await?;
            let new = Installation::read(body.members, owner)?;
            install((store, reader), owner, new, body.is_dry_run).await?
        }
        OmniRoute::Search(catalog) => catalogs::search(catalogs, catalog, query).await?,
        OmniRoute::InstallFrom(catalog) => {
            let catalogs = catalogs::to_install_from(catalogs, catalog)?;
            let body = read_aside(body, InstallBody::read).await?;
            let new = catalogs::installation((catalogs, reader), catalog, &body.members).await?;
            install((store, reader), owner, new, body.is_dry_run).await?
        }
        OmniRoute::Get(identifier) => get(store, (owner, shared), &identifier).await?,
        OmniRoute::Update(id) => {
            let mode = read_aside(body, wanted_mode).await?;
            let entry = own(store, (owner, shared), &id).await?;
            let set = store.set_mode(owner, &entry.id, mode).await;
            set.map_err(|error| refused(error, &id))?;
            json!({"success": true, "enabled": mode != Mode::Off, "mode": mode})
        }
        OmniRoute::Delete(id) => {
            let entry = own(store, (owner, shared), &id).await?;
            let deleted = store.delete(owner, &entry.id).await;
            deleted.map_err(|error| refused(error, &id))?;
            json!({"success": true})
        }
        OmniRoute::Executions => ran.list(owner, query).await?,
        OmniRoute::Execution(id) => ran.get(owner, &id).await?,
        OmniRoute::Execute => {
            let text = "Skills execution is disabled: nothing is run here";
            return Err(Refusal::new(RefusalKind::Unavailable, "", text));
        }
        OmniRoute::Unknown => return Err(unknown()),
    };
    Ok((200, Some(done)))
}

/// The mode that a patch sets: its `mode`, else the one that `enabled` means.
fn wanted_mode(body: &[u8]) -> Result<Mode, Refusal> {
    let body: Value = read_json(body).map_err(|error| Refusal::invalid("body", error.to_string()))?;
    let members = body
        .as_object()
        .ok_or_else(|| Refusal::invalid("body", "must be a JSON object"))?;
    if let Some(other) = members.keys().find(|key| !["enabled", "mode"].contains(&key.as_str())) {
        let text = "only enabled and mode can be changed; to change other fields, install another version";
        return Err(Refusal::invalid(other, text));
    }
    let enabled = members.get("enabled").map(|enabled| {
        let enabled = enabled.as_bool();
        enabled.ok_or_else(|| Refusal::invalid("enabled", "must be true or false"))
    });
    let enabled = enabled.transpose()?;
    match members.get("mode") {
        Some(mode) => mode_of(mode.as_str().unwrap_or_default()),
        None => match enabled {
            Some(true) => Ok(Mode::On),
            Some(false) => Ok(Mode::Off),
            None => Err(Refusal::invalid("", "No update payload provided")),
        },
    }
}

fn mode_of(word: &str) -> Result<Mode, Refusal> {
    Mode::of_word(word).ok_or_else(|| Refusal::invalid("mode", "must be on, off or auto"))
}

/// Keeps a new skill, or a new version of the one of that name, which is served from now on; or says what that would change. The
/// answer is that of the API.
async fn install(
    (store, reader): (&dyn Store, &Reader),
    owner: &Owner,
    new: Installation,
    is_dry_run: bool,
) -> Result<Value, Refusal> {
    let name = new.draft.name.clone();
    let found = store.find(owner, &name).await.map_err(|error| refused(error, &name))?;
    if let Some(entry) = &found {
        demand_same_name(entry, &new)?;
        let is_new = entry.demand_new(&new.draft);
        is_new.map_err(|error| refused(error, &entry.id))?;
    }
    if is_dry_run {
        return preview((store, reader), owner, found, new).await;
    }
    let kept = match found {
        None => store.create(owner, new.title, new.draft).await,
        Some(entry) => store.add_version(owner, &entry.id, new.draft, true).await,
    };
    let entry = kept.map_err(|error| refused(error, &name))?;
    Ok(json!({"success": true, "id": entry.id}))
}

/// Refuses another name with the same slug: it means another skill. An index has names of requests only.
fn demand_same_name(entry: &SkillEntry, new: &Installation) -> Result<(), Refusal> {
    let (name, id) = (&entry.name, &entry.id);
    let old = entry.written().unwrap_or(name);
    if new.draft.catalog == Some(Catalog::Index) || old == new.title.as_deref().unwrap_or(name) {
        return Ok(());
    }
    let text = format!(
        "its name in requests is {name}, which the skill {old:?} ({id}) already has; install it as {old:?} to add a version to that \
         skill, choose another name, or delete that skill first"
    );
    Err(Refusal::new(RefusalKind::Conflict, "name", text))
}

/// The parameters of a list.
struct ListQuery {
    text: String,
    mode: Option<Mode>,
    enabled: Option<bool>,
    source: Option<String>,
    /// Whether the skills are the caller's own; `None`: these and those from files.
    is_own: Option<bool>,
    page: usize,
    limit: usize,
}

impl ListQuery {
    fn read(query: Option<&str>, owner: &Owner) -> Result<Self, Refusal> {
        let mut wanted = Self {
            text: String::new(),
            mode: None,
            enabled: None,
            source: None,
            is_own: None,
            page: 1,
            limit: LIMIT_DEFAULT,
        };
        for (key, value) in parameters(query).filter(|(_, value)| !value.is_empty()) {
            match key.as_str() {
                "q" => wanted.text = value.to_lowercase(),
                "mode" => wanted.mode = Some(mode_of(&value)?),
                "enabled" => {
                    let enabled = value
                        .parse()
                        .map_err(|_| Refusal::invalid("enabled", "must be true or false"));
                    wanted.enabled = Some(enabled?);
                }
                "source" if SOURCES.contains(&value.as_str()) => wanted.source = Some(value),
                "source" => {
                    let text = format!("must be one of {}", SOURCES.join(", "));
                    return Err(Refusal::invalid("source", text));
                }
                "apiKeyId" if value == owner.shown() => wanted.is_own = Some(true),
                "apiKeyId" if value == SYSTEM => wanted.is_own = Some(false),
                "apiKeyId" => {
                    let text = format!("must be the id of the request's credential, or {SYSTEM}");
                    return Err(Refusal::invalid("apiKeyId", text));
                }
                "page" => wanted.page = from_one("page", &value, usize::MAX / LIMIT_MAX)?,
                "limit" => wanted.limit = from_one("limit", &value, LIMIT_MAX)?,
                _ => {}
            }
        }
        Ok(wanted)
    }

    fn takes(&self, row: &Row<Item>) -> bool {
        self.source.as_deref().is_none_or(|source| source == row.item.source())
            && self.is_own.is_none_or(|is_own| is_own == (row.owner != SYSTEM))
            && self.mode.is_none_or(|mode| mode == row.item.mode())
            && self
                .enabled
                .is_none_or(|enabled| enabled == (row.item.mode() != Mode::Off))
            && [
                Some(row.name.as_str()),
                row.item.written(),
                Some(row.item.description()),
            ]
            .into_iter()
            .flatten()
            .any(|text| text.to_lowercase().contains(&self.text))
    }
}

async fn list(
    store: &dyn Store,
    (owner, shared): (&Owner, &FileSkills),
    query: Option<&str>,
) -> Result<Value, Refusal> {
    let wanted = ListQuery::read(query, owner)?;
    let entries = all(store, owner).await.map_err(|error| refused(error, ""))?;
    let own = entries.into_iter().filter_map(|entry| {
        let number = entry.default?;
        of_entry(entry.into(), number)
    });
    let rows = visible(own.chain(of_shared(shared)).collect(), owner.as_str());
    let taken: Vec<&Row<Item>> = rows.iter().filter(|row| wanted.takes(row)).collect();
    let from = (wanted.page - 1) * wanted.limit;
    let data: Vec<Value> = taken
        .iter()
        .skip(from)
        .take(wanted.limit)
        .map(|row| shown(row))
        .collect();
    Ok(json!({
        "data": data, "total": taken.len(), "page": wanted.page, "limit": wanted.limit,
        "totalPages": taken.len().div_ceil(wanted.limit),
    }))
}

async fn get(store: &dyn Store, (owner, shared): (&Owner, &FileSkills), identifier: &str) -> Result<Value, Refusal> {
    let row = find(store, (owner, shared), identifier).await?;
    detail(store, owner, &row).await
}

/// The row that an id, a name, `name@version` or `name@constraint` names.
async fn find(
    store: &dyn Store,
    (owner, shared): (&Owner, &FileSkills),
    identifier: &str,
) -> Result<Row<Item>, Refusal> {
    if identifier.starts_with(ID_PREFIX) {
        // Of a cluster: the object of an upload carries its id, and there may be no entry beside it.
        let carries = |skill: &Skill| {
            [&skill.ids, &skill.object_ids]
                .iter()
                .any(|ids| ids.iter().any(|id| id == identifier))
        };
        let row = shared.iter().position(|skill| carries(skill));
        if let Some(row) = row.and_then(|at| of_shared(shared).nth(at)) {
            return Ok(row);
        }
        let entry = store.get(owner, identifier).await;
        let entry = entry.map_err(|error| refused(error, identifier))?;
        let number = entry.default.ok_or_else(|| missing(identifier))?;
        return of_entry(entry.into(), number).ok_or_else(|| missing(identifier));
    }
    let entries = all(store, owner).await.map_err(|error| refused(error, identifier))?;
    let versions = entries.into_iter().flat_map(|entry| {
        let entry = Arc::new(entry);
        // Of two versions with one text, the one that was made last is meant.
        let is_last = |version: &&Version| {
            let last = entry.versions.iter().rfind(|other| other.version == version.version);
            last.is_some_and(|last| last.number == version.number)
        };
        let numbers: Vec<u32> = entry
            .versions
            .iter()
            .filter(is_last)
            .map(|version| version.number)
            .collect();
        numbers
            .into_iter()
            .filter_map(move |number| of_entry(entry.clone(), number))
    });
    let mut rows = visible(versions.chain(of_shared(shared)).collect(), owner.as_str());
    let by_id = rows.iter().position(|row| row.item.id() == identifier);
    let at = by_id.or_else(|| {
        let named = resolve(&rows, identifier).or_else(|| resolve(&rows, &of_written(&rows, identifier)?))?;
        rows.iter().position(|row| std::ptr::eq(row, named))
    });
    at.map(|at| rows.swap_remove(at)).ok_or_else(|| missing(identifier))
}

/// The identifier by which rows are known, of one with the name that an install was written with.
fn of_written(rows: &[Row<Item>], identifier: &str) -> Option<String> {
    let named = |written: &str| {
        let row = rows.iter().find(|row| row.item.written() == Some(written))?;
        Some(row.name.clone())
    };
    named(identifier).or_else(|| {
        let (written, version) = identifier.rsplit_once('@')?;
        Some(format!("{}@{version}", named(written)?))
    })
}

/// The caller's skill of an id or a name, which has a row. A change is of the skill with all its versions, so none is named.
async fn own(store: &dyn Store, callers: (&Owner, &FileSkills), id: &str) -> Result<SkillEntry, Refusal> {
    let entry = entry(store, callers, id).await?;
    if entry.default.is_none() {
        return Err(missing(id));
    }
    Ok(entry)
}

async fn entry(store: &dyn Store, (owner, shared): (&Owner, &FileSkills), id: &str) -> Result<SkillEntry, Refusal> {
    let of_files = || {
        let text = format!("{id} is served from files; change activation in its SKILL.md, or remove its folder");
        Refusal::new(RefusalKind::Forbidden, "id", text)
    };
    if of_shared(shared).any(|row| row.item.id() == id) {
        return Err(of_files());
    }
    if id.starts_with(ID_PREFIX) {
        return store.get(owner, id).await.map_err(|error| refused(error, id));
    }
    // The caller's own, also where one from files has the name in a higher version.
    let named = store.find(owner, id).await.map_err(|error| refused(error, id))?;
    if let Some(entry) = named {
        return Ok(entry);
    }
    if ids::with_version(id).is_some() {
        return Err(missing(id));
    }
    match find(store, (owner, shared), id).await?.item {
        Item::Own(entry, _) => Ok(Arc::unwrap_or_clone(entry)),
        Item::Shared(..) => Err(of_files()),
    }
}

/// Says which member is wrong where one is.
pub(crate) fn refuse(refusal: &Refusal) -> Value {
    let Refusal { kind, field, message } = refusal;
    if let Some(code) = kind.code() {
        return json!({"error": message, "code": code});
    }
    if *kind != RefusalKind::Invalid || field.is_empty() {
        return json!({"error": message});
    }
    json!({"error": format!("{field}: {message}"), "details": [{"field": field, "message": message}]})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_wins_over_enabled_and_an_empty_patch_is_none() {
        for (body, expected) in [
            (r#"{"enabled": false}"#, Ok(Mode::Off)),
            (r#"{"enabled": true}"#, Ok(Mode::On)),
            (r#"{"mode": "auto"}"#, Ok(Mode::Auto)),
            (r#"{"enabled": false, "mode": "auto"}"#, Ok(Mode::Auto)),
            ("{}", Err("")),
            ("[]", Err("body")),
            ("", Err("body")),
            (r#"{"enabled": "no"}"#, Err("enabled")),
            (r#"{"enabled": 0, "mode": "on"}"#, Err("enabled")),
            (r#"{"mode": "manual"}"#, Err("mode")),
            (r#"{"mode": null}"#, Err("mode")),
            (r#"{"name": "x"}"#, Err("name")),
        ] {
            let found = wanted_mode(body.as_bytes());
            assert_eq!(
                found.map_err(|refusal| refusal.field),
                expected.map_err(str::to_owned),
                "{body}"
            );
        }
    }

    #[test]
    fn what_a_list_is_asked_for_is_bounded() {
        let owner = Owner::from([1; 32]);
        for query in [
            "limit=0",
            "limit=101",
            "page=0",
            "page=x",
            "mode=manual",
            "source=elsewhere",
            "apiKeyId=another",
        ] {
            assert!(ListQuery::read(Some(query), &owner).is_err(), "{query}");
        }
        let query = "q=Two+w%C3%B6rds&mode=off&source=skillsmp&page=3&limit=5&other=x&apiKeyId=system";
        let wanted = ListQuery::read(Some(query), &owner).unwrap();
        assert_eq!(wanted.is_own, Some(false));
        let own = format!("apiKeyId={}", owner.shown());
        assert_eq!(ListQuery::read(Some(&own), &owner).unwrap().is_own, Some(true));
        assert_eq!((wanted.text.as_str(), wanted.mode), ("two wörds", Some(Mode::Off)));
        assert_eq!(
            (wanted.source.as_deref(), wanted.page, wanted.limit),
            (Some("skillsmp"), 3, 5)
        );
    }

    #[test]
    fn words_of_the_api_are_no_ids() {
        let of = |method: &str, rest: &[&str]| OmniRoute::of(&Method::from_bytes(method.as_bytes()).unwrap(), rest);
        assert_eq!(of("GET", &["echo@%5E1"]), OmniRoute::Get("echo@^1".to_owned()));
        for (method, rest) in [
            ("DELETE", &["executions"][..]),
            ("GET", &["install"]),
            ("POST", &[]),
            ("GET", &["marketplace", "install"]),
            ("PUT", &["skillssh"]),
            ("PATCH", &["skill_knack_1"]),
        ] {
            assert_eq!(of(method, rest), OmniRoute::Unknown, "{method} {rest:?}");
        }
    }
}
