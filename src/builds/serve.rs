//! The process: from watched objects to builder Jobs, and from their results to the statuses for controller and hub.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use knack_api::{Skill, SkillRuntime};
use knack_hub_api::RuntimeName;
use knack_memory::MemoryBudget;
use knack_packages::environment::Input;
use knack_packages::{EnvironmentKey, EnvironmentStatuses, State, given, stated};
use knack_serving::probes;
use knack_vocabulary::{FIELD_MANAGER_PACKAGES, ROLE_ENVIRONMENTS};
use kube::{Client, Resource as _, ResourceExt as _};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::admitted::{Admitted, RefusedRole, held_back};
use super::builders::{Builders, Builds, refusal};
use super::decide::{Build, BuildFacts, BuildPlan, OTHERS_FIRST, Refusal, StartOrder, not_started};
use super::job::BuilderSettings;
use super::metrics::BuildMetrics;
use super::outcome::Outcome;
use super::published::{Published, PublishedStatuses};
use super::requests::Requests;
use super::unread::Unread;
use super::wanted::{Asker, NeededEnvironment, NeededEnvironments, wanted};
use crate::api_call::CallError;
use crate::cluster_reader::watch::{self, Shared, WatchSettings};
use crate::events::Events;
use crate::hub::artifacts::Artifacts;
use crate::selection::{NamespaceLabels, Scope};
use crate::tasks::TaskEnded;

/// Changes come in bursts: one reconcile for all of them.
const SETTLE: Duration = Duration::from_millis(250);
/// How often Jobs are read while some run. A build takes seconds, and a skill waits for it.
const INTERVAL_BUSY: Duration = Duration::from_secs(1);
/// How often all is reconciled without a change: retries come due.
const INTERVAL_IDLE: Duration = Duration::from_secs(30);
/// Pause after the API server failed.
const PAUSE: Duration = Duration::from_secs(5);

/// Reason of the Event of a Skill whose environment is there.
const EVENT_READY: &str = "PackagesReady";
/// Reason of the Event of a Skill whose environment cannot be made.
const EVENT_FAILED: &str = "PackagesFailed";
/// Action of both.
const EVENT_ACTION: &str = "Build";
/// Most skills of an environment that get an Event of it: the standard environment of a runtime can be that of hundreds.
const EVENTS_MAX: usize = 20;
/// Skills whose content is read for one build at one reconcile, at most: where the API server is slow each takes seconds, in which no other
/// build starts. The next reconcile tries the next ones.
const READS_PER_BUILD: usize = 2;
/// The message of a build that waits since none of them can be read. It is in the status of every skill that needs the environment, also of
/// other tenants, so it names no skill and no object of one; the log has the names and the reasons.
const CONTENT_AWAITED: &str = "the build waits for the content of a skill";

/// The settings of the process.
#[derive(Debug, Clone)]
pub struct ServeSettings {
    /// The watched objects.
    pub watching: WatchSettings,
    /// The cluster default.
    pub default_runtime: Option<RuntimeName>,
    /// Image of runtimes that name none.
    pub default_image: Option<String>,
    /// Whether images may go without a digest.
    pub allow_image_tags: bool,
    /// Builders.
    pub builder: BuilderSettings,
}

/// Serves until stopped.
pub async fn serve(
    client: Client,
    settings: ServeSettings,
    listener: TcpListener,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let shared = Arc::new(Shared::default());
    let events = Events::new(client.clone(), FIELD_MANAGER_PACKAGES);
    let memory = MemoryBudget::of_process();
    let artifacts = Artifacts::new(client.clone(), Arc::clone(&shared), events.clone(), &memory);
    let on_skill = {
        let artifacts = artifacts.clone();
        move |skill: &Skill| {
            // Only of skills that declare packages anything is read.
            if skill.status.as_ref().is_some_and(|status| status.packages.is_some()) {
                artifacts.request_read(skill);
            }
        }
    };
    let mut watches = watch::spawn(&client, &settings.watching, &shared, on_skill);
    let published = Published::new(&client, &settings.watching.namespace);
    published.follow(&mut watches);
    let metrics = Arc::new(BuildMetrics::default());
    let mut probing = tokio::spawn(probes::serve(
        metrics.clone(),
        axum::Router::new(),
        listener,
        stop.clone().cancelled_owned(),
    ));
    let server = Server {
        builders: Builders::new(&client, settings.builder.clone()),
        published,
        lists: watch::lists(&settings.watching),
        settings,
        shared,
        artifacts,
        events,
        metrics,
    };
    tokio::select! {
        // The others may end because of it.
        biased;
        () = stop.cancelled() => {}
        () = server.run() => {}
        // Builds would go on for what was seen last.
        ended = watches.ended() => return Err(ended.into()),
        ended = &mut probing => return Err(TaskEnded::new("health and metrics", ended).into()),
    }
    let _ = probing.await;
    Ok(())
}

/// State that is kept from one reconcile to the next.
#[derive(Default)]
struct BuildState {
    /// What was written last. `None`: nothing was read yet.
    written: Option<PublishedStatuses>,
    requests: Requests,
    start_order: StartOrder,
    unread: Unread,
}

struct Server {
    builders: Builders,
    published: Published,
    lists: usize,
    settings: ServeSettings,
    shared: Arc<Shared>,
    artifacts: Artifacts,
    events: Events,
    metrics: Arc<BuildMetrics>,
}

impl Server {
    async fn run(&self) {
        let mut changes = self.shared.changes();
        let (mut statuses, mut rules) = self.published.changes();
        let mut past = BuildState::default();
        loop {
            changes.mark_unchanged();
            statuses.mark_unchanged();
            rules.mark_unchanged();
            let pause = match self.reconcile(&mut past).await {
                Ok(true) => INTERVAL_BUSY,
                Ok(false) => INTERVAL_IDLE,
                Err(error) => {
                    tracing::warn!(%error, "environments could not be updated");
                    PAUSE
                }
            };
            // A sender lives as long as the watches, which never end.
            let changed = async {
                tokio::select! {
                    _ = changes.changed() => {}
                    _ = statuses.changed() => {}
                    _ = rules.changed() => {}
                }
            };
            let _ = tokio::time::timeout(pause, changed).await;
            tokio::time::sleep(SETTLE).await;
        }
    }

    /// Compares environments with what the cluster asks for, once, and acts on the difference. `true`: builders run.
    async fn reconcile(&self, past: &mut BuildState) -> Result<bool, CallError> {
        if let Some(what) = self.shared.read(|cluster_state| cluster_state.waiting_for(self.lists)) {
            tracing::debug!(what, "waiting for the first list of objects");
            return Ok(true);
        }
        let (Some(found), Some(_)) = (self.published.lines(), self.published.rules()) else {
            tracing::debug!("waiting for the first list of what this process writes");
            return Ok(true);
        };
        let before = past
            .written
            .take()
            .unwrap_or_else(|| PublishedStatuses::read(found.as_ref().as_ref()));
        let before = past.written.insert(before).clone();
        let builds = self.builders.found().await?;
        let wanted = self.wanted();
        let now = k8s_openapi::jiff::Timestamp::now().as_second();
        past.unread.keep(&wanted);
        self.complete(&builds.waiting, &wanted, past, now).await;
        let facts = BuildFacts {
            wanted: &wanted,
            known: &before.statuses,
            builds: &builds.by_key,
            unpulled: &self.unpulled(),
            now,
        };
        let plan = facts.decide(&past.start_order, &past.unread);
        // First what has happened: nothing that is refused to a new build may keep it from being known. The statuses go before the
        // Jobs, whose outcomes would be lost, and these before new ones, which share their quota.
        let happened = plan.before_starts(&before.statuses);
        let (mut written, mut refused) = self.status(&facts, &before, happened).await?;
        past.written = Some(written.clone());
        self.remove(&plan, &builds, &written.statuses).await;
        if !plan.start.is_empty() {
            let statuses = self.start_all(&facts, &plan, past).await;
            (written, refused) = self.status(&facts, &written, statuses).await?;
        }
        let is_busy = written.statuses.0.values().any(|status| status.state.is_pending())
            || builds.by_key.values().any(|build| *build == Build::Running);
        past.written = Some(written);
        refused.map_or(Ok(is_busy), Err)
    }

    /// Makes statuses known: to the hub's rights, to controller and hub unless they are already written, and in log, Events and metrics what
    /// `last` did not have. Where the API server refuses the hub's rights, all else is known nevertheless; the error beside it says so.
    async fn status(
        &self,
        facts: &BuildFacts<'_>,
        last: &PublishedStatuses,
        statuses: EnvironmentStatuses,
    ) -> Result<(PublishedStatuses, Option<CallError>), CallError> {
        let marks = self.settings.builder.marks();
        let is_taken = |mark: &str| marks.as_ref().is_none_or(|marks| marks.contains(mark));
        let Admitted { images, left_out } = Admitted::of(facts, &statuses, &last.admitted, is_taken);
        // Before the hub sees them: admission would refuse the pods that it then creates.
        let refused = match self.published.admit(&images).await {
            Ok(()) => None,
            // Nothing else would be written either.
            Err(error) if error.answer().is_none() => return Err(error),
            Err(error) => Some(error),
        };
        let mut next = PublishedStatuses {
            statuses,
            admitted: images,
        };
        if let Some(answer) = refused.as_ref().and_then(CallError::answer) {
            let current_rules = self.published.rules();
            let why = format!(
                "the packages are installed, but the Role {ROLE_ENVIRONMENTS}, which lets the hub run them, was refused: {}",
                answer.message
            );
            let role = RefusedRole {
                current_rules: current_rules.as_deref().and_then(Option::as_deref).unwrap_or_default(),
                why: &why,
            };
            next = held_back(facts, &next, &last.statuses, &role);
        }
        self.published.write_statuses(&next).await?;
        if *last != next {
            for (namespace, count) in &left_out {
                tracing::warn!(
                    namespace,
                    count,
                    "SkillRuntimes of a namespace need more environments than there is room for; runs in them are refused"
                );
            }
        }
        self.report(&last.statuses, &next.statuses, facts.wanted).await;
        self.metrics.know(&next.statuses);
        Ok((next, refused))
    }

    /// Starts the builds of a plan. Returns the statuses: of those that could not be started, why.
    async fn start_all(&self, facts: &BuildFacts<'_>, plan: &BuildPlan, past: &mut BuildState) -> EnvironmentStatuses {
        let mut statuses = plan.statuses.clone();
        let mut waits = None;
        for key in &plan.start {
            let (Some(asked), Some(namespace)) = (facts.wanted.get(key), plan.turns.get(key)) else {
                continue;
            };
            let started = match &waits {
                None => self.start(key, asked, past, facts.now).await,
                Some(waits) => Err(Refusal::clone(waits)),
            };
            let Err(refusal) = started else {
                past.start_order.take(namespace);
                continue;
            };
            match &refusal {
                Refusal::Lasting(outcome) => {
                    tracing::warn!(key = key.as_str(), message = %outcome.message, "a build could not be started");
                    self.metrics.built(outcome.state, None);
                    past.start_order.take(namespace);
                }
                Refusal::Unread(why) => {
                    tracing::debug!(key = key.as_str(), why, "a build could not be started yet");
                    past.start_order.take(namespace);
                }
                // So would the others be.
                Refusal::Passing(why) if waits.is_none() => {
                    tracing::info!(key = key.as_str(), why, "builds are waiting");
                    waits = Some(Refusal::Passing(OTHERS_FIRST.to_owned()));
                }
                Refusal::Passing(_) => {}
            }
            let status = not_started(facts.known.get(key), &refusal, facts.now);
            statuses.0.insert(key.clone(), status);
        }
        statuses
    }

    /// Removes Jobs that have ended, whose outcomes are `written`. One that stays is removed at the next reconcile.
    async fn remove(&self, plan: &BuildPlan, builds: &Builds, written: &EnvironmentStatuses) {
        for key in &plan.remove {
            // For an environment that the hub may not run yet, the Job is the only record.
            let image =
                |statuses: &EnvironmentStatuses| statuses.get(key).and_then(|status| status.environment.clone());
            if image(&plan.statuses).is_some_and(|made| image(written) != Some(made)) {
                continue;
            }
            let Some(uid) = builds.ended.get(key) else { continue };
            if let Err(error) = self.builders.remove(key, uid).await {
                tracing::warn!(key = key.as_str(), %error, "the Job of a finished build could not be deleted; retrying");
                continue;
            }
            if let Some(Build::Ended(outcome)) = builds.by_key.get(key) {
                if outcome.state != State::Ready && plan.statuses.get(key).is_some_and(|now| now.state == State::Ready)
                {
                    let (state, message) = (outcome.state, &outcome.message);
                    tracing::warn!(key = key.as_str(), %state, message, "an environment whose image cannot be pulled could not be rebuilt");
                }
                self.metrics.built(outcome.state, builds.seconds.get(key).copied());
            }
        }
    }

    /// Creates the missing requests of Jobs; see [`Requests`].
    async fn complete(
        &self,
        waiting: &BTreeMap<EnvironmentKey, String>,
        wanted: &NeededEnvironments,
        past: &mut BuildState,
        now: i64,
    ) {
        for (key, uid) in past.requests.due(waiting, Instant::now()) {
            let Some(wanted) = wanted.get(key) else { continue };
            let Ok(input) = self.input(wanted, &mut past.unread, now).await else {
                tracing::warn!(
                    key = key.as_str(),
                    why = CONTENT_AWAITED,
                    "a builder Job has no build request; retrying"
                );
                continue;
            };
            let bytes = match self.builders.packed(input, wanted) {
                Ok(bytes) => bytes,
                Err(why) => {
                    tracing::warn!(
                        key = key.as_str(),
                        why,
                        "a builder Job has no build request, and gets none"
                    );
                    continue;
                }
            };
            match self.builders.request(key, uid, bytes).await {
                Ok(true) => tracing::info!(key = key.as_str(), "created the missing build request"),
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(key = key.as_str(), %error, "a builder Job has no build request; retrying");
                }
            }
        }
    }

    fn wanted(&self) -> NeededEnvironments {
        let (skills, runtimes, namespaces) = self.shared.read(|cluster_state| {
            let skills: Vec<Arc<Skill>> = cluster_state.skills.iter().cloned().collect();
            let runtimes: Vec<Arc<SkillRuntime>> = cluster_state.runtimes.iter().cloned().collect();
            (skills, runtimes, Arc::clone(&cluster_state.namespaces))
        });
        let nothing = EnvironmentStatuses::default();
        let skills: Vec<&Skill> = skills.iter().map(|skill| &**skill).collect();
        let scoped = runtimes
            .iter()
            .map(|runtime| (&**runtime, self.scope(runtime, &namespaces, &nothing)));
        wanted(scoped, &skills, |image| self.settings.builder.takes(image))
    }

    /// The images of environments that could not be pulled, by the word of the hub, with the time of the last failure.
    fn unpulled(&self) -> BTreeMap<String, i64> {
        self.shared.read(|cluster_state| {
            let said = cluster_state.runtimes.iter().filter_map(|runtime| {
                let unpulled = runtime.status.as_ref()?.unpulled_environment.as_ref()?;
                Some((unpulled.image.clone(), unpulled.failed_at.0.as_second()))
            });
            latest(said)
        })
    }

    fn scope<'a>(
        &'a self,
        runtime: &SkillRuntime,
        namespaces: &'a NamespaceLabels,
        environments: &'a EnvironmentStatuses,
    ) -> Scope<'a> {
        let own = RuntimeName::new(runtime.namespace().unwrap_or_default(), runtime.name_any());
        Scope {
            cluster_default: self.settings.default_runtime.as_ref() == Some(&own),
            namespaces,
            default_image: self.settings.default_image.as_deref(),
            allow_image_tags: self.settings.allow_image_tags,
            environments: Some(environments),
        }
    }

    /// The input of a build, from the first skill that needs it whose content can be read. Errors: there is none at this moment; which
    /// skill and why is said where its namespace alone reads the status.
    async fn input(&self, wanted: &NeededEnvironment, unread: &mut Unread, now: i64) -> Result<Input, String> {
        // No content says so of a skill that declares nothing.
        let standard = given::standard_environment().map(|declared| Input::of(&declared));
        if let Some(standard) = standard.filter(|input| input.digest() == wanted.digest) {
            return Ok(standard);
        }
        let due = wanted.sources().filter(|asker| !unread.waits(asker, now));
        let due: Vec<&Asker> = due.take(READS_PER_BUILD).collect();
        let mut last = None;
        for asker in due {
            match self.read(asker, &wanted.digest).await {
                Ok(input) => {
                    unread.succeeded(asker);
                    return Ok(input);
                }
                Err(why) => {
                    tracing::info!(skill = %asker.skill, why, "a build cannot read the content of a skill");
                    unread.failed(asker, now);
                    last = Some(format!("{CONTENT_AWAITED}: {}: {why}", asker.skill));
                }
            }
        }
        let last = last.filter(|_| wanted.namespaces().count() < 2);
        Err(last.unwrap_or_else(|| CONTENT_AWAITED.to_owned()))
    }

    /// What the content of a skill declares, which is to have this digest. Errors: why it cannot be read yet, for the log.
    async fn read(&self, asker: &Asker, digest: &str) -> Result<Input, String> {
        let content = self.artifacts.content(&asker.skill, &asker.artifact).await;
        let content = content.map_err(|error| error.to_string())?;
        let Some(loaded) = &content.skill else {
            return Err("this version does not accept it".to_owned());
        };
        let input = Input::of(&stated(&loaded.files, loaded.requirements.as_ref()));
        // Else the status and the content are of two revisions for a moment.
        if input.digest() == digest {
            Ok(input)
        } else {
            Err("its status is of another revision".to_owned())
        }
    }

    /// Makes the Job of a key, and its request.
    async fn start(
        &self,
        key: &EnvironmentKey,
        wanted: &NeededEnvironment,
        past: &mut BuildState,
        now: i64,
    ) -> Result<(), Refusal> {
        let input = self.input(wanted, &mut past.unread, now).await;
        let input = input.map_err(Refusal::Unread)?;
        let too_large = |why| Refusal::Lasting(Outcome::failed(State::TooLarge, why));
        let bytes = self.builders.packed(input, wanted).map_err(too_large)?;
        let Some(uid) = self.builders.job(key).await.map_err(|error| refusal(&error))? else {
            return Ok(());
        };
        match self.builders.request(key, &uid, bytes).await {
            Ok(true) => past.requests.made(&uid, Instant::now()),
            Ok(false) => {}
            Err(error) => tracing::warn!(key = key.as_str(), %error, "a builder Job has no build request; retrying"),
        }
        let first = wanted.skills.first().map(ToString::to_string);
        tracing::info!(
            key = key.as_str(),
            skill = first,
            skills = wanted.skills.len(),
            "build started"
        );
        Ok(())
    }

    /// Reports ended builds, in the log and as Events of the skills that need the environment.
    async fn report(&self, before: &EnvironmentStatuses, after: &EnvironmentStatuses, wanted: &NeededEnvironments) {
        for (key, status) in &after.0 {
            if before.get(key).map(|known| known.state) == Some(status.state) {
                continue;
            }
            tracing::info!(key = key.as_str(), state = %status.state, message = %status.message, "environment updated");
            if status.state.is_pending() {
                continue;
            }
            let skills = wanted.get(key).into_iter().flat_map(|wanted| &wanted.skills);
            let objects: Vec<_> = self.shared.read(|cluster_state| {
                let found = skills.filter_map(|skill| cluster_state.skills.get(&skill.namespace, &skill.name));
                found.take(EVENTS_MAX).map(|skill| skill.object_ref(&())).collect()
            });
            let note = format!("{}: {}", status.state, status.message);
            for object in &objects {
                if status.state == State::Ready {
                    self.events.note(object, EVENT_READY, EVENT_ACTION, &note).await;
                } else {
                    self.events.warn(object, EVENT_FAILED, EVENT_ACTION, &note).await;
                }
            }
        }
    }
}

/// The latest time of each image: two runtimes may have one.
fn latest(said: impl IntoIterator<Item = (String, i64)>) -> BTreeMap<String, i64> {
    let mut all = BTreeMap::new();
    for (image, at) in said {
        let latest = all.entry(image).or_insert(at);
        *latest = at.max(*latest);
    }
    all
}

#[cfg(test)]
#[path = "serve_tests.rs"]
mod tests;
