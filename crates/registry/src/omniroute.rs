//! OmniRoute's management API: `/api/skills`, `/api/skills/install`, `/api/skills/executions`, and the catalogs to install
//! from.
//!
//! One skill is one row, in the version that is served by default. Skills from files are rows of the owner `system`, which
//! every caller sees and none can change here.

mod caller_skills;
mod catalogs;
mod dry_run;
mod executions;
mod indexed;
mod install;
mod installer;
mod repeats;
mod rows;
mod unreachable;

use http::Method;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

pub use executions::{AdHocRun, Identity, OnProgress, Progress, RunRefusal, Runs};
pub use repeats::{ClaimError, Claims, IDEMPOTENCY_KEY};
pub use rows::{Row, resolve, visible};

pub(crate) use caller_skills::CallerSkills;
pub(crate) use executions::ExecutionContext;
pub(crate) use installer::Installer;
pub(crate) use repeats::{IdempotencyAuthority, RunsInProgress};

use crate::answer::{Answer, Refusal, RefusalKind};
use crate::api_request::ApiRequest;
use crate::catalogs::Catalog;
use crate::json::{read_aside, read_json};
use crate::mode::Mode;
use caller_skills::mode_of;
use dry_run::InstallBody;
use install::Installation;
use rows::refused;

/// What the message for an unknown path or method says.
const SUPPORTED_PATHS: &str = "Supported: GET /api/skills, POST /api/skills/install, GET, PUT and DELETE /api/skills/{id}, GET and \
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
    Refusal::new(RefusalKind::NotFound, "", SUPPORTED_PATHS)
}

/// Answers a call.
pub(crate) async fn call(
    skills: CallerSkills<'_>,
    installer: Installer<'_>,
    executions: ExecutionContext<'_>,
    call: OmniRoute,
    asked: &ApiRequest,
) -> Result<Answer, Refusal> {
    let CallerSkills { store, owner, .. } = skills;
    let (query, body) = (asked.query.as_deref(), &asked.body);
    let done = match call {
        OmniRoute::List => skills.list(query).await?,
        OmniRoute::Install => {
            let body = read_aside(body, InstallBody::read).await?;
            let new = Installation::read(body.members, owner)?;
            installer.install(skills, new, body.is_dry_run).await?
        }
        OmniRoute::Search(catalog) => catalogs::search(installer.catalogs, catalog, query).await?,
        OmniRoute::InstallFrom(catalog) => {
            let catalogs = catalogs::to_install_from(installer.catalogs, catalog)?;
            let body = read_aside(body, InstallBody::read).await?;
            let new = catalogs::installation(installer.reader, catalogs, catalog, &body.members).await?;
            installer.install(skills, new, body.is_dry_run).await?
        }
        OmniRoute::Get(identifier) => skills.get(&identifier).await?,
        OmniRoute::Update(id) => {
            let mode = read_aside(body, wanted_mode).await?;
            let entry = skills.own(&id).await?;
            let set = store.set_mode(owner, &entry.id, mode).await;
            set.map_err(|error| refused(error, &id))?;
            json!({"success": true, "enabled": mode != Mode::Off, "mode": mode})
        }
        OmniRoute::Delete(id) => {
            let entry = skills.own(&id).await?;
            let deleted = store.delete(owner, &entry.id).await;
            deleted.map_err(|error| refused(error, &id))?;
            json!({"success": true})
        }
        OmniRoute::Executions => executions.list(owner, query).await?,
        OmniRoute::Execution(id) => executions.get(owner, &id).await?,
        OmniRoute::Execute => {
            let text = "Skills execution is disabled: a registry runs nothing; send this request to a gateway";
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

/// Says which member is wrong where one is.
pub(crate) fn refuse(refusal: &Refusal) -> Value {
    let Refusal { kind, field, message } = refusal;
    if let RefusalKind::Repeated(why) = kind {
        return json!({"error": message, "code": why.code()});
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
