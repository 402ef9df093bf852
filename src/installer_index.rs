//! Skills of a site for installers: the index at `/.well-known/agent-skills/`, and the files that it names.
//!
//! What is offered to whom is decided by the [`OfferedSkills`] of a request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use knack_gateway::providers::forwarded_headers::CREDENTIAL_HEADERS;
use knack_memory::MemoryShare;
use knack_registry::index::{ENTRIES_MAX, Offer, SkillFileKind, written};
use knack_registry::zipped_content;
use knack_skill::catalog::SKILL_MD;
use knack_skill::digest::sha256;
use knack_vocabulary::HEADER_CLIENT;
use serde_json::json;
use tokio::sync::Semaphore;

use crate::sources::Files;

/// The addresses of this module, of the index and of what it names.
pub(crate) const FOLDER: &str = "/.well-known/agent-skills/";
/// Digests that are kept, about 200 bytes each: those of a full index, and of a few callers' own skills beside it. Where there is
/// no room they are made again.
const DIGESTS_MAX: usize = 4 * ENTRIES_MAX;
/// Files that are made at once: each holds an archive, at most 8 MiB as the skill itself, and a core.
const PACKED_AT_ONCE: usize = 1;

/// A skill that is offered.
#[derive(Debug, Clone)]
pub(crate) struct SiteSkill {
    /// Its name, which installers take.
    pub(crate) name: String,
    /// The skill's description.
    pub(crate) description: String,
    /// The digest of its file tree.
    pub(crate) digest: String,
}

/// The files of a skill, and the memory that they take.
#[derive(Debug)]
pub(crate) struct HeldFiles {
    /// The files.
    pub(crate) files: Files,
    /// `None`: they are in memory in any case.
    pub(crate) share: Option<MemoryShare>,
}

/// The skills that a request is offered.
pub(crate) trait OfferedSkills: Send + Sync {
    /// The skills, by name.
    fn skills(&self) -> &[SiteSkill];
    /// The files of one of them, by its index in the list.
    fn files(&self, at: usize) -> BoxFuture<'_, Result<HeldFiles, NotOffered>>;
    /// The files of one of them, of which only a digest is shown.
    fn files_to_measure(&self, at: usize) -> BoxFuture<'_, Result<HeldFiles, NotOffered>> {
        self.files(at)
    }
}

/// Offers skills to installers.
#[derive(Debug)]
pub(crate) struct Site {
    /// What is known of skills' files, by the digest of the trees.
    measured: Mutex<HashMap<String, FileDigest>>,
    packing: Semaphore,
}

impl Default for Site {
    fn default() -> Self {
        Self {
            measured: Mutex::default(),
            packing: Semaphore::new(PACKED_AT_ONCE),
        }
    }
}

/// A skill's file, without its bytes.
#[derive(Debug, Clone)]
struct FileDigest {
    kind: SkillFileKind,
    sha256: String,
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
    /// Answers a request for `path`, which begins with [`FOLDER`]; `before` is what its address has before that.
    pub(crate) async fn answer(
        &self,
        parts: &Parts,
        before: &str,
        path: &str,
        offered: &dyn OfferedSkills,
    ) -> Response<Bytes> {
        match self.find(parts, before, path, offered).await {
            Ok(found) => answered(&parts.headers, found),
            Err(refused) => refused.response(&format!("{before}{path}")),
        }
    }

    async fn find(
        &self,
        parts: &Parts,
        before: &str,
        path: &str,
        offered: &dyn OfferedSkills,
    ) -> Result<ServedFile, NotOffered> {
        if !matches!(parts.method, Method::GET | Method::HEAD) {
            return Err(NotOffered::NotAllowed);
        }
        let place = |name: &str| {
            let found = offered.skills().iter().position(|skill| skill.name == name);
            found.ok_or(NotOffered::NotFound)
        };
        match asked(path).ok_or(NotOffered::NotFound)? {
            Target::Index => self.index(before, offered).await,
            Target::Document(name) => {
                let held = offered.files(place(name)?).await?;
                let file = held.files.get(SKILL_MD).ok_or(NotOffered::NotFound)?;
                Ok(ServedFile::new(
                    "text/markdown; charset=utf-8",
                    Bytes::from_owner(Arc::clone(&file.bytes)),
                ))
            }
            Target::Archive(name) => {
                let at = place(name)?;
                let media_type = "application/zip";
                let known = offered.skills().get(at).and_then(|skill| self.known(&skill.digest));
                if known.as_ref().is_some_and(|known| known.kind != SkillFileKind::Archive) {
                    return Err(NotOffered::NotFound);
                }
                if let Some(FileDigest { sha256, .. }) = known.filter(|known| has(&parts.headers, &known.sha256)) {
                    return Ok(ServedFile {
                        media_type,
                        sha256,
                        bytes: None,
                    });
                }
                let held = offered.files(at).await?;
                if kind(&held.files) != SkillFileKind::Archive {
                    return Err(NotOffered::NotFound);
                }
                Ok(ServedFile::new(media_type, self.packed(held, name).await?.into()))
            }
        }
    }

    async fn index(&self, before: &str, offered: &dyn OfferedSkills) -> Result<ServedFile, NotOffered> {
        let mut offers = Vec::with_capacity(offered.skills().len());
        for (at, skill) in offered.skills().iter().enumerate().take(ENTRIES_MAX) {
            match self.measured(offered, at, skill).await {
                Ok(measured) => offers.push(offer(before, skill, measured)),
                // It was deleted meanwhile.
                Err(NotOffered::NotFound) => {}
                Err(other) => return Err(other),
            }
        }
        Ok(ServedFile::new("application/json", written(&offers).into()))
    }

    fn known(&self, tree: &str) -> Option<FileDigest> {
        let measured = self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        measured.get(tree).cloned()
    }

    /// Kind and digest of a skill's file.
    async fn measured(
        &self,
        offered: &dyn OfferedSkills,
        at: usize,
        skill: &SiteSkill,
    ) -> Result<FileDigest, NotOffered> {
        if let Some(known) = self.known(&skill.digest) {
            return Ok(known);
        }
        let held = offered.files_to_measure(at).await?;
        let kind = kind(&held.files);
        let made = FileDigest {
            kind,
            sha256: sha256(self.packed(held, &skill.name).await?),
        };
        let mut measured = self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        if measured.len() >= DIGESTS_MAX {
            measured.clear();
        }
        measured.insert(skill.digest.clone(), made.clone());
        Ok(made)
    }

    /// A skill's file. It is made on a thread that may take long.
    async fn packed(&self, held: HeldFiles, name: &str) -> Result<Vec<u8>, NotOffered> {
        let _one = self.packing.acquire().await;
        let HeldFiles { files, share } = held;
        let packed = tokio::task::spawn_blocking(move || file(&files)).await;
        drop(share);
        let packed = packed.map_err(|error| error.to_string()).and_then(|packed| packed);
        packed.map_err(|error| NotOffered::Failed(format!("skill {name}: {error}")))
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

fn asked(path: &str) -> Option<Target<'_>> {
    let rest = path.strip_prefix(FOLDER)?;
    if rest == "index.json" {
        return Some(Target::Index);
    }
    let document = rest.strip_suffix("/SKILL.md").map(Target::Document);
    document.or_else(|| rest.strip_suffix(".zip").map(Target::Archive))
}

fn offer(before: &str, skill: &SiteSkill, measured: FileDigest) -> Offer {
    let (name, FileDigest { kind, sha256 }) = (&skill.name, measured);
    let url = match kind {
        SkillFileKind::SkillMd => format!("{before}{FOLDER}{name}/{SKILL_MD}"),
        SkillFileKind::Archive => format!("{before}{FOLDER}{name}.zip"),
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
fn kind(files: &Files) -> SkillFileKind {
    let document = files.get(SKILL_MD);
    if files.len() == 1 && document.is_some_and(|document| !document.executable) {
        SkillFileKind::SkillMd
    } else {
        SkillFileKind::Archive
    }
}

/// The file that the index names; the same bytes as long as the skill's files are the same.
fn file(files: &Files) -> Result<Vec<u8>, String> {
    match (kind(files), files.get(SKILL_MD)) {
        (SkillFileKind::SkillMd, Some(document)) => Ok(document.bytes.to_vec()),
        _ => zipped_content(files).map_err(|error| error.to_string()),
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
pub(crate) enum NotOffered {
    /// Nothing is offered there.
    NotFound,
    /// The method is neither GET nor HEAD.
    NotAllowed,
    /// The file cannot be made.
    Failed(String),
    /// The caller is refused, with a status and seconds after which to ask again.
    Denied(StatusCode, String, Option<u64>),
}

impl NotOffered {
    /// The answer; `path` is that of the request.
    pub(crate) fn response(&self, path: &str) -> Response<Bytes> {
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
            Self::Denied(status, why, _) if status.is_server_error() => (*status, "api_error", why.clone()),
            Self::Denied(status, why, _) => (*status, "invalid_request_error", why.clone()),
        };
        let body = json!({"error": {"message": message, "type": kind, "param": null, "code": null}});
        let mut response = Response::new(Bytes::from(body.to_string()));
        *response.status_mut() = status;
        typed(response.headers_mut(), "application/json");
        match self {
            Self::NotAllowed => {
                let allowed = HeaderValue::from_static("GET, HEAD");
                response.headers_mut().insert(header::ALLOW, allowed);
            }
            Self::Denied(_, _, Some(seconds)) => {
                response.headers_mut().insert(header::RETRY_AFTER, (*seconds).into());
            }
            _ => {}
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
