//! A call of an API on a store: what it does.

use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use knack_skill::catalog::Catalog;
use knack_skill::model::Skill;
use knack_skill::problem::Profile;

use crate::answer::{ApiOutcome, Refusal, RefusalKind};
use crate::api_request::ApiRequest;
use crate::archive::unzip;
use crate::catalogs::Catalogs;
use crate::draft::Draft;
use crate::empty_store::EmptyStore;
use crate::error::StoreError;
use crate::history::History;
use crate::json::read_aside;
use crate::litellm::{LiteLlm, PROVIDER};
use crate::model::{SkillEntry, Version};
use crate::omniroute::{CallerSkills, Claims, ExecutionContext, IdempotencyAuthority, Installer, Runs, RunsInProgress};
use crate::owner::Owner;
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

    const fn executions(&self) -> ExecutionContext<'_> {
        ExecutionContext {
            history: self.history.as_ref(),
            authority: IdempotencyAuthority::Here(&self.runs),
        }
    }

    /// The skills that a caller sees beside those that everybody is served.
    fn skills_of<'a>(&'a self, owner: &'a Owner, shared: &'a [Arc<Skill>]) -> CallerSkills<'a> {
        CallerSkills {
            store: &*self.store,
            owner,
            shared,
            versions: None,
        }
    }

    /// Answers `POST /api/skills/executions` of `owner`, as [`Registry::answer`] does, with what runs tools.
    pub async fn execute(
        &self,
        owner: Option<&Owner>,
        asked: &ApiRequest,
        shared: &[Arc<Skill>],
        runs: &dyn Runs,
    ) -> Response<Bytes> {
        let Some(owner) = owner else {
            return respond_json(Err(no_credential()), omniroute::refuse, &asked.request_id);
        };
        run(self.executions(), self.skills_of(owner, shared), asked, runs).await
    }

    /// Answers a call of `owner`, which [`crate::route()`] has read from a request; without an owner it is refused. `shared`: skills
    /// that everybody is served, those from files.
    pub async fn answer(
        &self,
        owner: Option<&Owner>,
        call: ApiCall,
        asked: &ApiRequest,
        shared: &[Arc<Skill>],
    ) -> Response<Bytes> {
        let owner = owner.ok_or_else(no_credential);
        let request_id = &asked.request_id;
        match call {
            ApiCall::Vendor(dialect, operation) => match owner {
                Ok(owner) => self.vendor(owner, dialect, operation, asked).await,
                Err(refused) => respond(dialect, Err(refused), request_id),
            },
            ApiCall::AgentFlow(call) => {
                let done = match owner {
                    Ok(owner) => agent_flow::call(&*self.store, owner, call, &asked.body).await,
                    Err(refused) => Err(refused),
                };
                respond_json(done, agent_flow::refuse, request_id)
            }
            ApiCall::OmniRoute(call) => {
                let done = match owner {
                    Ok(owner) => {
                        let (skills, executions) = (self.skills_of(owner, shared), self.executions());
                        let installer = Installer {
                            reader: &self.reader,
                            catalogs: self.catalogs.as_ref(),
                        };
                        omniroute::call(skills, installer, executions, call, asked).await
                    }
                    Err(refused) => Err(refused),
                };
                respond_json(done, omniroute::refuse, request_id)
            }
            ApiCall::LiteLlm(LiteLlm::Archive(id)) => {
                let done = match owner {
                    Ok(owner) => litellm::archive(self.skills_of(owner, shared), &self.reader, &id).await,
                    Err(refused) => Err(refused),
                };
                respond_zip(done, litellm::refuse, request_id)
            }
            ApiCall::LiteLlm(call) => {
                let done = match owner {
                    Ok(owner) => litellm::call(self.skills_of(owner, shared), &self.reader, call, asked).await,
                    Err(refused) => Err(refused),
                };
                respond_json(done, litellm::refuse, request_id)
            }
        }
    }

    /// A call of a vendor's API, unless its form says that the skill is an entry of LiteLLM's.
    async fn vendor(
        &self,
        owner: &Owner,
        dialect: Dialect,
        operation: Operation,
        asked: &ApiRequest,
    ) -> Response<Bytes> {
        let request_id = &asked.request_id;
        let form = match operation {
            Operation::Create => Form::read(&asked.headers, asked.body.clone()).await,
            _ => Ok(Form::default()),
        };
        match form {
            Ok(form) if litellm::is_meant(&form) => respond_json(
                litellm::create(self.skills_of(owner, &[]), &self.reader, form).await,
                litellm::refuse,
                request_id,
            ),
            Ok(form) if litellm::provider(&form).is_some() => respond(dialect, Err(provider_in_form()), request_id),
            Ok(form) => {
                let done = self.call(owner, dialect, operation, asked, form).await;
                respond(dialect, done, request_id)
            }
            Err(refused) => respond(dialect, Err(refused), request_id),
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
        asked: &ApiRequest,
    ) -> Result<ApiOutcome, Refusal> {
        self.skill(owner, id).await?;
        let form = Form::read(&asked.headers, asked.body.clone()).await?;
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
        asked: &ApiRequest,
        form: Form,
    ) -> Result<ApiOutcome, Refusal> {
        let query = asked.query.as_deref();
        match operation {
            Operation::Create => self.create(owner, dialect, form).await,
            Operation::List => self.list(owner, dialect, query).await,
            Operation::Get(id) => self.skill(owner, &id).await.map(ApiOutcome::Skill),
            Operation::SetDefault(id) => self.set_default(owner, &id, &asked.body).await,
            Operation::Delete(id) => {
                dialect.may_delete(&self.skill(owner, &id).await?)?;
                let deleted = self.store.delete(owner, &id).await;
                deleted
                    .map(ApiOutcome::Deleted)
                    .map_err(|error| Refusal::of(error, &id))
            }
            Operation::Content(id) => self.served_content(owner, &id).await,
            Operation::CreateVersion(id) => self.create_version(owner, dialect, &id, asked).await,
            Operation::ListVersions(id) => {
                let entry = self.skill(owner, &id).await?;
                let page = dialect.page(query, &id)?;
                let paged = Paged::of(entry.versions.iter(), &page, |version| &version.id).map(Version::clone);
                Ok(ApiOutcome::Versions(entry, paged))
            }
            Operation::GetVersion { id, version: word } => {
                let entry = self.skill(owner, &id).await?;
                let found = version(&entry, &word)?;
                Ok(ApiOutcome::Version(entry, found))
            }
            Operation::DeleteVersion { id, version: word } => self.delete_version(owner, dialect, &id, &word).await,
            Operation::VersionContent { id, version: word } => {
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

/// Where runs are noted and claimed that a process makes whose skills are stored elsewhere.
#[derive(Debug, Clone, Copy)]
pub struct ElsewhereKept<'a> {
    /// Notes each of them, if a history is kept.
    pub history: Option<&'a Arc<dyn History>>,
    /// Claims those with an idempotency key before they begin; `None`: such a run is refused.
    pub claims: Option<&'a Arc<dyn Claims>>,
}

/// Answers `POST /api/skills/executions` where skills are stored elsewhere: a tool of one of `shared` is run, which is named as
/// model requests name what is in `catalog`.
pub async fn execute_shared(
    kept: ElsewhereKept<'_>,
    owner: &Owner,
    asked: &ApiRequest,
    shared: &[Arc<Skill>],
    catalog: &Catalog,
    runs: &dyn Runs,
) -> Response<Bytes> {
    let executions = ExecutionContext {
        history: kept.history,
        authority: kept
            .claims
            .map_or(IdempotencyAuthority::Nobody, IdempotencyAuthority::Cluster),
    };
    let skills = CallerSkills {
        store: &EmptyStore,
        owner,
        shared,
        versions: Some(catalog),
    };
    run(executions, skills, asked, runs).await
}

async fn run(
    executions: ExecutionContext<'_>,
    skills: CallerSkills<'_>,
    asked: &ApiRequest,
    runs: &dyn Runs,
) -> Response<Bytes> {
    let done = executions.run(skills, asked, runs).await;
    let done = done.map(|body| (200, Some(body)));
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
