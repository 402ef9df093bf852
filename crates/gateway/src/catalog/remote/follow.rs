//! Following a hub: connect, read, rebuild, and again.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use knack_execution::remote::jitter;
use knack_hub_api::client::{HubClient, HubError, LineReader};
use knack_hub_api::{CatalogLine, RefusalCode, RuntimeName};
use knack_memory::{MemoryBudget, MemoryShare, OverBudget};
use knack_serving::tasks::{TaskEnded, Tasks};
use knack_skill::catalog::SKILL_MD;
use knack_skill::model::SkillRef;
use tokio::sync::watch;

use super::age::CatalogAge;
use super::blobs::Blobs;
use super::content::{Content, MEMORY_RETRY_LAST, Missing};
use super::known::{KnownSource, origin};
use super::mirror::{LineEffect, Mirror};
use super::saved::{Identity, SavedLocation, Saver, Unsaved};
use super::serving::Serving;
use super::settings::settings_from_line;
use super::{names, objects};
use crate::catalog::{
    LastGood, LiveCatalog, RuntimeSettings, Selected, SkillSource, Snapshot, SourceReport, UnreadSources, assemble,
};

/// First wait before connecting again; doubled up to [`WAIT_MAX`].
const WAIT_FIRST: Duration = Duration::from_millis(100);
/// Longest pause between tries, and so the longest delay after a hub returned or a runtime was created.
const WAIT_MAX: Duration = Duration::from_secs(2);
/// Content that could not be had is requested again after this, doubled up to [`Missing::retry_last`]; the stream continues
/// meanwhile. Short: a replica of the hub that has not seen a Skill yet is behind the one that named it by milliseconds.
const CONTENT_RETRY_FIRST: Duration = Duration::from_millis(50);
/// Why there is no catalog, until there is memory for it.
const NO_MEMORY: &str = "the gateway does not have enough memory for it";

/// Keeps the catalog up to date; dropping it ends that.
#[derive(Debug)]
pub struct CatalogTasks {
    tasks: Tasks,
    restored: watch::Receiver<bool>,
    first: watch::Receiver<bool>,
    age: CatalogAge,
}

impl CatalogTasks {
    /// Resolves once a saved catalog is served, or there is none: within seconds, without the hub.
    pub(crate) async fn restored(&mut self) {
        // An error means that the task is gone.
        let _ = self.restored.wait_for(|restored| *restored).await;
    }

    /// Resolves with the first snapshot of the hub.
    pub(crate) async fn first_snapshot(&mut self) {
        // An error means that the task is gone, and no snapshot follows.
        let _ = self.first.wait_for(|first| *first).await;
    }

    /// Resolves when a task has ended: what is served would stay as it is.
    pub(crate) async fn ended(&mut self) -> TaskEnded {
        self.tasks.ended().await
    }

    /// The age of what is served.
    pub(crate) fn age(&self) -> CatalogAge {
        self.age.clone()
    }

    /// Becomes true with the first snapshot of the hub.
    pub fn first(&self) -> watch::Receiver<bool> {
        self.first.clone()
    }
}

/// Follows `runtime` at a hub, as the client's namespace sees it if the client has one. Contents of files are kept in
/// `blobs`, whose budget pays for the catalog too. With a `folder` the catalog is saved there, and one that was is served
/// until the hub answers. `on_change` gets every new snapshot.
pub fn follow(
    client: HubClient,
    runtime: RuntimeName,
    blobs: Blobs,
    folder: Option<PathBuf>,
    on_change: impl Fn(&Snapshot) + Send + Sync + 'static,
) -> (Arc<LiveCatalog>, CatalogTasks) {
    let settings = RuntimeSettings {
        name: runtime.clone(),
        ..RuntimeSettings::default()
    };
    let empty = Snapshot::without_catalog(settings, "the hub has not answered yet");
    let live = LiveCatalog::fixed(empty);
    let (first_sender, first) = watch::channel(false);
    let (restored_sender, restored) = watch::channel(false);
    let age = CatalogAge::starting();
    let serving = Arc::new(Serving {
        live: Arc::clone(&live),
        age: age.clone(),
        on_change: Box::new(on_change),
    });
    let follower = Follower {
        mirror: Mirror::for_namespace(client.client_namespace()),
        client,
        runtime,
        serving: Arc::clone(&serving),
        budget: blobs.budget().clone(),
        held: None,
        content: Content::new(blobs),
        sources: BTreeMap::new(),
        served: Vec::new(),
        is_short: false,
        last: LastGood::default(),
        saver: None,
        answered: false,
        first: first_sender,
        retry: None,
    };
    let mut tasks = Tasks::default();
    tasks.spawn("catalog", follower.run(folder, restored_sender));
    tasks.spawn("age of the catalog", async move { serving.watch_age().await });
    let following = CatalogTasks {
        tasks,
        restored,
        first,
        age,
    };
    (live, following)
}

struct Follower {
    client: HubClient,
    runtime: RuntimeName,
    serving: Arc<Serving>,
    mirror: Mirror,
    content: Content,
    /// The memory budget of the compiled catalog, without the contents of files.
    budget: MemoryBudget,
    held: Option<MemoryShare>,
    /// The sources of the last snapshot, so that a skill whose new content is missing stays as it was.
    sources: BTreeMap<SkillRef, KnownSource>,
    /// The sources that the last snapshot was made of: those whose memory is paid for.
    served: Vec<Arc<SkillSource>>,
    /// There is no memory for the present sources at this moment.
    is_short: bool,
    last: LastGood,
    /// Saves the catalog on disk, if a folder for it is configured.
    saver: Option<Saver>,
    /// A hub has sent a whole catalog: what is served is its, and not what was saved.
    answered: bool,
    first: watch::Sender<bool>,
    /// Something is missing, content or memory, and will be asked for again after this.
    retry: Option<Duration>,
}

impl Follower {
    async fn run(mut self, folder: Option<PathBuf>, restored: watch::Sender<bool>) {
        if let Some(folder) = folder {
            self.restore(folder).await;
        }
        restored.send_replace(true);
        let mut wait = WAIT_FIRST;
        let mut logged = String::new();
        loop {
            let path = format!("/v1/catalog?runtime={}&watch=true", self.runtime);
            let (error, was_served) = match self.client.hub().watch(&path).await {
                Ok(lines) => self.read(lines).await,
                Err(error) => (error, false),
            };
            if was_served {
                wait = WAIT_FIRST;
                logged.clear();
            }
            let client_namespace = self.client.client_namespace();
            // A hub that is away, or refuses, for days is logged once, not every two seconds.
            if logged == error.to_string() {
                tracing::debug!(runtime = %self.runtime, client_namespace, %error, "the catalog's stream ended; reconnecting");
            } else if matches!(&error, HubError::Refused(refusal) if refusal.code == RefusalCode::Forbidden) {
                tracing::warn!(runtime = %self.runtime, client_namespace, %error, "the hub refuses the catalog; retrying, and not logged again until it changes");
            } else {
                tracing::info!(runtime = %self.runtime, client_namespace, %error, "the catalog's stream ended; reconnecting");
            }
            logged = error.to_string();
            if let HubError::Refused(refusal) = &error {
                let seconds = refusal.retry_after_seconds.unwrap_or(0);
                wait = wait.max(Duration::from_secs(seconds)).min(WAIT_MAX);
                if !error.is_transient() {
                    self.serving
                        .explain_absence(&format!("the hub refuses it: {}", refusal.message));
                }
            }
            tokio::time::sleep(jitter(wait)).await;
            wait = (wait * 2).min(WAIT_MAX);
        }
    }

    /// Reads one stream to its end: the reason it ended, and whether it brought a whole catalog. Only after that does a line
    /// of it make the catalog young: a hub that greets and cannot be used, or ends each stream early, confirms nothing.
    async fn read(&mut self, mut lines: LineReader) -> (HubError, bool) {
        let mut is_served = false;
        loop {
            let line = match self.next_line(&mut lines).await {
                Ok(Some(line)) => line,
                Ok(None) => return (HubError::Broken("the hub ended the stream".to_owned()), is_served),
                Err(error) => return (error, is_served),
            };
            let taken = self.mirror.take(line);
            is_served |= taken == LineEffect::Complete;
            if is_served {
                self.serving.age.confirm();
            }
            match taken {
                LineEffect::NotedRun => {}
                LineEffect::Complete => {
                    let is_first = !std::mem::replace(&mut self.answered, true);
                    if self.mirror.take_changed() || is_first || self.retry.is_some() || !self.serving.has_catalog() {
                        self.rebuild().await;
                    }
                }
                LineEffect::Refused(why) => {
                    self.serving.explain_absence(&why);
                    return (HubError::Protocol(why), is_served);
                }
            }
        }
    }

    /// The next line of a stream; meanwhile what is missing is asked for again. It is waited for once, whatever comes in between:
    /// a hub that is silent is noticed also while something is missing for long.
    async fn next_line(&mut self, lines: &mut LineReader) -> Result<Option<CatalogLine>, HubError> {
        let mut line = pin!(lines.next_value::<CatalogLine>());
        while let Some(pause) = self.retry {
            tokio::select! {
                line = &mut line => return line,
                () = tokio::time::sleep(pause) => self.rebuild().await,
            }
        }
        line.await
    }

    /// Fetches what the mirror serves, and keeps nothing else. Returns what could not be fetched; of those the sources before stay.
    async fn read_sources(&mut self) -> Vec<SourceReport> {
        let digests = self.mirror.served().map(|(_, skill)| skill.digest.clone()).collect();
        let failed = self.content.fetch(&self.client, &self.runtime, digests).await;
        let last = failed.values().filter_map(Missing::retry_last).min();
        self.retry = last.map(|last| next_pause(self.retry, last));
        let mut reports = Vec::new();
        let mut known = std::mem::take(&mut self.sources);
        let mut ids = objects::ids_of(self.mirror.served());
        for (id, line) in self.mirror.served() {
            let (before, object) = (known.remove(id), ids.remove(id).unwrap_or_default());
            let now = if let Some(tree) = self.content.get(&line.digest) {
                Some(KnownSource::new(id, line, tree, object, before))
            } else {
                let why = failed.get(&line.digest).map(ToString::to_string).unwrap_or_default();
                let text = format!("skill {}: its files could not be fetched: {why}", id.name);
                reports.push(SourceReport::warning(origin(id), text));
                before.map(|before| before.with(object))
            };
            self.sources.extend(now.map(|now| (id.clone(), now)));
        }
        let in_use: HashSet<&str> = self.mirror.served().map(|(_, skill)| skill.digest.as_str()).collect();
        self.content.retain(|digest| in_use.contains(digest));
        reports
    }

    /// From the mirror to a snapshot.
    async fn rebuild(&mut self) {
        let Some(line) = self.mirror.settings().cloned() else {
            return;
        };
        self.serving
            .age
            .set_limit(Duration::from_secs(line.max_snapshot_age_seconds));
        let served = self.mirror.served();
        let created: Vec<(SkillRef, i64)> = served.map(|(id, line)| (id.clone(), line.created)).collect();
        let pause = self.retry;
        let reports = self.read_sources().await;
        let names = names::owners(created, self.client.client_namespace(), &self.runtime.namespace);
        let (settings, node) = settings_from_line(&self.runtime, &line, self.mirror.unserved());
        if !self.choose_served(pause) {
            self.serve(Snapshot::without_catalog(settings, NO_MEMORY));
            return;
        }
        let list = self.served.clone();
        // A fault of the compilation leaves the one before.
        let mut last = self.last.clone();
        // Judging and compiling thousands of skills takes longer than other requests on this thread should wait.
        let made = tokio::task::spawn_blocking(move || {
            let selected = Selected {
                sources: &list.iter().map(Arc::as_ref).collect::<Vec<_>>(),
                names: &names,
                unread: UnreadSources::default(),
            };
            let snapshot = assemble(&selected, settings, node, &mut last, reports);
            (snapshot, last)
        });
        match made.await {
            Ok((snapshot, last)) => {
                self.last = last;
                self.serve(snapshot);
                self.save();
            }
            Err(error) => tracing::error!(%error, "the catalog could not be built; please report this"),
        }
    }
}

impl Follower {
    /// Serves what was saved in `folder`, and saves there from now on.
    async fn restore(&mut self, folder: PathBuf) {
        let identity = Identity {
            runtime: self.runtime.clone(),
            hub: self.client.url().to_owned(),
            client_namespace: self.client.client_namespace().map(str::to_owned),
        };
        let place = SavedLocation { folder, identity };
        let (saver, restored) = Saver::open(place, self.content.blobs(), &self.serving.age).await;
        self.saver = Some(saver);
        let Some(restored) = restored else { return };
        tracing::info!(
            runtime = %self.runtime, age_seconds = restored.age.as_secs(),
            "found a saved catalog; it is served until the hub answers"
        );
        self.content.put(restored.trees);
        self.mirror.restore(restored.state);
        self.serving.age.restored(restored.age);
        self.rebuild().await;
    }

    fn serve(&self, snapshot: Snapshot) {
        self.serving.serve(snapshot);
        if self.answered {
            self.serving.age.confirmed();
            self.first.send_replace(true);
        }
    }

    /// Saves what the hub sent. A skill whose content is missing is left out, as it would be after a start with the hub.
    fn save(&self) {
        let Some(saver) = self.saver.as_ref().filter(|_| self.answered) else {
            return;
        };
        if let Some(state) = self.mirror.state(|line| self.content.get(&line.digest).is_some()) {
            let digests = state.skills.iter().map(|line| &line.digest);
            let trees = digests
                .filter_map(|digest| Some((digest.clone(), Arc::clone(self.content.get(digest)?))))
                .collect();
            saver.save(Unsaved { state, trees });
        }
    }
}

/// A compiled skill holds its text twice, as written and in the texts made of it, and its tools.
const COMPILED_TEXTS: usize = 2;
/// Bytes of a compiled skill beside its text: names, indices, schemas of its tools.
const COMPILED_BYTES: usize = 4 << 10;
/// Bytes of a file of a skill beside its path and its content: the hub's list of it, and its entries in the maps.
const FILE_BYTES: usize = 256;

impl Follower {
    /// Chooses the sources to serve: the present ones if there is memory for them. If there is none at this moment, those that were
    /// served and are there still stay as they were, and memory is asked for again. `false`: there is no catalog. `pause` is the one
    /// before this try.
    fn choose_served(&mut self, pause: Option<Duration>) -> bool {
        let Err(error) = self.pay_for_catalog() else {
            self.is_short = false;
            self.served = self.sources.values().map(|known| Arc::clone(&known.source)).collect();
            return true;
        };
        let (runtime, client_namespace) = (&self.runtime, self.client.client_namespace());
        if error.is_final() {
            tracing::warn!(%runtime, client_namespace, %error,
                "a catalog does not fit into memory; raise the memory limit of the gateway");
            self.served.clear();
            if let Some(saver) = &self.saver {
                saver.forget();
            }
            return false;
        }
        // It is asked again within seconds, which is no line for each time.
        if !std::mem::replace(&mut self.is_short, true) {
            tracing::warn!(%runtime, client_namespace, %error,
                "not enough memory for the changed catalog at the moment; the previous skills stay in use until there is; raise the memory limit of the gateway if this lasts");
        }
        self.retry.get_or_insert_with(|| next_pause(pause, MEMORY_RETRY_LAST));
        let present = &self.sources;
        self.served.retain(|source| present.contains_key(&source.id));
        !self.served.is_empty()
    }

    /// Takes from the budget what the catalog of the present sources will hold.
    fn pay_for_catalog(&mut self) -> Result<(), OverBudget> {
        let of = |source: &SkillSource| {
            let text = source.files.get(SKILL_MD).map_or(0, |file| file.bytes.len());
            let list: usize = source.files.keys().map(|path| path.len() + FILE_BYTES).sum();
            COMPILED_TEXTS * text + list + COMPILED_BYTES
        };
        let bytes = self.sources.values().map(|known| of(&known.source)).sum();
        match &mut self.held {
            Some(held) => {
                held.grow_to(bytes)?;
                held.shrink_to(bytes);
            }
            None => self.held = Some(self.budget.try_take(bytes)?),
        }
        Ok(())
    }
}

/// The pause after `before`, at most `last`.
fn next_pause(before: Option<Duration>, last: Duration) -> Duration {
    before.map_or(CONTENT_RETRY_FIRST, |before| (before * 2).min(last))
}

#[cfg(test)]
#[path = "follow_tests.rs"]
mod tests;
