//! The process: definitions, leadership, watches, reconcilers, end.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use futures::{Stream, StreamExt as _, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use knack_api::{Skill, SkillRuntime};
use knack_vocabulary::{ANNOTATION_SCOPE, FIELD_MANAGER, KIND_SKILL, LABEL_SKILL, LABEL_UPLOAD, LEASE_CONTROLLER};
use kube::api::ListParams;
use kube::core::PartialObjectMeta;
use kube::runtime::events::{Recorder, Reporter};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{Controller, WatchStreamExt as _, controller, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use tokio::net::TcpListener;
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::authorities::Sharing;
use super::context::{Context, Memory};
use super::error::ControllerError;
use super::http::{self, Phase};
use super::index::Index;
use super::metrics::Metrics;
use super::pending_changes::PendingChanges;
use super::settings::{
    ARCHIVES_AT_ONCE, CRD_PAUSE, ControllerSettings, RUNTIME_CONCURRENCY, SKILL_CONCURRENCY, TRIGGER_QUEUE,
};
use super::streams::{WatchedStore, config, slim_config_map, slim_runtime, slim_skill};
use super::webhook::Webhook;
use super::world::{Cached, ConfigMapMeta, Realm, WatchedRuntime, WatchedSkill, World, controller_uid, source_key};
use super::{account, census, environments, pace, rivals, runtime, sidecars, skill};
use crate::api_call::CALL_TIMEOUT;
use crate::certificates::{self, CertificateTask, Publication};
use crate::lease::{Keeper, LeaseClaim, LeaseSettings};
use crate::sources::fetch::Fetcher;

/// Runs until cancelled, or until leadership is lost. The leader's Lease is kept apart by `leases`, so that no number of
/// Skills and no archive makes this process lose it.
pub async fn run(
    client: Client,
    leases: Keeper,
    settings: ControllerSettings,
    listener: TcpListener,
    webhook: Option<TcpListener>,
    shutdown: CancellationToken,
) -> Result<(), ControllerError> {
    let metrics = Arc::new(Metrics::default());
    let (phase, phase_seen) = watch::channel(Phase::WaitingForDefinitions);
    let mut tasks: JoinSet<Result<(), ControllerError>> = JoinSet::new();
    // Answers until the very end: while the lease is given back, probes are still asked.
    let stop_http = CancellationToken::new();
    let served = http::serve(listener, Arc::clone(&metrics), phase_seen, stop_http.clone());
    tasks.spawn(async move {
        served
            .await
            .map_err(|error| ControllerError::Stopped(format!("health and metrics: {error}")))
    });
    // Served by every replica, and for a while after the end of all else.
    let mut webhooks = JoinSet::new();
    if let (Some(listener), Some(own)) = (webhook, settings.webhook.clone()) {
        let (client, metrics) = (client.clone(), Arc::clone(&metrics));
        let webhook = Webhook::prepare(listener, own, settings.namespace.clone(), client, metrics).await;
        webhooks.spawn(webhook.run(shutdown.clone()));
    }
    let lead = lead(client, leases, settings, metrics, phase, shutdown);
    let result = tokio::select! {
        result = lead => result,
        Some(ended) = tasks.join_next() => ended.unwrap_or_else(|error| Err(ControllerError::Stopped(error.to_string()))),
    };
    // After another end the process goes at once: a webhook that stayed would hold up its restart.
    if result.is_ok() {
        while webhooks.join_next().await.is_some() {}
    }
    stop_http.cancel();
    while tasks.join_next().await.is_some() {}
    result
}

/// Waits for definitions and leadership, then reconciles while it lasts.
async fn lead(
    client: Client,
    leases: Keeper,
    settings: ControllerSettings,
    metrics: Arc<Metrics>,
    phase: watch::Sender<Phase>,
    shutdown: CancellationToken,
) -> Result<(), ControllerError> {
    tokio::select! {
        () = definitions(&client, &settings) => {}
        () = shutdown.cancelled() => return Ok(()),
    }
    tokio::select! {
        () = rivals::wait_until_alone(&client, &settings, &phase) => {}
        () = shutdown.cancelled() => return Ok(()),
    }
    phase.send_replace(Phase::Standby);
    let owner = account::owner(&client, &settings.namespace).await;
    let wanted = LeaseSettings {
        owner: owner.clone(),
        annotations: BTreeMap::from([(ANNOTATION_SCOPE.to_owned(), rivals::scope(&settings))]),
        ..LeaseSettings::new(&settings.namespace, LEASE_CONTROLLER, &settings.identity)
    };
    let stop_lease = CancellationToken::new();
    let (holding, mut claim) = leases.keep(wanted, stop_lease.clone());
    let leading = tokio::select! {
        () = shutdown.cancelled() => false,
        won = claim.wait_for(|claim| claim.is_mine(Instant::now())) => won.is_ok(),
    };
    let mut result = Ok(());
    if leading {
        metrics.leader.set(1);
        phase.send_replace(Phase::Reading);
        let stop = shutdown.child_token();
        let (asking, own) = (client.clone(), settings.clone());
        result = tokio::select! {
            result = reconcile(client, settings, owner, Arc::clone(&metrics), phase, stop) => result,
            rival = rivals::meet(&asking, &own) => Err(rival),
            // Another one may lead from now on: nothing more is written, not even by calls under way.
            () = LeaseClaim::lost(claim) => Err(ControllerError::LeaseLost),
        };
    }
    metrics.leader.set(0);
    stop_lease.cancel();
    let _ = holding.await;
    result
}

/// Waits until both definitions are installed and served, and says so.
async fn definitions(client: &Client, settings: &ControllerSettings) {
    let mut logged = false;
    loop {
        let missing = match (
            served::<Skill>(client, settings).await,
            served::<SkillRuntime>(client, settings).await,
        ) {
            (Ok(true), Ok(true)) => return,
            (Err(error), _) | (_, Err(error)) => error.to_string(),
            _ => "not installed; install the chart knack-crds, or kubectl apply --server-side -f crds/".to_owned(),
        };
        if !logged {
            warn!(%missing, "waiting for the definitions of Skill and SkillRuntime");
            logged = true;
        }
        sleep(CRD_PAUSE).await;
    }
}

/// Whether the API server serves a kind.
async fn served<K>(client: &Client, settings: &ControllerSettings) -> Result<bool, kube::Error>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + serde::de::DeserializeOwned
        + std::fmt::Debug,
{
    let first = settings.namespaces().first().map(|name| (*name).to_owned());
    let api: Api<K> = scoped(client, first.as_ref());
    let listed = tokio::time::timeout(CALL_TIMEOUT, api.list_metadata(&ListParams::default().limit(1))).await;
    match listed {
        Ok(Ok(_)) => Ok(true),
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => Ok(false),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(kube::Error::Service("no answer from the API server".into())),
    }
}

fn scoped<K>(client: &Client, namespace: Option<&String>) -> Api<K>
where
    K: Resource<Scope = k8s_openapi::NamespaceResourceScope>,
    K::DynamicType: Default,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

/// The watches of one namespace, or of all, before they start.
struct Sources {
    namespace: Option<String>,
    skills: WatchedStore<WatchedSkill>,
    runtimes: WatchedStore<WatchedRuntime>,
    config_maps: WatchedStore<ConfigMapMeta>,
    uploads: WatchedStore<ConfigMapMeta>,
    skills_by_name: Index,
    skills_by_namespace: Index,
    skills_by_source: Index,
    config_maps_by_owner: Index,
    skill_triggers: mpsc::Receiver<ObjectRef<WatchedSkill>>,
    runtime_triggers: mpsc::Receiver<ObjectRef<WatchedRuntime>>,
}

/// Where reconciles of skills and of runtimes are requested.
type Triggers = (
    Vec<mpsc::Sender<ObjectRef<WatchedSkill>>>,
    Vec<mpsc::Sender<ObjectRef<WatchedRuntime>>>,
);

async fn reconcile(
    client: Client,
    settings: ControllerSettings,
    owner: Option<OwnerReference>,
    metrics: Arc<Metrics>,
    phase: watch::Sender<Phase>,
    stop: CancellationToken,
) -> Result<(), ControllerError> {
    let labels: WatchedStore<PartialObjectMeta<Namespace>> = WatchedStore::new();
    let (sources, (skill_triggers, runtime_triggers), world) = prepare(&settings, &labels);
    let cached_labels = world.labels.clone();
    let fetcher = Fetcher::new(settings.allow_archive_networks.clone(), &settings.roots)
        .map_err(|error| ControllerError::Stopped(format!("the client for archives: {error}")))?;
    let reporter = Reporter {
        controller: format!("{FIELD_MANAGER}-controller"),
        instance: Some(settings.identity.clone()),
    };
    let changes = Arc::new(PendingChanges::default());
    let context = Arc::new(Context {
        recorder: Recorder::new(client.clone(), reporter),
        client: client.clone(),
        settings,
        world,
        metrics,
        fetcher,
        unpacking: Arc::new(Semaphore::new(ARCHIVES_AT_ONCE)),
        changes: Arc::clone(&changes),
        skill_triggers,
        runtime_triggers,
        memory: Memory::default(),
        looks: runtime::Looks::default(),
        environments: ArcSwap::default(),
    });
    let mut tasks: JoinSet<Result<(), ControllerError>> = JoinSet::new();
    let relabelled = Arc::new(Notify::new());
    let sharing = Sharing {
        client: client.clone(),
        settings: context.settings.clone(),
        namespaces: labels.store.clone(),
        changed: Arc::clone(&relabelled),
    };
    let namespace_events = labels.events(
        Api::all(client.clone()),
        config(),
        |_| {},
        move |event| {
            cached_labels.clear();
            relabelled.notify_one();
            if let Some(namespace) = object_of(event) {
                changes.labels_of(namespace.name_any());
            }
        },
    );
    tasks.spawn(drain(namespace_events));
    let kept = certificate_tasks(&context.settings, &context.metrics, owner.as_ref());
    let keeping = certificates::run(client.clone(), kept, stop.clone());
    tasks.spawn(async move {
        keeping.await;
        Ok(())
    });
    tasks.spawn(async move {
        sharing.run().await;
        Ok(())
    });
    let pacing = Arc::clone(&context);
    tasks.spawn(async move {
        pace::pace(&pacing).await;
        Ok(())
    });
    report(&mut tasks, &context);
    for source in sources {
        start(&mut tasks, &client, &context, source, &stop);
    }
    let announced = Arc::clone(&context);
    tasks.spawn(async move {
        announced.world.ready().await;
        debug_assert!(announced.world.is_ready(), "ready() waits for all");
        phase.send_replace(Phase::Leading);
        info!(
            skills = announced.world.skills().len(),
            runtimes = announced.world.runtimes().len(),
            "leading"
        );
        std::future::pending().await
    });
    tokio::select! {
        // First: the controllers end with it too, which then is no failure.
        biased;
        () = stop.cancelled() => Ok(()),
        Some(ended) = tasks.join_next() => match ended {
            Ok(Err(error)) => Err(error),
            Ok(Ok(())) => Err(ControllerError::Stopped("a watch ended".to_owned())),
            Err(error) => Err(ControllerError::Stopped(error.to_string())),
        },
    }
}

/// The certificates that the leader looks after: the hub's, and those of registry and webhook if there are these.
fn certificate_tasks(
    settings: &ControllerSettings,
    metrics: &Metrics,
    owner: Option<&OwnerReference>,
) -> Vec<CertificateTask> {
    let task = |publication: Publication, extra_names: &[String]| CertificateTask {
        namespace: settings.namespace.clone(),
        expiry: metrics.certificate(publication.secret()),
        publication,
        extra_names: extra_names.to_vec(),
        owner: owner.cloned(),
    };
    let webhook = settings.webhook.as_ref();
    let webhook = webhook.map(|own| task(Publication::Webhook(own.configuration.clone()), &own.names));
    let registry = settings.registry_names.as_ref();
    let registry = registry.map(|names| task(Publication::Registry, names));
    [Some(task(Publication::Hub, &settings.hub_names)), registry, webhook]
        .into_iter()
        .flatten()
        .collect()
}

/// The watches that the settings ask for, none of them started, and the world that they will fill.
fn prepare(
    settings: &ControllerSettings,
    labels: &WatchedStore<PartialObjectMeta<Namespace>>,
) -> (Vec<Sources>, Triggers, World) {
    let own = settings.namespaces();
    let namespaces: Vec<Option<String>> = if own.is_empty() {
        vec![None]
    } else {
        own.into_iter().map(|name| Some(name.to_owned())).collect()
    };
    let (mut sources, mut skill_senders, mut runtime_senders) = (Vec::new(), Vec::new(), Vec::new());
    for namespace in namespaces {
        let (skill_sender, skill_triggers) = mpsc::channel(TRIGGER_QUEUE);
        let (runtime_sender, runtime_triggers) = mpsc::channel(TRIGGER_QUEUE);
        skill_senders.push(skill_sender);
        runtime_senders.push(runtime_sender);
        sources.push(Sources {
            namespace,
            skills: WatchedStore::new(),
            runtimes: WatchedStore::new(),
            config_maps: WatchedStore::new(),
            uploads: WatchedStore::new(),
            skills_by_name: Index::default(),
            skills_by_namespace: Index::default(),
            skills_by_source: Index::default(),
            config_maps_by_owner: Index::default(),
            skill_triggers,
            runtime_triggers,
        });
    }
    let ready = sources
        .iter()
        .flat_map(|source| {
            let maps = [&source.config_maps.ready, &source.uploads.ready];
            [&source.skills.ready, &source.runtimes.ready].into_iter().chain(maps)
        })
        .chain([&labels.ready])
        .cloned()
        .collect();
    let realms = sources.iter().map(|source| Realm {
        skills: source.skills.store.clone(),
        runtimes: source.runtimes.store.clone(),
        config_maps: source.config_maps.store.clone(),
        uploads: source.uploads.store.clone(),
        skills_by_name: source.skills_by_name.clone(),
        skills_by_namespace: source.skills_by_namespace.clone(),
        skills_by_source: source.skills_by_source.clone(),
        config_maps_by_owner: source.config_maps_by_owner.clone(),
    });
    let world = World {
        realms: realms.collect(),
        namespaces: labels.store.clone(),
        labels: Cached::default(),
        sorted_runtimes: Cached::default(),
        ready,
    };
    (sources, (skill_senders, runtime_senders), world)
}

/// Drives a stream of which only the store is used.
async fn drain(events: impl Stream) -> Result<(), ControllerError> {
    events.for_each(|_| std::future::ready(())).await;
    Ok(())
}

/// Counts objects for metrics, and reports pods without the sidecar that they ask for, if this installation injects any.
fn report(tasks: &mut JoinSet<Result<(), ControllerError>>, context: &Arc<Context>) {
    let counting = Arc::clone(context);
    tasks.spawn(async move {
        census::run(counting).await;
        Ok(())
    });
    if context.settings.packages {
        let context = Arc::clone(context);
        tasks.spawn(async move {
            environments::follow(context).await;
            Ok(())
        });
    }
    if let Some(default) = context.settings.injection_runtime.clone() {
        let context = Arc::clone(context);
        tasks.spawn(async move {
            sidecars::run(context, default).await;
            Ok(())
        });
    }
}

/// The subject of an event.
fn object_of<K>(event: &watcher::Event<K>) -> Option<&K> {
    match event {
        watcher::Event::Apply(object) | watcher::Event::InitApply(object) | watcher::Event::Delete(object) => {
            Some(object)
        }
        watcher::Event::Init | watcher::Event::InitDone => None,
    }
}

/// Starts the controllers of one namespace, or of all.
fn start(
    tasks: &mut JoinSet<Result<(), ControllerError>>,
    client: &Client,
    context: &Arc<Context>,
    source: Sources,
    stop: &CancellationToken,
) {
    let namespace = source.namespace.as_ref();
    let (skill_store, runtime_store) = (source.skills.store.clone(), source.runtimes.store.clone());
    let changes = Arc::clone(&context.changes);
    let skills = source
        .skills
        .events(scoped(client, namespace), config(), slim_skill, move |event| {
            source.skills_by_name.see(event, |skill| Some(skill.name_any()));
            source.skills_by_namespace.see(event, ResourceExt::namespace);
            source.skills_by_source.see(event, sources_of);
            match (object_of(event), event) {
                (Some(skill), _) => {
                    let (namespace, name) = (&skill.meta().namespace, &skill.meta().name);
                    changes.skill(
                        namespace.as_deref().unwrap_or_default(),
                        name.as_deref().unwrap_or_default(),
                    );
                }
                (None, watcher::Event::InitDone) => changes.list_of_skills(),
                (None, _) => {}
            }
        });
    let owned = source.config_maps.events(
        scoped(client, namespace),
        config().labels(LABEL_SKILL),
        slim_config_map,
        move |event| {
            source.config_maps_by_owner.see(event, |config_map| {
                controller_uid(&config_map.metadata).map(str::to_owned)
            });
        },
    );
    let uploads = source.uploads.events(
        scoped(client, namespace),
        config().labels(&format!("{LABEL_UPLOAD},!{LABEL_SKILL}")),
        slim_config_map,
        |_| {},
    );
    // Others that skills name as their source carry no label of ours; only events are wanted, so nothing is stored.
    let foreign: Api<ConfigMapMeta> = scoped(client, namespace);
    let foreign = watcher(foreign, config().labels(&format!("!{LABEL_SKILL},!{LABEL_UPLOAD}")))
        .default_backoff()
        .touched_objects();
    let sorted_runtimes = context.world.sorted_runtimes.clone();
    let (forget, mut forgotten) = mpsc::unbounded_channel::<(String, String)>();
    let runtimes = source
        .runtimes
        .events(scoped(client, namespace), config(), slim_runtime, move |event| {
            sorted_runtimes.clear();
            if let watcher::Event::Delete(runtime) = event {
                // A closed channel means that the process ends.
                let _ = forget.send((runtime.namespace().unwrap_or_default(), runtime.name_any()));
            }
        });
    let remembering = Arc::clone(context);
    tasks.spawn(async move {
        while let Some((namespace, name)) = forgotten.recv().await {
            runtime::forget(&remembering, &namespace, &name).await;
        }
        Ok(())
    });
    let (named, uploaded) = (Arc::clone(context), Arc::clone(context));
    let skill_controller = Controller::for_stream(skills.applied_objects(), skill_store)
        .with_config(controller::Config::default().concurrency(SKILL_CONCURRENCY))
        .watches_stream(owned.touched_objects(), |config_map| owner_of(&config_map))
        .watches_stream(uploads.touched_objects(), move |config_map| {
            users_of(&uploaded, &config_map)
        })
        .watches_stream(foreign, move |config_map: ConfigMapMeta| users_of(&named, &config_map))
        .reconcile_on(asked(source.skill_triggers))
        .graceful_shutdown_on(stop.clone().cancelled_owned())
        .run(skill::reconcile, skill::failed, Arc::clone(context));
    tasks.spawn(drain(skill_controller));
    let runtime_controller = Controller::for_stream(runtimes.applied_objects(), runtime_store)
        .with_config(controller::Config::default().concurrency(RUNTIME_CONCURRENCY))
        .reconcile_on(asked(source.runtime_triggers))
        .graceful_shutdown_on(stop.clone().cancelled_owned())
        .run(runtime::reconcile, runtime::failed, Arc::clone(context));
    tasks.spawn(drain(runtime_controller));
}

fn asked<K: Send + 'static>(triggers: mpsc::Receiver<K>) -> impl Stream<Item = K> + Send + 'static {
    stream::unfold(triggers, |mut triggers| async {
        triggers.recv().await.map(|key| (key, triggers))
    })
}

/// The keys of the ConfigMaps that a skill names as its source.
pub(super) fn sources_of(skill: &WatchedSkill) -> Vec<String> {
    let (Ok(object), Some(namespace)) = (&skill.0, &skill.meta().namespace) else {
        return Vec::new();
    };
    let maps = object.spec.source.config_maps();
    maps.map(|name| source_key(namespace, name)).collect()
}

/// The skill that owns a ConfigMap.
fn owner_of(config_map: &ConfigMapMeta) -> Option<ObjectRef<WatchedSkill>> {
    let owner = config_map
        .metadata
        .owner_references
        .iter()
        .flatten()
        .find(|owner| owner.controller == Some(true) && owner.kind == KIND_SKILL)?;
    Some(ObjectRef::new(&owner.name).within(config_map.metadata.namespace.as_deref()?))
}

/// The skills that have a ConfigMap as source.
fn users_of(context: &Context, config_map: &PartialObjectMeta<ConfigMap>) -> Vec<ObjectRef<WatchedSkill>> {
    let namespace = config_map.namespace().unwrap_or_default();
    let users = context
        .world
        .skills_from(&namespace, &config_map.name_any())
        .into_iter();
    users
        .map(|(namespace, name)| ObjectRef::new(&name).within(&namespace))
        .collect()
}
