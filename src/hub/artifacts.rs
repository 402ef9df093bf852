//! Artifacts: what the ConfigMaps of a skill hold, read once, verified, and kept in a bounded cache.
//!
//! A summary (digest, settings, list of files) is kept for every revision in use; content is kept while there is room and
//! read again when it is needed.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use knack_skill::model::{Skill as LoadedSkill, SkillRef};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::api::shared::Resources;
use crate::api::vocabulary::{ANNOTATION_DIGEST, LABEL_REVISION, LABEL_SKILL, LABEL_SKILL_NAMESPACE};
use crate::api::{Skill, vocabulary};
use crate::catalog::remote::convert::overrides_to_line;
use crate::hub_api::{ContentFile, Overrides};
use crate::{artifact, hub::watch::Shared};

/// Bytes of content kept: 400 skills of 300 KiB. Content is needed twice: when gateways fetch it, and when code runs.
const CACHE_BYTES: usize = 128 << 20;
/// Superseded revisions of a skill whose summary stays: requests in flight are pinned to what they began with.
const OLD_SUMMARIES: usize = 4;
/// Reads at once: the client is HTTP/1.1, so each is a connection.
const READS_AT_ONCE: usize = 32;
/// One call to the API server.
const CALL_TIMEOUT: Duration = Duration::from_secs(15);
/// First pause before an artifact that could not be read is tried again; doubled up to [`RETRY_MAX`].
const RETRY_FIRST: Duration = Duration::from_millis(100);
/// Longest pause.
const RETRY_MAX: Duration = Duration::from_secs(10);
/// How long an unknown digest is remembered as unknown, so that asking for it does not ask the API server every time.
const UNKNOWN_FOR: Duration = Duration::from_secs(5);
/// Unknown digests remembered.
const UNKNOWN_MAX: usize = 10_000;

/// What is known of one revision of a skill.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// The skill.
    pub skill: SkillRef,
    /// Short name of content and settings.
    pub revision: String,
    /// Hex SHA-256 of the tree.
    pub digest: String,
    /// What the spec set when this content was judged.
    pub overrides: Overrides,
    /// Resources that the spec asked for its pods.
    pub resources: Option<Resources>,
    /// Every file.
    pub files: Vec<ContentFile>,
    /// Names of the ConfigMaps.
    config_maps: Vec<String>,
}

/// A revision with its content.
#[derive(Debug)]
pub struct Content {
    /// What it is.
    pub summary: Arc<Summary>,
    /// The skill as it is judged everywhere; `None` if this hub cannot read what a newer controller accepted.
    pub skill: Option<Arc<LoadedSkill>>,
    /// Files by path.
    pub files: std::collections::BTreeMap<String, knack_skill::model::SkillFile>,
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
    /// It is incomplete or damaged.
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
    reads: Semaphore,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    /// Newest last.
    summaries: HashMap<SkillRef, Vec<Arc<Summary>>>,
    /// Revisions that are being read.
    reading: HashMap<SkillRef, String>,
    content: HashMap<(SkillRef, String), Arc<Content>>,
    /// Keys of `content`, least recently used first.
    order: VecDeque<(SkillRef, String)>,
    bytes: usize,
    unknown: HashMap<(SkillRef, String), Instant>,
}

impl Artifacts {
    /// An empty cache; `shared` is told when a summary comes.
    pub fn new(client: Client, shared: Arc<Shared>) -> Self {
        Self {
            inner: Arc::new(Inner {
                client,
                shared,
                reads: Semaphore::new(READS_AT_ONCE),
                table: Mutex::default(),
            }),
        }
    }

    /// Reads the artifact of a Skill's status in the background, unless it is known.
    pub fn want(&self, skill: &Skill) {
        let Some((id, revision, names)) = in_service(skill) else {
            return;
        };
        {
            let mut table = self.lock();
            let known = table
                .summaries
                .get(&id)
                .is_some_and(|list| list.iter().any(|summary| summary.revision == revision));
            if known || table.reading.get(&id) == Some(&revision) {
                return;
            }
            table.reading.insert(id.clone(), revision.clone());
        }
        let artifacts = self.clone();
        tokio::spawn(async move { artifacts.read_until_known(id, revision, names).await });
    }

    async fn read_until_known(&self, id: SkillRef, revision: String, names: Vec<String>) {
        let mut pause = RETRY_FIRST;
        loop {
            // A newer revision is wanted, or the skill is gone: this one is nobody's any more.
            if self.lock().reading.get(&id) != Some(&revision) || !self.is_in_service(&id, &revision) {
                break;
            }
            match self.read(&id, &revision, &names).await {
                Ok(content) => {
                    self.keep(content);
                    break;
                }
                Err(error) => {
                    tracing::warn!(skill = %name(&id), %revision, %error, "an artifact cannot be read; trying again");
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RETRY_MAX);
        }
        let mut table = self.lock();
        if table.reading.get(&id) == Some(&revision) {
            table.reading.remove(&id);
        }
        drop(table);
        self.inner.shared.touch();
    }

    fn is_in_service(&self, id: &SkillRef, revision: &str) -> bool {
        // The event that asked for this revision may not be in the world yet.
        self.inner.shared.read(|world| {
            world
                .skills
                .get(&id.namespace, &id.name)
                .and_then(|skill| in_service(skill))
                .is_none_or(|(_, current, _)| current == revision)
        })
    }

    /// The revision that is in service, or the newest one that is known while the one in service is being read.
    pub fn summary(&self, id: &SkillRef, revision: &str) -> Option<Arc<Summary>> {
        let table = self.lock();
        let list = table.summaries.get(id)?;
        let exact = list.iter().find(|summary| summary.revision == revision);
        exact.or_else(|| list.last()).cloned()
    }

    /// Whether a skill's content is being read and none of it is known yet: so it is in a replica that has just started.
    pub fn is_being_read(&self, id: &SkillRef) -> bool {
        let table = self.lock();
        table.reading.contains_key(id) && !table.summaries.contains_key(id)
    }

    /// The content of a digest of a skill: the revision in service, one before it, or one that is still in the cluster.
    pub async fn content(&self, id: &SkillRef, digest: &str) -> Result<Arc<Content>, ArtifactError> {
        if let Some(summary) = self.known(id, digest) {
            if let Some(content) = self.cached(id, &summary.revision) {
                return Ok(content);
            }
            let content = self.read(id, &summary.revision, &summary.config_maps).await?;
            return Ok(self.keep(content));
        }
        let key = (id.clone(), digest.to_owned());
        if let Some(since) = self.lock().unknown.get(&key)
            && since.elapsed() < UNKNOWN_FOR
        {
            return Err(ArtifactError::Unknown);
        }
        if let Some((revision, names)) = self.find(id, digest).await? {
            let content = self.read(id, &revision, &names).await?;
            return Ok(self.keep(content));
        }
        let mut table = self.lock();
        if table.unknown.len() >= UNKNOWN_MAX {
            table.unknown.retain(|_, since| since.elapsed() < UNKNOWN_FOR);
            if table.unknown.len() >= UNKNOWN_MAX {
                table.unknown.clear();
            }
        }
        table.unknown.insert(key, Instant::now());
        Err(ArtifactError::Unknown)
    }

    /// Forgets skills that are gone.
    pub fn prune(&self) {
        let alive = self.inner.shared.read(|world| {
            let ids: std::collections::HashSet<SkillRef> = world.skills.iter().map(|skill| reference(skill)).collect();
            ids
        });
        let mut table = self.lock();
        table.summaries.retain(|id, _| alive.contains(id));
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

    fn known(&self, id: &SkillRef, digest: &str) -> Option<Arc<Summary>> {
        let table = self.lock();
        let list = table.summaries.get(id)?;
        list.iter().rev().find(|summary| summary.digest == digest).cloned()
    }

    fn cached(&self, id: &SkillRef, revision: &str) -> Option<Arc<Content>> {
        let key = (id.clone(), revision.to_owned());
        let mut table = self.lock();
        let content = table.content.get(&key).cloned()?;
        if let Some(at) = table.order.iter().position(|other| *other == key) {
            table.order.remove(at);
            table.order.push_back(key);
        }
        Some(content)
    }

    fn keep(&self, content: Content) -> Arc<Content> {
        let content = Arc::new(content);
        let id = content.summary.skill.clone();
        let key = (id.clone(), content.summary.revision.clone());
        let mut table = self.lock();
        let list = table.summaries.entry(id).or_default();
        if !list.iter().any(|summary| summary.revision == key.1) {
            list.push(Arc::clone(&content.summary));
            let excess = list.len().saturating_sub(OLD_SUMMARIES + 1);
            list.drain(..excess);
        }
        table.drop_content(&key);
        table.bytes += size(&content);
        table.content.insert(key.clone(), Arc::clone(&content));
        table.order.push_back(key);
        while table.bytes > CACHE_BYTES {
            let Some(oldest) = table.order.front().cloned() else {
                break;
            };
            table.drop_content(&oldest);
        }
        content
    }

    async fn read(&self, id: &SkillRef, revision: &str, names: &[String]) -> Result<Content, ArtifactError> {
        let _turn = self
            .inner
            .reads
            .acquire()
            .await
            .map_err(|_| ArtifactError::Api("the hub is stopping".to_owned()))?;
        let api: Api<ConfigMap> = Api::namespaced(self.inner.client.clone(), &id.namespace);
        // Most skills have one; the largest have ten.
        let shards = futures::future::try_join_all(names.iter().map(|name| timed(api.get(name)))).await?;
        let content = artifact::read(&shards).map_err(|error| ArtifactError::Broken(error.to_string()))?;
        Ok(judge(id, revision, names, content))
    }

    /// An artifact that is not in service any more, by its digest: its revision and its ConfigMaps.
    async fn find(&self, id: &SkillRef, digest: &str) -> Result<Option<(String, Vec<String>)>, ArtifactError> {
        let api: Api<ConfigMap> = Api::namespaced(self.inner.client.clone(), &id.namespace);
        let labels = format!("{LABEL_SKILL}={},{LABEL_SKILL_NAMESPACE}={}", id.name, id.namespace);
        let found = timed(api.list_metadata(&ListParams::default().labels(&labels))).await?;
        let of_digest = found.items.iter().filter(|map| {
            map.annotations()
                .get(ANNOTATION_DIGEST)
                .is_some_and(|other| other == digest)
        });
        let mut revisions: HashMap<String, Vec<String>> = HashMap::new();
        for map in of_digest {
            if let Some(revision) = map.labels().get(LABEL_REVISION) {
                revisions.entry(revision.clone()).or_default().push(map.name_any());
            }
        }
        Ok(revisions.into_iter().next())
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.inner.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn drop_content(&mut self, key: &(SkillRef, String)) {
        if let Some(content) = self.content.remove(key) {
            self.bytes -= size(&content);
            self.order.retain(|other| other != key);
        }
    }
}

fn judge(id: &SkillRef, revision: &str, names: &[String], content: artifact::Content) -> Content {
    let files = content
        .files
        .iter()
        .map(|(path, file)| ContentFile {
            path: path.clone(),
            size: file.bytes.len() as u64,
            sha256: crate::digest::sha256(&file.bytes),
            executable: file.executable,
        })
        .collect();
    let summary = Arc::new(Summary {
        skill: id.clone(),
        revision: revision.to_owned(),
        digest: content.digest.clone(),
        overrides: overrides_to_line(&content.overrides.to_load()),
        resources: content
            .overrides
            .sandbox
            .as_ref()
            .and_then(|sandbox| sandbox.resources.clone()),
        files,
        config_maps: names.to_vec(),
    });
    let skill = knack_skill::load(content.to_load(id)).skill.map(Arc::new);
    Content {
        summary,
        skill,
        files: content.files,
    }
}

/// The skill's identity, and the revision that its status says is in service, with its ConfigMaps.
fn in_service(skill: &Skill) -> Option<(SkillRef, String, Vec<String>)> {
    let status = skill.status.as_ref()?;
    let artifact = status.artifact.as_ref()?;
    let names = status.config_maps.iter().map(|map| map.name.clone()).collect();
    Some((reference(skill), artifact.revision.clone(), names))
}

/// The identity of a Skill object.
pub fn reference(skill: &Skill) -> SkillRef {
    SkillRef {
        namespace: skill
            .namespace()
            .unwrap_or_else(|| vocabulary::DEFAULT_NAMESPACE.to_owned()),
        name: skill.name_any(),
    }
}

fn name(id: &SkillRef) -> String {
    format!("{}/{}", id.namespace, id.name)
}

fn size(content: &Content) -> usize {
    content.files.values().map(|file| file.bytes.len()).sum()
}

async fn timed<T>(call: impl Future<Output = Result<T, kube::Error>>) -> Result<T, ArtifactError> {
    match tokio::time::timeout(CALL_TIMEOUT, call).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(ArtifactError::Api(error.to_string())),
        Err(_) => Err(ArtifactError::Api(format!(
            "the API server did not answer within {} s",
            CALL_TIMEOUT.as_secs()
        ))),
    }
}
