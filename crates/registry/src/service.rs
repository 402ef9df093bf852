//! A call of an API on a store: what it does.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Response};
use knack_skill::model::Skill;
use knack_skill::problem::Profile;

use crate::answer::{ApiOutcome, Refusal, RefusalKind};
use crate::archive::unzip;
use crate::catalogs::Catalogs;
use crate::draft::Draft;
use crate::empty_store::EmptyStore;
use crate::error::StoreError;
use crate::history::History;
use crate::json::read_aside;
use crate::litellm::{LiteLlm, PROVIDER};
use crate::model::{Owner, SkillEntry, Version};
use crate::omniroute::{Claims, ExecutionContext, Repeats, Runs, RunsInProgress, repeat_key};
use crate::page::Paged;
use crate::reader::Reader;
use crate::response::{not_allowed, respond, respond_json, respond_zip, unknown_path};
use crate::route::{ApiCall, Dialect, Operation};
use crate::store::Store;
use crate::upload::Form;
use crate::{agent_flow, anthropic, litellm, omniroute, openai};

/// The APIs over a store.
#[derive(Debug)]
pub struct Registry {
    store: Arc<dyn Store>,
    reader: Arc<Reader>,
    catalogs: Option<Catalogs>,
    history: Option<Arc<dyn History>>,
    runs: RunsInProgress,
}

/// A request to an API.
#[derive(Debug)]
pub struct ApiRequest {
    /// The result of [`crate::route()`].
    pub call: ApiCall,
    /// The query of the request.
    pub query: Option<String>,
    /// The headers of the request.
    pub headers: HeaderMap,
    /// The whole body of the request.
    pub body: Bytes,
    /// Its id, which its answer and its execution have.
    pub request_id: String,
}

impl Registry {
    /// The APIs over a store.
    pub fn new(store: Arc<dyn Store>, reader: &Arc<Reader>) -> Self {
        Self {
            store,
            reader: Arc::clone(reader),
            catalogs: None,
            history: None,
            runs: RunsInProgress::default(),
        }
    }

    /// This service with catalogs to install from.
    #[must_use]
    pub fn with_catalogs(self, catalogs: Catalogs) -> Self {
        Self {
            catalogs: Some(catalogs),
            ..self
        }
    }

    /// With a history of executions.
    #[must_use]
    pub fn with_history(mut self, history: Arc<dyn History>) -> Self {
        self.history = Some(history);
        self
    }

    const fn ran(&self) -> ExecutionContext<'_> {
        ExecutionContext {
            history: self.history.as_ref(),
            repeats: Repeats::Here(&self.runs),
        }
    }

    /// Answers `POST /api/skills/executions` of `owner`, as [`Registry::answer`] does, with what runs tools.
    pub async fn execute(
        &self,
        owner: Option<&Owner>,
        asked: ApiRequest,
        shared: &[Arc<Skill>],
        runs: &dyn Runs,
    ) -> Response<Bytes> {
        let Some(owner) = owner else {
            return respond_json(Err(no_credential()), omniroute::refuse, &asked.request_id);
        };
        run(self.ran(), (&*self.store, owner, shared), &asked, runs).await
    }

    /// Answers a call of `owner`; without one it is refused. `shared`: skills that everybody is served, those from files.
    pub async fn answer(&self, owner: Option<&Owner>, asked: ApiRequest, shared: &[Arc<Skill>]) -> Response<Bytes> {
        let owner = owner.ok_or_else(no_credential);
        let request_id = asked.request_id.clone();
        match asked.call.clone() {
            ApiCall::Skills(dialect, operation) => match owner {
                Ok(owner) => self.vendor(owner, dialect, operation, asked).await,
                Err(refused) => respond(dialect, Err(refused), &request_id),
            },
            ApiCall::AgentFlow(call) => {
                let done = match owner {
                    Ok(owner) => agent_flow::call(&*self.store, owner, call, &asked.body).await,
                    Err(refused) => Err(refused),
                };
                respond_json(done, agent_flow::refuse, &request_id)
            }
            ApiCall::OmniRoute(call) => {
                let sent = (asked.query.as_deref(), &asked.body);
                let done = match owner {
                    Ok(owner) => {
                        let store = (&*self.store, &*self.reader, self.catalogs.as_ref());
                        omniroute::call(store, (owner, shared), call, sent, self.ran()).await
                    }
                    Err(refused) => Err(refused),
                };
                respond_json(done, omniroute::refuse, &request_id)
            }
            ApiCall::LiteLlm(LiteLlm::Archive(id)) => {
                let parts = (&*self.store, &*self.reader);
                let done = match owner {
                    Ok(owner) => litellm::archive(parts, owner, &id).await,
                    Err(refused) => Err(refused),
                };
                respond_zip(done, litellm::refuse, &request_id)
            }
            ApiCall::LiteLlm(call) => {
                let (parts, query) = ((&*self.store, &*self.reader), asked.query.as_deref());
                let done = match owner {
                    Ok(owner) => litellm::call(parts, owner, call, query, (&asked.headers, asked.body)).await,
                    Err(refused) => Err(refused),
                };
                respond_json(done, litellm::refuse, &request_id)
            }
        }
    }

    /// A call of a vendor's API, unless its form says that the skill is an entry of LiteLLM's.
    async fn vendor(
        &self,
        owner: &Owner,
        dialect: Dialect,
        operation: Operation,
        asked: ApiRequest,
    ) -> Response<Bytes> {
        let request_id = asked.request_id.clone();
        let form = match operation {
            Operation::Create => Form::read(&asked.headers, asked.body.clone()).await,
            _ => Ok(Form::default()),
        };
        match form {
            Ok(form) if litellm::is_meant(&form) => respond_json(
                litellm::create((&*self.store, &*self.reader), owner, form).await,
                litellm::refuse,
                &request_id,
            ),
            Ok(form) if litellm::provider(&form).is_some() => respond(dialect, Err(provider_in_form()), &request_id),
            Ok(form) => {
                let done = self.call(owner, dialect, operation, (asked, form)).await;
                respond(dialect, done, &request_id)
            }
            Err(refused) => respond(dialect, Err(refused), &request_id),
        }
    }

    async fn create(&self, owner: &Owner, dialect: Dialect, form: Form) -> Result<ApiOutcome, Refusal> {
        let title = title(dialect, &form)?;
        let draft = self.draft(dialect, form).await?;
        let created = self.store.create(owner, title, draft).await;
        created.map(ApiOutcome::Skill).map_err(|error| Refusal::of(error, ""))
    }

    async fn delete_version(
        &self,
        owner: &Owner,
        dialect: Dialect,
        id: &str,
        word: &str,
    ) -> Result<ApiOutcome, Refusal> {
        let entry = self.skill(owner, id).await?;
        let gone = version(&entry, word)?;
        dialect.may_delete_version(&entry, &gone)?;
        let deleted = self.store.delete_version(owner, id, gone.number).await;
        deleted.map_err(|error| Refusal::of(error, id))?;
        Ok(ApiOutcome::VersionDeleted(gone))
    }

    /// The archive of the version that is served by default.
    async fn served_content(&self, owner: &Owner, id: &str) -> Result<ApiOutcome, Refusal> {
        let entry = self.skill(owner, id).await?;
        let served = entry.served().cloned();
        let served =
            served.ok_or_else(|| Refusal::new(RefusalKind::NotFound, "version", "This skill has no version."))?;
        self.zip(owner, &entry, served.number).await
    }

    async fn create_version(
        &self,
        owner: &Owner,
        dialect: Dialect,
        id: &str,
        (headers, body): (&HeaderMap, Bytes),
    ) -> Result<ApiOutcome, Refusal> {
        self.skill(owner, id).await?;
        let form = Form::read(headers, body).await?;
        let default = dialect.makes_default(&form)?;
        let draft = self.draft(dialect, form).await?;
        let made = self.store.add_version(owner, id, draft, default).await;
        let entry = made.map_err(|error| Refusal::of(error, id))?;
        let made = version(&entry, "latest")?;
        Ok(ApiOutcome::Version(entry, made))
    }

    async fn list(&self, owner: &Owner, dialect: Dialect, query: Option<&str>) -> Result<ApiOutcome, Refusal> {
        let page = dialect.page(query, "")?;
        let listed = self.store.list(owner, &page).await;
        listed.map(ApiOutcome::Skills).map_err(|error| match error {
            StoreError::NotFound => dialect.no_such_place(),
            other => Refusal::of(other, ""),
        })
    }

    async fn set_default(&self, owner: &Owner, id: &str, body: &Bytes) -> Result<ApiOutcome, Refusal> {
        let entry = self.skill(owner, id).await?;
        let wanted = read_aside(body, openai::default_version).await?;
        let number = version(&entry, &wanted)?.number;
        let set = self.store.set_default(owner, id, number).await;
        set.map(ApiOutcome::Skill).map_err(|error| Refusal::of(error, id))
    }

    async fn call(
        &self,
        owner: &Owner,
        dialect: Dialect,
        operation: Operation,
        (asked, form): (ApiRequest, Form),
    ) -> Result<ApiOutcome, Refusal> {
        let ApiRequest {
            query, headers, body, ..
        } = asked;
        let query = query.as_deref();
        match operation {
            Operation::Create => self.create(owner, dialect, form).await,
            Operation::List => self.list(owner, dialect, query).await,
            Operation::Get(id) => self.skill(owner, &id).await.map(ApiOutcome::Skill),
            Operation::SetDefault(id) => self.set_default(owner, &id, &body).await,
            Operation::Delete(id) => {
                dialect.may_delete(&self.skill(owner, &id).await?)?;
                let deleted = self.store.delete(owner, &id).await;
                deleted
                    .map(ApiOutcome::Deleted)
                    .map_err(|error| Refusal::of(error, &id))
            }
            Operation::Content(id) => self.served_content(owner, &id).await,
            Operation::CreateVersion(id) => self.create_version(owner, dialect, &id, (&headers, body)).await,
            Operation::ListVersions(id) => {
                let entry = self.skill(owner, &id).await?;
                let page = dialect.page(query, &id)?;
                let paged = Paged::of(entry.versions.iter(), &page, |version| &version.id).map(Version::clone);
                Ok(ApiOutcome::Versions(entry, paged))
            }
            Operation::GetVersion(id, word) => {
                let entry = self.skill(owner, &id).await?;
                let found = version(&entry, &word)?;
                Ok(ApiOutcome::Version(entry, found))
            }
            Operation::DeleteVersion(id, word) => self.delete_version(owner, dialect, &id, &word).await,
            Operation::VersionContent(id, word) => {
                let entry = self.skill(owner, &id).await?;
                let number = version(&entry, &word)?.number;
                self.zip(owner, &entry, number).await
            }
            Operation::NotAllowed(methods) => Err(not_allowed(methods)),
            Operation::Unknown => Err(unknown_path()),
        }
    }

    async fn skill(&self, owner: &Owner, id: &str) -> Result<SkillEntry, Refusal> {
        let found = self.store.get(owner, id).await;
        found.map_err(|error| Refusal::of(error, id))
    }

    async fn draft(&self, dialect: Dialect, form: Form) -> Result<Draft, Refusal> {
        let folder = move |_| {
            let folder = form.folder(unzip)?;
            dialect.may_be_named(&folder.name)?;
            Ok(folder)
        };
        self.reader.checked(Profile::Strict, folder).await
    }

    async fn zip(&self, owner: &Owner, entry: &SkillEntry, number: u32) -> Result<ApiOutcome, Refusal> {
        let files = self.store.content(owner, &entry.id, number).await;
        let files = files.map_err(|error| Refusal::of(error, &entry.id))?;
        self.reader.zipped(entry.name.clone(), files).await.map(ApiOutcome::Zip)
    }
}

/// Answers `POST /api/skills/executions` where skills are stored elsewhere: a tool of one of `shared` is run. Runs are noted
/// in `history`; those with a key of repeats are claimed in `claims` first.
pub async fn execute_shared(
    history: Option<&Arc<dyn History>>,
    claims: Option<&Arc<dyn Claims>>,
    owner: &Owner,
    asked: &ApiRequest,
    shared: &[Arc<Skill>],
    runs: &dyn Runs,
) -> Response<Bytes> {
    let ran = ExecutionContext {
        history,
        repeats: claims.map_or(Repeats::Nobody, Repeats::Cluster),
    };
    run(ran, (&EmptyStore, owner, shared), asked, runs).await
}

async fn run(
    ran: ExecutionContext<'_>,
    from: (&dyn Store, &Owner, &[Arc<Skill>]),
    asked: &ApiRequest,
    runs: &dyn Runs,
) -> Response<Bytes> {
    let done = match repeat_key(&asked.headers) {
        Err(refused) => Err(refused),
        Ok(repeat) => {
            let run = ran.run(from, (&asked.body, repeat, &asked.request_id), runs).await;
            run.map(|body| (200, Some(body)))
        }
    };
    respond_json(done, omniroute::refuse, &asked.request_id)
}

fn no_credential() -> Refusal {
    let text = "Skills belong to the credential that uploads them, and this request has none; send an API key.";
    Refusal::new(RefusalKind::NoCredential, "authorization", text)
}

/// A gateway decides by the address where a request goes, so a provider that the body names comes too late.
fn provider_in_form() -> Refusal {
    let text = format!(
        "{PROVIDER}: send it in the query to make the skill at that provider, as POST /v1/skills?{PROVIDER}=…; without it the \
         skill is made here"
    );
    Refusal::invalid(PROVIDER, text)
}

fn version(entry: &SkillEntry, word: &str) -> Result<Version, Refusal> {
    let found = entry.named(word).cloned();
    found.ok_or_else(|| {
        let text = format!("Skill {} has no version {word}", entry.id);
        Refusal::new(RefusalKind::NotFound, "version", text)
    })
}

fn title(dialect: Dialect, form: &Form) -> Result<Option<String>, Refusal> {
    dialect.title_field().map_or(Ok(None), |field| form.title(field))
}

/// The differences between the dialects.
impl Dialect {
    fn page(self, query: Option<&str>, id: &str) -> Result<crate::page::Page, Refusal> {
        match self {
            Self::Anthropic { beta } => anthropic::page(query, id, beta),
            Self::OpenAi => openai::page(query, id),
        }
    }

    /// The refusal of a list that begins behind an item of which nothing is known.
    fn no_such_place(self) -> Refusal {
        match self {
            Self::Anthropic { .. } => anthropic::no_such_page(),
            Self::OpenAi => openai::no_such_item(),
        }
    }

    const fn title_field(self) -> Option<&'static str> {
        match self {
            Self::Anthropic { beta: false } => Some("display_name"),
            Self::Anthropic { beta: true } => Some("display_title"),
            Self::OpenAi => None,
        }
    }

    fn makes_default(self, form: &Form) -> Result<bool, Refusal> {
        match self {
            Self::Anthropic { .. } => Ok(true),
            Self::OpenAi => openai::makes_default(form.fields.get("default").map(String::as_str)),
        }
    }

    fn may_be_named(self, name: &str) -> Result<(), Refusal> {
        match self {
            Self::Anthropic { .. } => anthropic::may_be_named(name),
            Self::OpenAi => Ok(()),
        }
    }

    fn may_delete(self, entry: &SkillEntry) -> Result<(), Refusal> {
        match self {
            Self::Anthropic { beta: true } => anthropic::may_delete_in_beta(entry),
            Self::Anthropic { beta: false } | Self::OpenAi => Ok(()),
        }
    }

    fn may_delete_version(self, entry: &SkillEntry, version: &Version) -> Result<(), Refusal> {
        match self {
            Self::Anthropic { beta: true } => Ok(()),
            Self::Anthropic { beta: false } => anthropic::may_delete_version(entry),
            Self::OpenAi => openai::may_delete_version(entry, version),
        }
    }
}
