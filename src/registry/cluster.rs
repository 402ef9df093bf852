//! Skills as objects of a cluster: reads from the watched index, writes by the API server.
//!
//! ```text
//! ConfigMaps of a new version ─▶ objects of other versions that are new ─▶ the Skill (the commit) ─▶ what is left of before
//! ```
//! A process that ends in between leaves the old state or the new one, and objects that nothing refers to; [`super::sweep`]
//! removes those.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use knack_api::Skill;
use knack_memory::{MemoryBudget, MemoryShare};
use knack_registry::{Draft, Files, Mode, Page, Paged, SkillEntry, Stamp, StoreError};
use knack_vocabulary::NAME_MAX_BYTES;
use kube::Client;
use kube::runtime::watcher::Event;

use super::content::{Contents, config_maps};
use super::failure::{is_conflict, is_missing, store_error};
use super::index::SkillIndex;
use super::managed::manager;
use super::objects::UploadedSkill;
use super::registry_object::{ObjectKind, RegistryObject};
use super::skills::Skills;
use super::write_outcome::{WriteOutcome, is_gone};
use crate::cluster_reader::decoded::Undecoded;

/// Times that a change is tried when another writer was faster.
const ATTEMPTS: u32 = 5;
/// Pause before the second try; it doubles.
const PAUSE: Duration = Duration::from_millis(40);
/// Time for a change. Less than the age of a leftover, so that the sweep removes nothing that is being made.
const CHANGE_TIMEOUT: Duration = Duration::from_mins(2);
/// Skills of a namespace, those that others apply among them: their entries are in memory.
pub(super) const SKILLS_MAX: usize = 10_000;
/// Bytes of all uploaded versions of a namespace: they are in etcd, which has 2 GiB for everything by default.
const BYTES_MAX: u64 = 256 << 20;

/// The Skills of a cluster.
#[derive(Clone)]
pub(super) struct Cluster {
    pub(super) client: Client,
    index: Arc<RwLock<SkillIndex>>,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Cluster").finish_non_exhaustive()
    }
}

/// Where a change is made, and who makes it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Actor<'a> {
    pub(super) namespace: &'a str,
    /// As the API server knows the caller.
    pub(super) username: &'a str,
}

/// The entry after a change. Errors: the change is not allowed.
type Change<'a> = dyn Fn(&SkillEntry) -> Result<SkillEntry, StoreError> + Send + Sync + 'a;

impl Cluster {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            index: Arc::default(),
        }
    }

    /// Reads the index.
    pub(super) fn read<T>(&self, read: impl FnOnce(&SkillIndex) -> T) -> T {
        read(&self.index.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Applies an event of a watch.
    pub(super) fn apply(&self, scope: Option<&str>, event: Event<Skill>) {
        self.write(|index| index.apply(scope, event, Instant::now()));
    }

    /// Applies an event of a watch about an object that this version cannot decode.
    pub(super) fn apply_undecoded(&self, scope: Option<&str>, event: &Undecoded) {
        self.write(|index| index.apply_undecoded(scope, event));
    }

    fn write(&self, write: impl FnOnce(&mut SkillIndex)) {
        write(&mut self.index.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// Notes what the API server answered to a write, so that it is read from now on.
    pub(super) fn note(&self, skill: &Skill) {
        if let Some(known) = RegistryObject::of(skill) {
            self.write(|index| index.put(known));
        }
    }

    /// Notes that an object was deleted.
    pub(super) fn note_gone(&self, skill: &Skill) {
        if let Some(known) = RegistryObject::of(skill) {
            self.write(|index| index.forget(&known, Instant::now()));
        }
    }

    /// A skill by id.
    pub(super) fn get(&self, namespace: &str, id: &str) -> Result<Arc<RegistryObject>, StoreError> {
        let found = self.read(|index| index.by_id(namespace, id).cloned());
        found.ok_or(StoreError::NotFound)
    }

    /// The entry of the skill of a name.
    pub(super) fn find(&self, namespace: &str, name: &str) -> Option<SkillEntry> {
        self.read(|index| index.named(namespace, name)?.entry().cloned())
    }

    /// A page of the skills of a namespace.
    pub(super) fn list(&self, namespace: &str, page: &Page) -> Result<Paged<SkillEntry>, StoreError> {
        self.read(|index| index.page(namespace, page))
            .ok_or(StoreError::NotFound)
    }

    /// The files of a version, and the memory that they take.
    pub(super) async fn content(
        &self,
        namespace: &str,
        id: &str,
        number: u32,
        memory: &MemoryBudget,
    ) -> Result<(Files, MemoryShare), StoreError> {
        let known = self.get(namespace, id)?;
        let version = known.entry().and_then(|entry| entry.version(number));
        let version = version.ok_or(StoreError::NotFound)?;
        Contents::of(&self.client, namespace)
            .read(known.config_maps(number), version, memory)
            .await
    }

    fn check_quota(&self, namespace: &str, more: u64, new_skill: bool) -> Result<(), StoreError> {
        let (skills, bytes) = self.read(|index| index.usage(namespace));
        if new_skill && skills >= SKILLS_MAX {
            return Err(StoreError::Full(format!(
                "namespace {namespace} has {skills} skills, the maximum is {SKILLS_MAX}; delete one first"
            )));
        }
        if bytes.saturating_add(more) > BYTES_MAX {
            return Err(StoreError::Full(format!(
                "the uploaded skills of namespace {namespace} may take at most {} MiB; delete unused versions",
                BYTES_MAX >> 20
            )));
        }
        Ok(())
    }

    /// Refuses a new skill that no object can be, before anything is made.
    fn check_new_skill(&self, namespace: &str, draft: &Draft) -> Result<(), StoreError> {
        if let Some(there) = self.read(|index| index.named(namespace, &draft.name).cloned()) {
            return Err(taken(&there));
        }
        if draft.name.len() > NAME_MAX_BYTES {
            return Err(StoreError::LongName {
                name: draft.name.clone(),
                most: NAME_MAX_BYTES,
            });
        }
        if draft
            .litellm
            .as_ref()
            .is_some_and(knack_registry::LiteLlmFields::is_bare)
        {
            let text = "on a cluster, instructions must be in the skill's files; send the zip of a skill's folder in files, with the \
                        instructions in its SKILL.md";
            return Err(StoreError::Unfit(text.to_owned()));
        }
        self.check_quota(namespace, draft.bytes, true)
    }

    /// Whether an upload would be kept at this moment, as a new skill or as one more version.
    pub(super) fn would_keep(&self, namespace: &str, is_new: bool, draft: &Draft) -> Result<(), StoreError> {
        if is_new {
            self.check_new_skill(namespace, draft)
        } else {
            self.check_quota(namespace, draft.bytes, false)
        }
    }

    /// Makes a skill of an upload.
    pub(super) async fn create(
        &self,
        actor: Actor<'_>,
        title: Option<String>,
        draft: Draft,
    ) -> Result<SkillEntry, StoreError> {
        with_change_timeout(&draft.name.clone(), Box::pin(self.create_now(actor, title, draft))).await
    }

    async fn create_now(
        &self,
        actor: Actor<'_>,
        title: Option<String>,
        draft: Draft,
    ) -> Result<SkillEntry, StoreError> {
        let namespace = actor.namespace;
        self.check_new_skill(namespace, &draft)?;
        let owner = knack_registry::Owner::namespace(namespace);
        let entry = SkillEntry::new(owner, title, &draft, &Stamp::of_now());
        let version = entry.latest().ok_or(StoreError::NotFound)?;
        let made = built(namespace, &entry, draft.files).await?;
        let uploaded = UploadedSkill {
            shards: [(version.number, made.len())].into(),
            entry: entry.clone(),
        };
        let (contents, skills) = (
            Contents::of(&self.client, namespace),
            Skills::of(&self.client, namespace),
        );
        // Before anything is made: an entry that is too large is refused.
        let objects = uploaded.objects()?;
        contents
            .create(&made, None)
            .await
            .map_err(|error| store_error(&error))?;
        let created = match skills.create_main(&entry.name, objects, actor.username).await {
            Ok(created) => created,
            Err(error) => {
                match WriteOutcome::of(&skills, &entry.name, error, |there| there.names(&version.id)).await {
                    WriteOutcome::Done(created) => *created,
                    WriteOutcome::Refused(error, there) => {
                        // What is left of it is swept.
                        let _ = contents.delete(uploaded.all_config_maps()).await;
                        if !is_conflict(&error) {
                            return Err(store_error(&error));
                        }
                        return Err(there.map_or_else(|| conflict(&entry.name), |there| taken(&there)));
                    }
                    WriteOutcome::Unknown(error) => return Err(store_error(&error)),
                }
            }
        };
        self.note(&created);
        // They are the skill's as soon as it names them; the sweep gives them to it if this does not.
        if let Err(error) = contents.give_to(uploaded.all_config_maps(), &created).await {
            tracing::warn!(%error, "the ConfigMaps of an uploaded skill have no owner yet; the registry sets it at its next cleanup");
        }
        Ok(entry)
    }

    /// Keeps one more version.
    pub(super) async fn add_version(
        &self,
        actor: Actor<'_>,
        id: &str,
        draft: Draft,
        make_default: bool,
    ) -> Result<SkillEntry, StoreError> {
        let (bare, files) = self.split_files(actor.namespace, draft)?;
        // The id is that of the attempt: another writer may have made a version before it.
        let change = move |entry: &SkillEntry| entry.with_version(&bare, make_default, &Stamp::of_now());
        self.change(actor, id, &change, Some(files)).await
    }

    /// Keeps one more version, for which the oldest may have to go.
    pub(super) async fn add_in_turn(&self, actor: Actor<'_>, id: &str, draft: Draft) -> Result<SkillEntry, StoreError> {
        let (bare, files) = self.split_files(actor.namespace, draft)?;
        let change = move |entry: &SkillEntry| entry.with_version_in_turn(&bare, &Stamp::of_now());
        self.change(actor, id, &change, Some(files)).await
    }

    /// A version without its files, and these, if the quota has room for them.
    fn split_files(&self, namespace: &str, draft: Draft) -> Result<(Draft, Files), StoreError> {
        self.check_quota(namespace, draft.bytes, false)?;
        let (files, bare) = (draft.files, Files::new());
        Ok((Draft { files: bare, ..draft }, files))
    }

    /// Serves another version where none is named.
    pub(super) async fn set_default(&self, actor: Actor<'_>, id: &str, number: u32) -> Result<SkillEntry, StoreError> {
        let now = Stamp::of_now().now;
        self.change(actor, id, &move |entry| entry.with_default(number, now), None)
            .await
    }

    /// Sets when it reaches models.
    pub(super) async fn set_mode(&self, actor: Actor<'_>, id: &str, mode: Mode) -> Result<SkillEntry, StoreError> {
        let now = Stamp::of_now().now;
        self.change(actor, id, &move |entry| Ok(entry.with_mode(mode, now)), None)
            .await
    }

    /// Removes a version.
    pub(super) async fn delete_version(
        &self,
        actor: Actor<'_>,
        id: &str,
        number: u32,
    ) -> Result<SkillEntry, StoreError> {
        let now = Stamp::of_now().now;
        self.change(actor, id, &move |entry| entry.without_version(number, now), None)
            .await
    }

    async fn change(
        &self,
        actor: Actor<'_>,
        id: &str,
        change: &Change<'_>,
        files: Option<Files>,
    ) -> Result<SkillEntry, StoreError> {
        let known = self.get(actor.namespace, id)?;
        with_change_timeout(&known.name, Box::pin(self.change_now(actor, &known, id, change, files))).await
    }

    async fn change_now(
        &self,
        actor: Actor<'_>,
        known: &RegistryObject,
        id: &str,
        change: &Change<'_>,
        files: Option<Files>,
    ) -> Result<SkillEntry, StoreError> {
        let namespace = actor.namespace;
        let skills = Skills::of(&self.client, namespace);
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                tokio::time::sleep(PAUSE * 2_u32.pow(attempt - 1)).await;
            }
            let (main, before) = self.owned(&skills, &known.name, id).await?;
            let mut after = before.with(change(&before.entry)?);
            let mut made = Vec::new();
            if let Some(files) = &files {
                made = built(namespace, &after.entry, files.clone()).await?;
                let number = after.entry.latest().map_or(0, |version| version.number);
                after.shards.insert(number, made.len());
            }
            let Some(written) = self.commit(&main, actor, &before, &after, &made).await? else {
                continue;
            };
            self.note(&written);
            // If another writer has changed it meanwhile, that writer removes the old objects.
            if UploadedSkill::of(&written).as_ref() == Some(&after) {
                self.tidy(&written, &before, &after).await;
            }
            return Ok(after.entry);
        }
        Err(conflict(&known.name))
    }

    /// Writes a state of a skill over the one that was read, with the ConfigMaps that are new in it. `None`: another writer was
    /// faster, and nothing was changed.
    async fn commit(
        &self,
        main: &Skill,
        actor: Actor<'_>,
        before: &UploadedSkill,
        after: &UploadedSkill,
        made: &[ConfigMap],
    ) -> Result<Option<Skill>, StoreError> {
        let (name, namespace) = (&after.entry.name, main.metadata.namespace.clone().unwrap_or_default());
        let (contents, skills) = (
            Contents::of(&self.client, &namespace),
            Skills::of(&self.client, &namespace),
        );
        // Before anything is made: an entry that is too large is refused.
        let objects = after.objects()?;
        let prepared = async {
            contents.create(made, Some(main)).await?;
            skills.versions(name).await
        };
        let beside = prepared.await.map_err(|error| store_error(&error))?;
        let committed = async {
            skills.bring_before(main, before, &objects, &beside).await?;
            skills.replace_main(main, &objects, actor.username).await
        };
        let error = match committed.await {
            Ok(written) => return Ok(Some(written)),
            Err(error) => error,
        };
        let is_upload = !made.is_empty();
        match WriteOutcome::of(&skills, name, error, |there| there.has(after, is_upload)).await {
            WriteOutcome::Done(written) => Ok(Some(*written)),
            WriteOutcome::Refused(error, _) => {
                // What is left of it is swept.
                let _ = contents
                    .delete(made.iter().filter_map(|map| map.metadata.name.clone()))
                    .await;
                if is_conflict(&error) {
                    return Ok(None);
                }
                Err(store_error(&error))
            }
            WriteOutcome::Unknown(error) => Err(store_error(&error)),
        }
    }

    /// The object of a skill as it is now, if the registry may write it.
    async fn owned(&self, skills: &Skills, name: &str, id: &str) -> Result<(Skill, UploadedSkill), StoreError> {
        let main = skills.get(name).await.map_err(|error| {
            if is_missing(&error) {
                StoreError::NotFound
            } else {
                store_error(&error)
            }
        })?;
        let known = RegistryObject::of(&main).ok_or(StoreError::NotFound)?;
        if known.entry().is_none_or(|entry| entry.id != id) {
            return Err(StoreError::NotFound);
        }
        let by = match &known.kind {
            ObjectKind::Applied(applied) => Some(applied.by.clone()),
            ObjectKind::Uploaded(_) | ObjectKind::Version(..) => manager(&main.metadata),
        };
        match (UploadedSkill::of(&main), by) {
            (Some(uploaded), None) => Ok((main, uploaded)),
            (_, by) => Err(StoreError::Managed {
                name: name.to_owned(),
                by: by.unwrap_or_else(|| "others".to_owned()),
            }),
        }
    }

    /// What a change leaves beside the skill. What fails here is done by the sweep.
    async fn tidy(&self, main: &Skill, before: &UploadedSkill, after: &UploadedSkill) {
        let namespace = main.metadata.namespace.clone().unwrap_or_default();
        let (contents, skills) = (
            Contents::of(&self.client, &namespace),
            Skills::of(&self.client, &namespace),
        );
        let kept: Vec<String> = after.all_config_maps().collect();
        let tidied = async {
            let was_version = |number: u32| before.entry.version(number).is_some();
            skills
                .bring(main, after, |_, number| number.is_some_and(was_version))
                .await?;
            contents
                .delete(before.all_config_maps().filter(|name| !kept.contains(name)))
                .await
        };
        if let Err(error) = tidied.await {
            tracing::warn!(%error, "the objects of an earlier version could not be removed; the registry removes them at its next cleanup");
        }
    }

    /// Removes a skill with all versions: its object, with which Kubernetes removes what it owns.
    pub(super) async fn delete(&self, namespace: &str, id: &str) -> Result<SkillEntry, StoreError> {
        let known = self.get(namespace, id)?;
        with_change_timeout(&known.name.clone(), async {
            let skills = Skills::of(&self.client, namespace);
            for attempt in 0..ATTEMPTS {
                if attempt > 0 {
                    tokio::time::sleep(PAUSE * 2_u32.pow(attempt - 1)).await;
                }
                let (main, uploaded) = self.owned(&skills, &known.name, id).await?;
                match skills.delete(&main).await {
                    Err(error) if !is_gone(&skills, &main).await => {
                        if !is_conflict(&error) {
                            return Err(store_error(&error));
                        }
                    }
                    _ => {
                        self.note_gone(&main);
                        return Ok(uploaded.entry);
                    }
                }
            }
            Err(conflict(&known.name))
        })
        .await
    }
}

/// The ConfigMaps of the version that an entry has last. Hashing megabytes is beside the threads that serve requests.
async fn built(namespace: &str, entry: &SkillEntry, files: Files) -> Result<Vec<ConfigMap>, StoreError> {
    let version = entry.latest().cloned().ok_or(StoreError::NotFound)?;
    let (namespace, name) = (namespace.to_owned(), entry.name.clone());
    let work = tokio::task::spawn_blocking(move || config_maps(&namespace, &name, &version, &files));
    work.await.map_err(|error| StoreError::Failed(error.to_string()))
}

async fn with_change_timeout<T>(
    name: &str,
    work: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let done = tokio::time::timeout(CHANGE_TIMEOUT, work).await;
    done.unwrap_or_else(|_| {
        let text = format!(
            "the change of skill \"{name}\" took longer than {} s; read it again, then try again",
            CHANGE_TIMEOUT.as_secs()
        );
        Err(StoreError::Unavailable(text))
    })
}

fn taken(there: &RegistryObject) -> StoreError {
    let id = match &there.kind {
        ObjectKind::Version(of) => format!("it is version {} of \"{}\"", of.number, of.main),
        ObjectKind::Uploaded(_) | ObjectKind::Applied(_) => {
            there.entry().map(|entry| entry.id.clone()).unwrap_or_default()
        }
    };
    StoreError::NameTaken {
        name: there.name.clone(),
        id,
    }
}

fn conflict(name: &str) -> StoreError {
    StoreError::Conflict { name: name.to_owned() }
}
