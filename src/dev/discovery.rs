//! The skills of `knack dev` for installers: the index of this site, and the files that it names.
//!
//! Who asks is offered what a model request of his may name: the skills from files, and those that his credential
//! uploaded. The gateway has refused foreign hosts and web pages by then.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri, header};
use knack_gateway::catalog::Snapshot;
use knack_gateway::discovery::Discovery;
use knack_gateway::forwarded_headers::CREDENTIAL_HEADERS;
use knack_registry::index::{ENTRIES_MAX, Offer, SkillFileKind, written};
use knack_registry::zipped_content;
use knack_skill::catalog::{CatalogEntry, SKILL_MD};
use knack_skill::digest::sha256;
use knack_skill::model::Skill;
use knack_skill::names;
use knack_vocabulary::HEADER_CLIENT;
use serde_json::json;
use tokio::sync::Semaphore;

use crate::cli::terminal;

/// The addresses of this module, of the index and of what it names.
const FOLDER: &str = "/.well-known/agent-skills/";
/// Digests that are kept, about 200 bytes each: those of a full index, and of a few callers' own skills beside it. Where there is
/// no room they are made again.
const DIGESTS_MAX: usize = 4 * ENTRIES_MAX;
/// Files that are made at once: each holds an archive, at most 8 MiB as the skill itself, and a core.
const PACKED_AT_ONCE: usize = 1;
/// Offers skills to installers.
#[derive(Debug)]
pub(super) struct Site {
    /// SHA-256 of a skill's file by the digest of its files.
    digests: Mutex<HashMap<String, String>>,
    packing: Semaphore,
}

impl Default for Site {
    fn default() -> Self {
        Self {
            digests: Mutex::default(),
            packing: Semaphore::new(PACKED_AT_ONCE),
        }
    }
}

/// The target of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target<'a> {
    Index,
    /// The SKILL.md of a skill.
    Document(&'a str),
    /// The archive of a skill.
    Archive(&'a str),
}

/// The file at an address.
#[derive(Debug)]
struct ServedFile {
    media_type: &'static str,
    sha256: String,
    /// `None`: the sender has them.
    bytes: Option<Bytes>,
}

impl Site {
    async fn find(&self, parts: &Parts, snapshot: &Snapshot) -> Result<ServedFile, Refusal> {
        if !matches!(parts.method, Method::GET | Method::HEAD) {
            return Err(Refusal::NotAllowed);
        }
        let skills = offered(snapshot);
        let skill = |name: &str| {
            let found = skills.iter().find(|skill| skill.id.name == name);
            found.copied().ok_or(Refusal::NotFound)
        };
        match asked(parts.uri.path()).ok_or(Refusal::NotFound)? {
            Target::Index => {
                let mut offers = Vec::with_capacity(skills.len());
                for skill in skills {
                    offers.push(offer(skill, self.digest(skill).await?));
                }
                Ok(ServedFile::new("application/json", written(&offers).into()))
            }
            Target::Document(name) => {
                let file = skill(name)?.files.get(SKILL_MD).ok_or(Refusal::NotFound)?;
                Ok(ServedFile::new(
                    "text/markdown; charset=utf-8",
                    Bytes::from_owner(Arc::clone(&file.bytes)),
                ))
            }
            Target::Archive(name) => {
                let skill = skill(name)?;
                if kind(skill) != SkillFileKind::Archive {
                    return Err(Refusal::NotFound);
                }
                let media_type = "application/zip";
                let known = self.known(&skill.digest);
                if let Some(sha256) = known.filter(|sha256| has(&parts.headers, sha256)) {
                    return Ok(ServedFile {
                        media_type,
                        sha256,
                        bytes: None,
                    });
                }
                Ok(ServedFile::new(media_type, self.packed(skill).await?.into()))
            }
        }
    }

    fn known(&self, tree: &str) -> Option<String> {
        let digests = self.digests.lock().unwrap_or_else(PoisonError::into_inner);
        digests.get(tree).cloned()
    }

    /// The digest of a skill's file.
    async fn digest(&self, skill: &Arc<Skill>) -> Result<String, Refusal> {
        if let Some(known) = self.known(&skill.digest) {
            return Ok(known);
        }
        let sha256 = sha256(self.packed(skill).await?);
        let mut digests = self.digests.lock().unwrap_or_else(PoisonError::into_inner);
        if digests.len() >= DIGESTS_MAX {
            digests.clear();
        }
        digests.insert(skill.digest.clone(), sha256.clone());
        Ok(sha256)
    }

    /// A skill's file. It is made on a thread that may take long.
    async fn packed(&self, skill: &Arc<Skill>) -> Result<Vec<u8>, Refusal> {
        let _one = self.packing.acquire().await;
        let packing = Arc::clone(skill);
        let packed = tokio::task::spawn_blocking(move || file(&packing)).await;
        let packed = packed.map_err(|error| error.to_string()).and_then(|packed| packed);
        packed.map_err(|error| Refusal::Failed(format!("skill {}: {error}", skill.id.name)))
    }
}

impl ServedFile {
    fn new(media_type: &'static str, bytes: Bytes) -> Self {
        Self {
            media_type,
            sha256: sha256(&bytes),
            bytes: Some(bytes),
        }
    }
}

impl Discovery for Site {
    fn takes(&self, uri: &Uri) -> bool {
        uri.path().starts_with(FOLDER)
    }

    fn answer<'a>(&'a self, parts: &'a Parts, snapshot: Arc<Snapshot>) -> BoxFuture<'a, Response<Bytes>> {
        async move {
            let response = match self.find(parts, &snapshot).await {
                Ok(found) => answered(&parts.headers, found),
                Err(refused) => refused.response(parts.uri.path()),
            };
            terminal::line(&format!(
                "{} skills index | {} {}",
                response.status().as_u16(),
                parts.method,
                parts.uri.path()
            ));
            response
        }
        .boxed()
    }
}

fn asked(path: &str) -> Option<Target<'_>> {
    let rest = path.strip_prefix(FOLDER)?;
    if rest == "index.json" {
        return Some(Target::Index);
    }
    let document = rest.strip_suffix("/SKILL.md").map(Target::Document);
    document.or_else(|| rest.strip_suffix(".zip").map(Target::Archive))
}

/// The skills of an index, by name: what requests may name by a name alone, if installers take the name, and no more than
/// readers take.
fn offered(snapshot: &Snapshot) -> Vec<&Arc<Skill>> {
    let is_offered = |entry: &&CatalogEntry| {
        let name = &entry.skill.id.name;
        *entry.handle == **name && names::check(name).is_ok()
    };
    snapshot
        .served()
        .filter(is_offered)
        .map(|entry| &entry.skill)
        .take(ENTRIES_MAX)
        .collect()
}

fn offer(skill: &Skill, sha256: String) -> Offer {
    let (name, kind) = (&skill.id.name, kind(skill));
    let url = match kind {
        SkillFileKind::SkillMd => format!("{FOLDER}{name}/{SKILL_MD}"),
        SkillFileKind::Archive => format!("{FOLDER}{name}.zip"),
    };
    Offer {
        name: name.clone(),
        kind,
        description: skill.description.clone(),
        url,
        sha256,
    }
}

/// A lone SKILL.md is offered as it is. An execute bit, or another spelling of its name, only an archive keeps.
fn kind(skill: &Skill) -> SkillFileKind {
    let document = skill.files.get(SKILL_MD);
    if skill.files.len() == 1 && document.is_some_and(|document| !document.executable) {
        SkillFileKind::SkillMd
    } else {
        SkillFileKind::Archive
    }
}

/// The file that the index names; the same bytes as long as the skill's files are the same.
fn file(skill: &Skill) -> Result<Vec<u8>, String> {
    match (kind(skill), skill.files.get(SKILL_MD)) {
        (SkillFileKind::SkillMd, Some(document)) => Ok(document.bytes.to_vec()),
        _ => zipped_content(&skill.files).map_err(|error| error.to_string()),
    }
}

/// Whether the sender has the bytes of this digest (If-None-Match, RFC 9110).
fn has(headers: &HeaderMap, sha256: &str) -> bool {
    let values = headers.get_all(header::IF_NONE_MATCH).iter();
    let mut tags = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    tags.any(|tag| {
        let tag = tag.trim();
        let tag = tag.strip_prefix("W/").unwrap_or(tag);
        tag == "*" || tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"')) == Some(sha256)
    })
}

fn answered(asked: &HeaderMap, found: ServedFile) -> Response<Bytes> {
    let ServedFile {
        media_type,
        sha256,
        bytes,
    } = found;
    let bytes = bytes.filter(|_| !has(asked, &sha256));
    let is_known = bytes.is_none();
    let mut response = Response::new(bytes.unwrap_or_default());
    if is_known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let headers = response.headers_mut();
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{sha256}\"")) {
        headers.insert(header::ETAG, tag);
    }
    // Skills change and belong to a credential: no cache may keep an answer without revalidation, or for another caller.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    for name in CREDENTIAL_HEADERS.into_iter().chain([HEADER_CLIENT]) {
        headers.append(header::VARY, HeaderValue::from_static(name));
    }
    if !is_known {
        typed(headers, media_type);
    }
    response
}

/// Skill files must not run in a browser in this origin.
fn typed(headers: &mut HeaderMap, media_type: &'static str) {
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}

/// Why there is no file.
#[derive(Debug)]
enum Refusal {
    NotFound,
    NotAllowed,
    Failed(String),
}

impl Refusal {
    fn response(&self, path: &str) -> Response<Bytes> {
        let (status, kind, message) = match self {
            Self::NotFound => (
                StatusCode::NOT_FOUND,
                "not_found_error",
                format!("No skill is offered at {path}; {FOLDER}index.json lists the skills that are offered."),
            ),
            Self::NotAllowed => (
                StatusCode::METHOD_NOT_ALLOWED,
                "invalid_request_error",
                "This path is read-only (GET); upload by the Skills APIs.".to_owned(),
            ),
            Self::Failed(why) => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "api_error",
                format!("The file of a skill cannot be created: {why}"),
            ),
        };
        let body = json!({"error": {"message": message, "type": kind, "param": null, "code": null}});
        let mut response = Response::new(Bytes::from(body.to_string()));
        *response.status_mut() = status;
        typed(response.headers_mut(), "application/json");
        if matches!(self, Self::NotAllowed) {
            let allowed = HeaderValue::from_static("GET, HEAD");
            response.headers_mut().insert(header::ALLOW, allowed);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_the_index_and_the_files_of_skills() {
        for (path, expected) in [
            ("/.well-known/agent-skills/index.json", Some(Target::Index)),
            ("/.well-known/agent-skills/a/SKILL.md", Some(Target::Document("a"))),
            ("/.well-known/agent-skills/a.zip", Some(Target::Archive("a"))),
            ("/.well-known/agent-skills/", None),
            ("/.well-known/agent-skills/a", None),
            ("/.well-known/agent-skills/a/scripts/x.py", None),
            ("/.well-known/other", None),
        ] {
            assert_eq!(asked(path), expected, "{path}");
        }
    }

    #[test]
    fn a_tag_is_compared_weakly_and_within_lists() {
        for (values, expected) in [
            (&["\"ab\""][..], true),
            (&["W/\"ab\""], true),
            (&["\"x\", \"ab\""], true),
            (&["\"x\"", "\"ab\""], true),
            (&["*"], true),
            (&["ab"], false),
            (&["\"abc\""], false),
            (&[""], false),
            (&[], false),
        ] {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::IF_NONE_MATCH, HeaderValue::from_static(value));
            }
            assert_eq!(has(&headers, "ab"), expected, "{values:?}");
        }
    }
}
