//! Artifacts: what the ConfigMaps of a skill hold, read once, verified, and kept in a bounded cache.
//!
//! A summary (digest, settings, list of files) is kept for every revision in use ([`super::summaries`]); content is kept while there is room and
//! read again when it is needed. Content that somebody uses counts in the process's memory budget until the last user is done
//! with it, whether it is in the cache or not. A revision is known here only because a Skill's status named it ([`super::served_revision`]):
//! what merely bears a skill's labels is never read.

use std::collections::{HashMap, VecDeque};
use std::hash::{Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use k8s_openapi::api::core::v1::ConfigMap;
use knack_api::Skill;
use knack_api::skill_status::EarlierRevision;
use knack_hub_api::ContentFile;
use knack_hub_api::convert::overrides_to_line;
use knack_memory::{MemoryBudget, MemoryShare, OverBudget};
use knack_packages::stated;
use knack_skill::model::{Skill as LoadedSkill, SkillRef};
use kube::{Api, Client, Resource as _};

use super::artifact_reads::{ArtifactReads, READS_AT_ONCE};
use super::identity::reference;
use super::served_revision::{ServedRevision, UnfitRevision};
use super::summaries::{Summaries, Summary};
use crate::api_call::call;
use crate::cluster_reader::change_log::Change;
use crate::events::Events;
use crate::selection::declared_packages;
use crate::{artifact, cluster_reader::watch::Shared};

/// Share of the process's memory budget for content that is kept: an eighth, 100 skills of 300 KiB under a limit of 512
/// MiB. Content is needed twice: when gateways fetch it, and when code runs.
const CACHE_DIVISOR: usize = 8;
/// Locks for revisions that are being read for requests. Two revisions that share a lock are read one after the other, which is rare
/// with [`READS_AT_ONCE`] reads.
const STRIPES: usize = 8 * READS_AT_ONCE;
/// First pause before an artifact that could not be read is tried again; doubled up to [`RETRY_MAX`].
const RETRY_FIRST: Duration = Duration::from_millis(100);
/// Longest pause.
const RETRY_MAX: Duration = Duration::from_secs(10);
/// Reason of the Event of a Skill whose ConfigMaps differ from its status.
const SWAPPED: &str = "ArtifactSwapped";

/// A revision with its content.
#[derive(Debug)]
pub struct Content {
    /// Its share of the process's memory, held as long as its files are. `None`: there was no room, and it is not served.
    share: Option<Arc<MemoryShare>>,
    /// The description of the revision.
    pub summary: Arc<Summary>,
    /// The skill as every component checks it; `None` if this hub cannot read what a newer controller accepted.
    pub skill: Option<Arc<LoadedSkill>>,
    /// Files by path.
    pub files: std::collections::BTreeMap<String, knack_skill::model::SkillFile>,
}

impl Content {
    /// Its share of the process's memory, for those who use its files longer than this object.
    pub fn share(&self) -> Option<Arc<MemoryShare>> {
        self.share.clone()
    }

    /// The bytes of a file, which hold the share of the whole content until they are sent.
    pub fn file(self: &Arc<Self>, path: &str) -> Option<Bytes> {
        let bytes = Arc::clone(&self.files.get(path)?.bytes);
        Some(Bytes::from_owner(HeldFile {
            bytes,
            _content: Arc::clone(self),
        }))
    }
}

/// A file that is being sent.
struct HeldFile {
    bytes: Arc<[u8]>,
    _content: Arc<Content>,
}

impl AsRef<[u8]> for HeldFile {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Room for content.
struct ContentMemory {
    share: MemoryShare,
    is_cached: bool,
}

/// Why content cannot be had.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ArtifactError {
    /// There is no such revision of this skill (any more).
    #[error("no such content")]
    Unknown,
    /// The API server did not answer.
    #[error("{0}")]
    Api(String),
    /// The process holds too many bytes for others at this moment.
    #[error("not enough memory for the skill's content at this moment: {0}")]
    NoRoom(OverBudget),
    /// It is incomplete or damaged, or the hub may not read it.
    #[error("{0}")]
    Broken(String),
}

/// All artifacts.
#[derive(Clone)]
pub struct Artifacts {
    inner: Arc<Inner>,
}

impl std::fmt::Debug for Artifacts {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Artifacts").finish_non_exhaustive()
    }
}

struct Inner {
    client: Client,
    shared: Arc<Shared>,
    events: Events,
    /// All of the process; the cache is a part of it.
    memory: MemoryBudget,
    cache: MemoryBudget,
    reads: ArtifactReads,
    stripes: [tokio::sync::Mutex<()>; STRIPES],
    table: Mutex<Table>,
}

struct Table {
    summaries: Summaries,
    /// Revisions that are being read.
    reading: HashMap<SkillRef, Vec<RevisionRead>>,
    content: HashMap<(SkillRef, String), Arc<Content>>,
    /// Keys of `content`, least recently used first.
    order: VecDeque<(SkillRef, String)>,
}

/// A revision that is being read until it is known.
struct RevisionRead {
    wanted: ServedRevision,
    /// An answer of the API server showed that it cannot be read: another read is useless until an object changes.
    is_refused: bool,
}

impl Artifacts {
    /// An empty cache; `shared` is notified when a summary arrives.
    pub fn new(client: Client, shared: Arc<Shared>, events: Events, memory: &MemoryBudget) -> Self {
        Self {
            inner: Arc::new(Inner {
                client,
                shared,
                events,
                memory: memory.clone(),
                cache: memory.part(memory.total_bytes() / CACHE_DIVISOR),
                reads: ArtifactReads::within(memory),
                stripes: std::array::from_fn(|_| tokio::sync::Mutex::default()),
                table: Mutex::new(Table {
                    summaries: Summaries::within(memory),
                    reading: HashMap::new(),
                    content: HashMap::new(),
                    order: VecDeque::new(),
                }),
            }),
        }
    }

    /// Reads the artifact of a Skill's status in the background, unless it is known. The Skill is in the cluster state as it is
    /// given here, or newer.
    pub fn request_read(&self, skill: &Skill) {
        for wanted in ServedRevision::all(skill) {
            if self.lock().begin_read(&wanted) {
                let artifacts = self.clone();
                tokio::spawn(async move { artifacts.read_until_known(wanted).await });
            }
        }
    }

    async fn read_until_known(&self, wanted: ServedRevision) {
        let (mut pause, id) = (RETRY_FIRST, &wanted.skill);
        loop {
            // Another revision is wanted, or the skill is gone: this one is no longer used.
            if !self.is_in_service(&wanted) {
                break;
            }
            match self.read(&wanted).await {
                Ok(()) => break,
                Err(error) => {
                    tracing::warn!(skill = %id, revision = %wanted.revision, %error, "an artifact cannot be read; trying again");
                    if matches!(error, ArtifactError::Broken(_)) {
                        self.lock().refuse(&wanted);
                    }
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RETRY_MAX);
        }
        // In this order: every view that is asked for afterwards contains the result.
        self.inner.shared.write(|_| Some(Change::Skill(id.clone())));
        self.lock().end_read(&wanted);
        // It may have come back into service after it was given up and before it was removed from the list.
        let skill = self
            .inner
            .shared
            .read(|cluster_state| cluster_state.skills.get(&id.namespace, &id.name).cloned());
        if let Some(skill) = skill {
            self.request_read(&skill);
        }
    }

    fn is_in_service(&self, wanted: &ServedRevision) -> bool {
        self.in_service(&wanted.skill).contains(wanted)
    }

    /// All content of a skill's status.
    fn in_service(&self, id: &SkillRef) -> Vec<ServedRevision> {
        self.inner.shared.read(|cluster_state| {
            let skill = cluster_state.skills.get(&id.namespace, &id.name);
            skill.map(|skill| ServedRevision::all(skill)).unwrap_or_default()
        })
    }

    /// The current content of a skill's status.
    fn current(&self, id: &SkillRef) -> Option<ServedRevision> {
        self.inner.shared.read(|cluster_state| {
            let skill = cluster_state.skills.get(&id.namespace, &id.name)?;
            ServedRevision::of(skill)
        })
    }

    /// The revision that is in service, or the newest one of the same object while the one in service is being read. With
    /// `earlier` exactly that one.
    pub fn summary(&self, skill: &Skill, earlier: Option<&EarlierRevision>) -> Option<Arc<Summary>> {
        let wanted = match earlier {
            Some(earlier) => ServedRevision::of_earlier(skill, earlier)?,
            None => ServedRevision::of(skill)?,
        };
        let table = self.lock();
        let list = table.summaries.get(&wanted.skill)?;
        let exact = list.iter().find(|summary| summary.in_service == wanted);
        if earlier.is_some() {
            return exact.cloned();
        }
        let newest = || list.last().filter(|summary| summary.in_service.uid == wanted.uid);
        exact.or_else(newest).cloned()
    }

    /// Whether a skill has content in service of which none is known yet, as in a replica that has just started. The status decides,
    /// not what is being read: the reading begins only after the cluster state has the Skill.
    pub fn is_being_read(&self, id: &SkillRef) -> bool {
        let has_content = !self.in_service(id).is_empty();
        has_content && self.lock().summaries.get(id).is_none()
    }

    /// Whether no read in progress can still change what is served of a revision: it was read and the views know of it, it is out
    /// of service, or it cannot be read at present.
    pub fn is_settled(&self, wanted: &ServedRevision) -> bool {
        let is_decided = {
            let table = self.lock();
            match table.reading(wanted) {
                Some(reading) => reading.is_refused,
                None => table.knows(wanted),
            }
        };
        is_decided || !self.is_in_service(wanted)
    }

    /// The content of a digest of a skill: of the revision in service, or of one before it that this replica has seen in
    /// service.
    pub async fn content(&self, id: &SkillRef, digest: &str) -> Result<Arc<Content>, ArtifactError> {
        let current = self.current(id).ok_or(ArtifactError::Unknown)?;
        let summary = self.known(id, &current.uid, digest).ok_or(ArtifactError::Unknown)?;
        if let Some(content) = self.cached(&summary.in_service) {
            return Ok(content);
        }
        // One of several requests for the same content reads it.
        let _alone = self.stripe(&summary.in_service).lock().await;
        if let Some(content) = self.cached(&summary.in_service) {
            return Ok(content);
        }
        let permit = self.inner.reads.acquire(summary.in_service.config_maps.len()).await;
        let _permit = permit.map_err(ArtifactError::NoRoom)?;
        // Reserved before the read: bytes that wait for room would be in memory already.
        let room = self.room(summary.bytes()).map_err(ArtifactError::NoRoom)?;
        let content = self.read_now(&summary.in_service).await?;
        Ok(self.keep_in(Some(room), content))
    }

    /// The lock for a revision; several revisions share a lock of the table.
    fn stripe(&self, wanted: &ServedRevision) -> &tokio::sync::Mutex<()> {
        let mut hasher = std::hash::DefaultHasher::new();
        (&wanted.skill, &wanted.revision).hash(&mut hasher);
        // The remainder is below the number of locks.
        &self.inner.stripes[usize::try_from(hasher.finish() % STRIPES as u64).unwrap_or_default()]
    }

    /// Room for content: in the cache, which evicts the least recently used content that is not in use (evicting other content frees
    /// nothing); else in the rest of the budget, until its users are done.
    fn room(&self, bytes: usize) -> Result<ContentMemory, OverBudget> {
        let mut table = self.lock();
        while bytes <= self.inner.cache.total_bytes() {
            if let Ok(share) = self.inner.cache.try_take(bytes) {
                return Ok(ContentMemory { share, is_cached: true });
            }
            let Some(oldest) = table.oldest_unused() else {
                break;
            };
            table.drop_content(&oldest);
        }
        drop(table);
        let share = self.inner.memory.try_take(bytes)?;
        Ok(ContentMemory {
            share,
            is_cached: false,
        })
    }

    /// Forgets skills that are gone.
    pub fn prune(&self) {
        let alive = self.inner.shared.read(|cluster_state| {
            let ids: std::collections::HashSet<SkillRef> =
                cluster_state.skills.iter().map(|skill| reference(skill)).collect();
            ids
        });
        let mut table = self.lock();
        table.summaries.retain(|id| alive.contains(id));
        let gone: Vec<_> = table
            .order
            .iter()
            .filter(|(id, _)| !alive.contains(id))
            .cloned()
            .collect();
        for key in gone {
            table.drop_content(&key);
        }
    }

    /// What the summaries of all skills take, bytes.
    pub fn summary_bytes(&self) -> usize {
        self.lock().summaries.bytes()
    }

    fn known(&self, id: &SkillRef, uid: &str, digest: &str) -> Option<Arc<Summary>> {
        let table = self.lock();
        let list = table.summaries.get(id)?;
        let fits = |summary: &&Arc<Summary>| summary.in_service.digest == digest && summary.in_service.uid == uid;
        list.iter().rev().find(fits).cloned()
    }

    fn cached(&self, wanted: &ServedRevision) -> Option<Arc<Content>> {
        let key = (wanted.skill.clone(), wanted.revision.clone());
        let mut table = self.lock();
        let content = table.content.get(&key).cloned()?;
        if content.summary.in_service != *wanted {
            return None;
        }
        if let Some(at) = table.order.iter().position(|other| *other == key) {
            table.order.remove(at);
            table.order.push_back(key);
        }
        Some(content)
    }

    /// Keeps the summary of content, and the content itself if its room is in the cache.
    fn keep_in(&self, room: Option<ContentMemory>, mut content: Content) -> Arc<Content> {
        let of = &content.summary.in_service;
        let key = (of.skill.clone(), of.revision.clone());
        let in_service = self.in_service(&of.skill);
        let mut table = self.lock();
        table.summaries.keep(&content.summary, &in_service);
        table.drop_content(&key);
        let is_cached = room.as_ref().is_some_and(|room| room.is_cached);
        content.share = room.map(|room| Arc::new(room.share));
        let content = Arc::new(content);
        // Content that is not in the cache, since runs and readers hold the memory, is read again the next time.
        if is_cached {
            table.content.insert(key.clone(), Arc::clone(&content));
            table.order.push_back(key);
        }
        content
    }

    /// Reads a revision whose size is not known yet, and keeps its summary, and its content if there is room.
    async fn read(&self, wanted: &ServedRevision) -> Result<(), ArtifactError> {
        let permit = self.inner.reads.acquire(wanted.config_maps.len()).await;
        let _permit = permit.map_err(ArtifactError::NoRoom)?;
        let content = self.read_now(wanted).await?;
        self.keep_in(self.room(content.summary.bytes()).ok(), content);
        Ok(())
    }

    async fn read_now(&self, wanted: &ServedRevision) -> Result<Content, ArtifactError> {
        let api: Api<ConfigMap> = Api::namespaced(self.inner.client.clone(), &wanted.skill.namespace);
        // Most skills have one; the largest have ten.
        let calls = wanted.config_maps.iter().map(|map| {
            let what = || format!("get ConfigMap {}", map.name);
            call(what, api.get(&map.name))
        });
        let shards = futures::future::try_join_all(calls).await.map_err(|error| {
            let status = error.answer();
            if status.is_some_and(|status| status.is_not_found() || status.is_forbidden()) {
                ArtifactError::Broken(error.to_string())
            } else {
                ArtifactError::Api(error.to_string())
            }
        })?;
        // Hashing and reading 8 MiB is work for a processor, not for the threads that serve sockets.
        let revision = wanted.clone();
        let read = move || revision.read(&shards).map(|content| summarize(&revision, content));
        let read = tokio::task::spawn_blocking(read).await;
        match read.map_err(|error| ArtifactError::Broken(format!("reading failed: {error}")))? {
            Ok(content) => Ok(content),
            Err(UnfitRevision::Unreadable(why)) => Err(ArtifactError::Broken(why)),
            Err(UnfitRevision::Swapped(why)) => {
                self.publish_replaced(&wanted.skill, &why).await;
                Err(ArtifactError::Broken(why))
            }
        }
    }

    /// Publishes an Event on a skill whose content was replaced after it was judged.
    async fn publish_replaced(&self, id: &SkillRef, why: &str) {
        let object = self.inner.shared.read(|cluster_state| {
            let skill = cluster_state.skills.get(&id.namespace, &id.name)?;
            Some(skill.object_ref(&()))
        });
        if let Some(object) = object {
            let note = format!("{why}; it is not served. Delete it, and the controller delivers the content again");
            self.inner.events.warn(&object, SWAPPED, "Serve", &note).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.inner.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn knows(&self, wanted: &ServedRevision) -> bool {
        let known = self.summaries.get(&wanted.skill);
        known.is_some_and(|list| list.iter().any(|summary| summary.in_service == *wanted))
    }

    fn reading(&self, wanted: &ServedRevision) -> Option<&RevisionRead> {
        let list = self.reading.get(&wanted.skill)?;
        list.iter().find(|reading| reading.wanted == *wanted)
    }

    /// Marks a revision as being read. `false`: it is known, or is being read already.
    fn begin_read(&mut self, wanted: &ServedRevision) -> bool {
        let is_new = !self.knows(wanted) && self.reading(wanted).is_none();
        if is_new {
            self.reading
                .entry(wanted.skill.clone())
                .or_default()
                .push(RevisionRead {
                    wanted: wanted.clone(),
                    is_refused: false,
                });
        }
        is_new
    }

    fn refuse(&mut self, wanted: &ServedRevision) {
        let reading = self.reading.get_mut(&wanted.skill).into_iter().flatten();
        for reading in reading.filter(|reading| reading.wanted == *wanted) {
            reading.is_refused = true;
        }
    }

    fn end_read(&mut self, wanted: &ServedRevision) {
        if let Some(reading) = self.reading.get_mut(&wanted.skill) {
            reading.retain(|reading| reading.wanted != *wanted);
            if reading.is_empty() {
                self.reading.remove(&wanted.skill);
            }
        }
    }

    /// The least recently used content whose files nobody holds.
    fn oldest_unused(&self) -> Option<(SkillRef, String)> {
        let is_unused = |key: &&(SkillRef, String)| {
            self.content.get(*key).is_none_or(|content| {
                let holders = content.share.as_ref().map_or(1, Arc::strong_count);
                Arc::strong_count(content) == 1 && holders == 1
            })
        };
        self.order.iter().find(is_unused).cloned()
    }

    fn drop_content(&mut self, key: &(SkillRef, String)) {
        if self.content.remove(key).is_some() {
            self.order.retain(|other| other != key);
        }
    }
}

fn summarize(wanted: &ServedRevision, content: artifact::Content) -> Content {
    let files = content
        .files
        .iter()
        .map(|(path, file)| ContentFile {
            path: path.clone(),
            size: file.bytes.len() as u64,
            sha256: knack_skill::digest::sha256(&file.bytes),
            executable: file.executable,
        })
        .collect();
    let skill = knack_skill::load(content.to_load(&wanted.skill)).skill.map(Arc::new);
    // Imports of scripts are not read: no Python is parsed here.
    let declares = |skill: &Arc<LoadedSkill>| declared_packages(&stated(&skill.files, skill.requirements.as_ref()));
    let summary = Arc::new(Summary {
        in_service: wanted.clone(),
        packages: skill.as_ref().and_then(declares),
        config: skill
            .iter()
            .flat_map(|skill| &skill.tools)
            .filter(|tool| !tool.config.is_empty())
            .map(|tool| (tool.name.clone(), tool.config.clone()))
            .collect(),
        overrides: overrides_to_line(&content.overrides.to_load()),
        resources: content
            .overrides
            .sandbox
            .as_ref()
            .and_then(|sandbox| sandbox.resources.clone()),
        files,
    });
    Content {
        share: None,
        summary,
        skill,
        files: content.files,
    }
}
