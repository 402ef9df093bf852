//! LiteLLM's `/v1/skills` for skills that it stores itself (`custom_llm_provider=litellm_proxy`): create, list, get, delete.
//!
//! An entry is an uploaded skill under another id: `litellm_skill_` and its UUID.

mod fields;

use http::Method;
use knack_skill::digest::sha256;
use knack_skill::model::SkillFile;
use knack_skill::names;
use knack_skill::problem::Profile;
use knack_skill::search::SearchIndex;
use knack_skill::tree::DOCUMENT_NAMES;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

pub(crate) use fields::LITELLM_PREFIX;
pub use fields::{LiteLlmFields, litellm_id};

use crate::Files;
use crate::answer::{Answer, Refusal, RefusalKind, RepeatRefusal, rfc3339};
use crate::anthropic::no_such_page;
use crate::api_request::ApiRequest;
use crate::archive::unzip;
use crate::check::{DESCRIPTION_MAX_BYTES, long_description};
use crate::error::StoreError;
use crate::json::read_json;
use crate::methods::allowed_methods;
use crate::model::SkillEntry;
use crate::omniroute::CallerSkills;
use crate::query::{from_one, page_limit, parameters};
use crate::reader::Reader;
use crate::store::all;
use crate::upload::{Folder, Form};
use fields::of_shown;

/// The parameter, and the field of a form, that says who keeps a skill.
pub(crate) const PROVIDER: &str = "custom_llm_provider";
/// Its value for entries.
pub(crate) const PROXY: &str = "litellm_proxy";
/// Entries of a page that does not say.
const LIMIT_DEFAULT: usize = 20;
/// Entries of a page at most.
const LIMIT_MAX: usize = 100;

/// How tokens of pages begin; the number of records before them follows.
const PAGE_PREFIX: &str = "page_";
/// The word of a path behind an id that asks for the files as a zip.
pub(crate) const ARCHIVE: &str = "archive";
/// The parameter that asks for the closest records.
pub(crate) const QUERY: &str = "query";

/// Digits of a digest that distinguish two names.
const NAME_DIGITS: usize = 8;

/// The request, with the id in the path.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the API")]
pub enum LiteLlm {
    Create,
    List,
    Get(String),
    Delete(String),
    Archive(String),
    /// A path with a method that it does not have: its methods.
    NotAllowed(&'static str),
    /// A path that is not there.
    Unknown,
}

impl LiteLlm {
    /// Reads what follows `/v1/skills`.
    pub(crate) fn of(method: &Method, rest: &[&str]) -> Self {
        Self::found(method.as_str(), rest).unwrap_or_else(|| {
            let has = |method: &str| Self::found(method, rest).is_some();
            allowed_methods(has).map_or(Self::Unknown, Self::NotAllowed)
        })
    }

    fn found(method: &str, rest: &[&str]) -> Option<Self> {
        Some(match (method, rest) {
            ("POST", []) => Self::Create,
            ("GET", []) => Self::List,
            ("GET", [id]) => Self::Get((*id).to_owned()),
            ("GET", [id, ARCHIVE]) => Self::Archive((*id).to_owned()),
            ("DELETE", [id]) => Self::Delete((*id).to_owned()),
            _ => return None,
        })
    }
}

/// What this API has.
const SUPPORTED_PATHS: &str = "LiteLLM's API has no versions; supported: POST and GET /v1/skills, GET and DELETE /v1/skills/{id}, and GET \
    /v1/skills/{id}/archive";

/// The refusal of a path that is not there.
pub(crate) fn unknown() -> Refusal {
    Refusal::new(RefusalKind::NotFound, "", SUPPORTED_PATHS)
}

/// The refusal of a method that a path with `methods` does not have.
pub(crate) fn not_allowed(methods: &'static str) -> Refusal {
    Refusal::new(RefusalKind::NotAllowed(methods), "", SUPPORTED_PATHS)
}

/// Answers a call.
pub(crate) async fn call(
    skills: CallerSkills<'_>,
    reader: &Reader,
    call: LiteLlm,
    asked: &ApiRequest,
) -> Result<Answer, Refusal> {
    let CallerSkills { store, owner, .. } = skills;
    let done = match call {
        LiteLlm::Create => {
            let form = Form::read(&asked.headers, asked.body.clone()).await?;
            return create(skills, reader, form).await;
        }
        LiteLlm::List => {
            let wanted = ListQuery::read(asked.query.as_deref())?;
            let permit = match &wanted.search {
                Some(_) => SEARCHES.acquire().await.ok(),
                None => None,
            };
            let entries = all(store, owner).await.map_err(|error| refused(error, ""))?;
            // An index of thousands of skills takes a while. The permit is given back when it ends, also for a caller that has left.
            let answer = tokio::task::spawn_blocking(move || {
                let _permit = permit;
                wanted.answer(&entries)
            });
            let answer = answer.await;
            answer.map_err(|error| refused(StoreError::Failed(error.to_string()), ""))?
        }
        LiteLlm::Get(id) => {
            let entry = store.get(owner, &of_shown(&id)).await;
            shown(&entry.map_err(|error| refused(error, &id))?)
        }
        LiteLlm::Delete(id) => {
            let deleted = store.delete(owner, &of_shown(&id)).await;
            deleted.map_err(|error| refused(error, &id))?;
            json!({"id": id, "type": "skill_deleted"})
        }
        LiteLlm::NotAllowed(methods) => return Err(not_allowed(methods)),
        // It is no JSON: [`archive`] answers it.
        LiteLlm::Archive(_) | LiteLlm::Unknown => return Err(unknown()),
    };
    Ok((200, Some(done)))
}

/// The files of a record in the version that is served, as a zip of their folder.
pub(crate) async fn archive(skills: CallerSkills<'_>, reader: &Reader, id: &str) -> Result<Vec<u8>, Refusal> {
    let CallerSkills { store, owner, .. } = skills;
    let entry = store.get(owner, &of_shown(id)).await;
    let entry = entry.map_err(|error| refused(error, id))?;
    let number = entry.default.ok_or_else(|| refused(StoreError::NotFound, id))?;
    let files = store.content(owner, &entry.id, number).await;
    let files = files.map_err(|error| refused(error, id))?;
    reader.zipped(entry.name, files).await
}

/// The provider that a form names.
pub(crate) fn provider(form: &Form) -> Option<&String> {
    form.fields.get(PROVIDER).filter(|provider| !provider.is_empty())
}

/// Whether a form says that the skill is kept here.
pub(crate) fn is_meant(form: &Form) -> bool {
    provider(form).is_some_and(|provider| provider == PROXY)
}

/// Keeps the folder that was uploaded, or, without one, the bare instructions.
pub(crate) async fn create(skills: CallerSkills<'_>, reader: &Reader, form: Form) -> Result<Answer, Refusal> {
    let fields = fields(&form)?;
    let title = form.title("display_title")?;
    let bare = match fields.file_name {
        Some(_) => None,
        None => Some(bare_folder(title.as_deref(), &fields)?),
    };
    let draft = reader.checked(Profile::Load, move |_| {
        bare.map_or_else(|| form.folder_or_its_content(unzip), Ok)
    });
    let mut draft = draft.await?;
    if let Some(description) = &fields.description {
        draft.description.clone_from(description);
    }
    draft.litellm = Some(fields);
    let created = skills.store.create(skills.owner, title, draft).await;
    let entry = created.map_err(|error| refused(error, ""))?;
    Ok((200, Some(shown(&entry))))
}

/// The fields of a form that are not files.
fn fields(form: &Form) -> Result<LiteLlmFields, Refusal> {
    let field = |name: &str| form.fields.get(name).filter(|text| !text.is_empty()).cloned();
    let metadata = field("metadata").map(|text| {
        let read = read_json(text.as_bytes()).and_then(|value| Ok(serde_json::from_value(value)?));
        read.map_err(|error| Refusal::invalid("metadata", format!("metadata is not a JSON object: {error}")))
    });
    let (file_name, file_type) = form.first_file().unzip();
    let description = field("description");
    if let Some(long) = description.as_ref().filter(|text| text.len() > DESCRIPTION_MAX_BYTES) {
        return Err(long_description(long));
    }
    Ok(LiteLlmFields {
        description,
        instructions: field("instructions"),
        metadata: metadata.transpose()?,
        file_name,
        file_type: file_type.flatten(),
    })
}

/// The folder of an entry without files.
fn bare_folder(title: Option<&str>, fields: &LiteLlmFields) -> Result<Folder, Refusal> {
    let Some(instructions) = &fields.instructions else {
        return Err(Refusal::invalid(
            "files",
            "send the zip of a skill's folder in files, or instructions",
        ));
    };
    let Some(title) = title else {
        return Err(Refusal::invalid(
            "display_title",
            "a skill without files is named by its display_title",
        ));
    };
    let name = name_of(title);
    let description = fields.description.as_ref().unwrap_or(instructions);
    // Long instructions are shown whole as such; the list has their begin.
    let description = &description[..description.floor_char_boundary(DESCRIPTION_MAX_BYTES)];
    let text = format!(
        "---\nname: {name}\ndescription: {}\n---\n{instructions}\n",
        Value::from(description)
    );
    let file = SkillFile {
        bytes: text.into_bytes().into(),
        executable: false,
    };
    let files = Files::from([(DOCUMENT_NAMES[0].to_owned(), file)]);
    Ok(Folder { name, files })
}

/// The name of an entry without files. A title without a letter or digit that a name may have is distinguished by its digest.
fn name_of(title: &str) -> String {
    let name = names::normalize(title);
    if title.bytes().any(|byte| byte.is_ascii_alphanumeric()) {
        return name;
    }
    let digest = sha256(title);
    format!("{name}-{}", &digest[..NAME_DIGITS])
}

/// Searches at one time: each makes an index of all skills of its caller.
static SEARCHES: Semaphore = Semaphore::const_new(1);
/// Bytes of a description that are searched, which is the most that SKILL.md may have: one of LiteLLM's may be longer.
const SEARCHED_BYTES: usize = 1_024;

/// The parameters of a list.
#[derive(Debug, PartialEq, Eq)]
struct ListQuery {
    limit: usize,
    offset: usize,
    /// What is searched, and how many are wanted.
    search: Option<(String, usize)>,
}

impl ListQuery {
    fn read(query: Option<&str>) -> Result<Self, Refusal> {
        let (mut limit, mut offset, mut search, mut most) = (LIMIT_DEFAULT, 0, None, LIMIT_DEFAULT);
        for (key, value) in parameters(query) {
            match key.as_str() {
                "limit" => limit = page_limit(&value, &(1..=LIMIT_MAX))?,
                "offset" => {
                    offset = value
                        .parse()
                        .map_err(|_| Refusal::invalid("offset", "offset: must be a number of at least 0"))?;
                }
                "page" if !value.is_empty() => {
                    let number = value.strip_prefix(PAGE_PREFIX).and_then(|number| number.parse().ok());
                    offset = number.ok_or_else(no_such_page)?;
                }
                QUERY => search = Some(value).filter(|text| !text.trim().is_empty()),
                "top_k" => most = from_one("top_k", &value, LIMIT_MAX)?,
                _ => {}
            }
        }
        let search = search.map(|text| (text, most));
        Ok(Self { limit, offset, search })
    }

    /// A page of the newest first; of a search the closest first, without pages.
    fn answer(&self, entries: &[SkillEntry]) -> Value {
        if let Some((text, most)) = &self.search {
            let documents = entries.iter().map(|entry| {
                let version = entry.served().or_else(|| entry.latest());
                let description = version.map_or("", |version| version.description.as_str());
                let description = &description[..description.floor_char_boundary(SEARCHED_BYTES)];
                (entry.title.as_deref().unwrap_or(&entry.name), description)
            });
            let closest = SearchIndex::build(documents).closest(text, *most);
            let data: Vec<Value> = closest.iter().filter_map(|at| entries.get(*at)).map(shown).collect();
            return json!({"data": data, "has_more": false, "next_page": null});
        }
        let data: Vec<Value> = entries
            .iter()
            .rev()
            .skip(self.offset)
            .take(self.limit)
            .map(shown)
            .collect();
        let end = self.offset.saturating_add(self.limit);
        let more = entries.len() > end;
        let next = more.then(|| format!("{PAGE_PREFIX}{end}"));
        json!({"data": data, "has_more": more, "next_page": next})
    }
}

fn shown(entry: &SkillEntry) -> Value {
    let version = entry.served().or_else(|| entry.latest());
    let fields = version.and_then(|version| version.litellm.as_ref());
    let text = |member: fn(&LiteLlmFields) -> &Option<String>| fields.and_then(|fields| member(fields).clone());
    json!({
        "id": litellm_id(&entry.id), "type": "skill", "source": "custom", "display_title": entry.title,
        "latest_version": entry.latest().map(|version| version.created.to_string()),
        "description": version.map(|version| &version.description),
        "instructions": text(|fields| &fields.instructions), "metadata": fields.and_then(|fields| fields.metadata.as_ref()),
        "file_name": text(|fields| &fields.file_name), "file_type": text(|fields| &fields.file_type),
        "created_at": rfc3339(entry.created), "updated_at": rfc3339(entry.updated),
    })
}

/// The refusal for an error of the store: one for what is missing and what is another's.
fn refused(error: StoreError, id: &str) -> Refusal {
    match error {
        StoreError::NotFound => Refusal::new(RefusalKind::NotFound, "skill_id", format!("Skill not found: {id}")),
        other => Refusal::of(other, id),
    }
}

pub(crate) fn refuse(refusal: &Refusal) -> Value {
    let kind = match refusal.kind {
        RefusalKind::NoCredential => "auth_error",
        RefusalKind::Full
        | RefusalKind::Failed
        | RefusalKind::Repeated(RepeatRefusal::Failed | RepeatRefusal::Lost | RepeatRefusal::TimedOut)
        | RefusalKind::Unavailable => "internal_server_error",
        RefusalKind::Throttled => "throttling_error",
        _ => "invalid_request_error",
    };
    let param = Some(&refusal.field).filter(|field| !field.is_empty());
    let code = refusal.kind.status().to_string();
    json!({"error": {"message": refusal.message, "type": kind, "param": param, "code": code}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_in_other_scripts_are_names_of_their_own() {
        assert_eq!(name_of("My Word!"), "my-word");
        let (one, other) = (name_of("名字"), name_of("技能"));
        assert_ne!(one, other);
        assert_eq!(one, name_of("名字"));
        for name in [one, other] {
            assert_eq!(names::check(&name), Ok(()), "{name}");
        }
    }

    #[test]
    fn lists_and_searches_are_bounded() {
        for (query, limit, offset, search) in [
            ("", 20, 0, None),
            ("offset=7&limit=100", 100, 7, None),
            ("page=page_40", 20, 40, None),
            ("page=&query=+", 20, 0, None),
            ("query=a+word", 20, 0, Some(("a word".to_owned(), 20))),
            ("query=word&top_k=3", 20, 0, Some(("word".to_owned(), 3))),
        ] {
            let expected = ListQuery { limit, offset, search };
            assert_eq!(ListQuery::read(Some(query)), Ok(expected), "{query}");
        }
        for query in [
            "limit=0",
            "limit=101",
            "offset=-1",
            "top_k=0",
            "top_k=101",
            "page=x",
            "page=page_-1",
        ] {
            assert!(ListQuery::read(Some(query)).is_err(), "{query}");
        }
    }
}
