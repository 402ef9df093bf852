//! Search and install from an index of skills at any address, in the format of [`crate::index`].
//!
//! The index is fetched for every request: what it says of a skill is what it says now. A file counts only with the digest that the
//! index promises.

use bytes::Bytes;
use knack_skill::digest::sha256;
use knack_skill::model::SkillFile;
use knack_skill::problem::Profile;
use knack_skill::tree::DOCUMENT_NAMES;
use serde_json::{Value, json};
use url::Url;

use super::install::{Installation, demand_document};
use super::unreachable::unreachable;
use crate::Files;
use crate::answer::{Refusal, RefusalKind};
use crate::catalogs::{CATALOG_FETCH_MAX_BYTES, Catalog, Catalogs, INDEX_ARCHIVE_MAX_BYTES, WebError};
use crate::index::{Index, OfferedSkill, SkillFileKind, entries};
use crate::reader::Reader;
use crate::upload::{Folder, Unpack, top_folder};

const CATALOG: Catalog = Catalog::Index;

/// The entries whose name or description has a text; an empty one is in all.
pub(super) async fn search(catalogs: &Catalogs, text: &str, limit: usize) -> Result<Vec<Value>, Refusal> {
    let text = text.to_lowercase();
    let found = read(catalogs).await?.skills.into_iter().filter(|entry| {
        let texts = [&entry.name, &entry.description];
        texts.iter().any(|found| found.to_lowercase().contains(&text))
    });
    let shown = |entry: OfferedSkill| {
        json!({
            "name": entry.name, "description": entry.description, "type": entry.kind.map(SkillFileKind::as_str),
            "url": entry.url.as_str(), "digest": entry.digest,
        })
    };
    Ok(found.take(limit).map(shown).collect())
}

/// A skill that is to be installed from the index.
#[derive(Debug)]
pub(super) struct IndexedSkill {
    /// The name of its entry.
    pub(super) name: String,
    /// The version that the body states.
    pub(super) version: Option<String>,
    /// The digest of the file that was reviewed.
    pub(super) reviewed: Option<String>,
}

impl IndexedSkill {
    /// Fetches it: in the version of the body, and with the digest in it, where they are there.
    pub(super) async fn installation(self, reader: &Reader, catalogs: &Catalogs) -> Result<Installation, Refusal> {
        let Self {
            name,
            version,
            reviewed,
        } = self;
        let index = read(catalogs).await?;
        let entry = index.skills.into_iter().find(|entry| entry.name == name);
        let entry = entry.ok_or_else(|| match index.skipped.iter().find(|entry| entry.name == name) {
            Some(entry) => {
                let text = format!("the entry of {name} in the index cannot be read: {}", entry.why);
                Refusal::new(RefusalKind::BadGateway, "", text)
            }
            None => Refusal::new(RefusalKind::NotFound, "name", format!("the index has no skill {name}")),
        })?;
        if reviewed.is_some_and(|reviewed| reviewed != entry.digest) {
            let text = format!(
                "the index has another file of {name} by now, with digest {}",
                entry.digest
            );
            return Err(Refusal::new(RefusalKind::Conflict, "digest", text));
        }
        let kind = entry.kind.ok_or_else(|| {
            let text = format!("{name} is of a type that Knack does not know");
            Refusal::invalid("name", text)
        })?;
        let most = match kind {
            SkillFileKind::SkillMd => CATALOG_FETCH_MAX_BYTES,
            SkillFileKind::Archive => INDEX_ARCHIVE_MAX_BYTES,
        };
        let bytes = get(catalogs, entry.url.as_str(), most).await?;
        let digest = format!("sha256:{}", sha256(&bytes));
        if digest != entry.digest {
            let text = format!(
                "the file of {name} has digest {digest}, the index says {}; nothing was installed",
                entry.digest
            );
            return Err(Refusal::new(RefusalKind::BadGateway, "", text));
        }
        let called = name.clone();
        let folder = move |unpack| folder(called, kind, &bytes, unpack);
        let draft = reader.checked(Profile::Load, folder).await.map_err(|refusal| Refusal {
            message: format!("the file of {name}: {}: {}", refusal.field, refusal.message),
            field: "name".to_owned(),
            ..refusal
        })?;
        if draft.name != name {
            let text = format!("the file of {name} has a skill {:?}", draft.name);
            return Err(Refusal::invalid("name", text));
        }
        Installation::of_folder(draft, version.as_deref(), CATALOG)
    }
}

/// The folder in a file; in an archive its content is at the root, or in one folder.
fn folder(name: String, kind: SkillFileKind, bytes: &Bytes, unpack: Unpack) -> Result<Folder, Refusal> {
    let files = match kind {
        SkillFileKind::SkillMd => {
            let file = SkillFile {
                bytes: bytes.as_ref().into(),
                executable: false,
            };
            Files::from([(DOCUMENT_NAMES[0].to_owned(), file)])
        }
        SkillFileKind::Archive => unpack(bytes).map_err(|bad| Refusal::invalid("files", bad.message))?,
    };
    let folder = if files.contains_key(DOCUMENT_NAMES[0]) {
        Folder { name, files }
    } else {
        top_folder(files)?
    };
    if let Some(document) = folder.files.get(DOCUMENT_NAMES[0]) {
        demand_document(&document.bytes)?;
    }
    Ok(folder)
}

/// The index as it is now. One line of the log is about all entries that cannot be read.
async fn read(catalogs: &Catalogs) -> Result<Index, Refusal> {
    let address = catalogs.search(CATALOG, "", 0);
    let failed = |why: String| unreachable(CATALOG, &address, &WebError::Failed(why));
    let base = Url::parse(&address).map_err(|error| failed(error.to_string()))?;
    let bytes = get(catalogs, &address, CATALOG.list_max_bytes()).await?;
    let index = entries(&base, &bytes).map_err(|error| failed(error.to_string()))?;
    if let Some(first) = index.skipped.first() {
        let entries = index.skipped.len();
        tracing::warn!(entries, %first, "entries of the index of skills cannot be read, and are skipped");
    }
    Ok(index)
}

async fn get(catalogs: &Catalogs, address: &str, most: usize) -> Result<Bytes, Refusal> {
    let found = catalogs.web.get(address).await;
    let found = found.map_err(|error| unreachable(CATALOG, address, &error))?;
    if found.len() > most {
        let error = WebError::Failed(format!("more than {most} bytes"));
        return Err(unreachable(CATALOG, address, &error));
    }
    Ok(found)
}
