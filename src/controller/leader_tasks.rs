//! The tasks of the leader: watches, reconcilers, certificates, reports.

use std::sync::Arc;

use arc_swap::ArcSwap;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use knack_memory::MemoryBudget;
use knack_vocabulary::FIELD_MANAGER;
use kube::core::PartialObjectMeta;
use kube::runtime::events::{Recorder, Reporter};
use kube::{Api, Client, ResourceExt};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::authorities::AuthorityPublisher;
use super::cluster_state::ControllerState;
use super::context::Context;
use super::error::ControllerError;
use super::http::Phase;
use super::memory::ReconcileMemory;
use super::metrics::Metrics;
use super::pending_changes::PendingChanges;
use super::scope_watches::{Triggers, prepare};
use super::settings::{ARCHIVES_AT_ONCE, ControllerSettings, JUDGED_MAX_BYTES};
use super::sidecar_trust::SidecarTrust;
use super::skill::ArchivePermits;
use super::streams::{WatchedStore, config, drain, object_of};
use super::{environments, last_uses, object_counts, pace, runtime, scope_controllers, sidecars};
use crate::certificates::{self, CertificateTask, Publication};
use crate::sources::fetch::Fetcher;

type Tasks = JoinSet<Result<(), ControllerError>>;
type NamespaceStore = WatchedStore<PartialObjectMeta<Namespace>>;

/// Reconciles until `stop`. Errors: a task ended.
pub(super) async fn reconcile(
    client: Client,
    settings: ControllerSettings,
    owner: Option<OwnerReference>,
    metrics: Arc<Metrics>,
    phase: watch::Sender<Phase>,
    stop: CancellationToken,
) -> Result<(), ControllerError> {
    let labels = NamespaceStore::new();
    let (watch_scopes, triggers, mut cluster_state) = prepare(&settings, &labels);
    let records = settings.packages.then(|| watch::channel(false));
    cluster_state
        .ready
        .extend(records.iter().map(|(_, listed)| listed.clone()));
    let context = Arc::new(new_context(client.clone(), settings, metrics, triggers, cluster_state)?);
    let mut tasks = Tasks::new();
    share_authorities(&mut tasks, &context, labels);
    let kept = certificate_tasks(&context.settings, &context.metrics, owner.as_ref());
    spawn(&mut tasks, certificates::run(client.clone(), kept, stop.clone()));
    let pacing = Arc::clone(&context);
    spawn(&mut tasks, async move { pace::pace(&pacing).await });
    if let Some((listed, _)) = records {
        spawn(&mut tasks, environments::follow(Arc::clone(&context), listed));
    }
    report(&mut tasks, &context);
    spawn(&mut tasks, last_uses::follow(Arc::clone(&context)));
    for watches in watch_scopes {
        scope_controllers::start(&mut tasks, &client, &context, watches, &stop);
    }
    announce(&mut tasks, &context, phase);
    tokio::select! {
        // `stop` is polled first: it ends the controllers too, which then is no failure.
        biased;
        () = stop.cancelled() => Ok(()),
        Some(ended) = tasks.join_next() => match ended {
            Ok(Err(error)) => Err(error),
            Ok(Ok(())) => Err(ControllerError::Stopped("a watch ended".to_owned())),
            Err(error) => Err(ControllerError::Stopped(error.to_string())),
        },
    }
}

/// Spawns a task without a result of its own.
fn spawn(tasks: &mut Tasks, task: impl Future<Output = ()> + Send + 'static) {
    tasks.spawn(async move {
        task.await;
        Ok(())
    });
}

/// The state that reconcilers share. Errors: there is no client for archives.
fn new_context(
    client: Client,
    settings: ControllerSettings,
    metrics: Arc<Metrics>,
    (skill_triggers, runtime_triggers): Triggers,
    cluster_state: ControllerState,
) -> Result<Context, ControllerError> {
    let fetcher = Fetcher::new(settings.allow_archive_networks.clone(), &settings.roots)
        .map_err(|error| ControllerError::Stopped(format!("the client for archives: {error}")))?;
    let reporter = Reporter {
        controller: format!("{FIELD_MANAGER}-controller"),
        instance: Some(settings.identity.clone()),
    };
    Ok(Context {
        recorder: Recorder::new(client.clone(), reporter),
        client,
        settings,
        cluster_state,
        metrics,
        fetcher,
        unpacking: Arc::new(Semaphore::new(ARCHIVES_AT_ONCE)),
        judged: MemoryBudget::new(JUDGED_MAX_BYTES),
        archive_permits: ArchivePermits::default(),
        changes: Arc::new(PendingChanges::default()),
        skill_triggers,
        runtime_triggers,
        memory: ReconcileMemory::default(),
        evaluations: runtime::Evaluations::default(),
        trust: Arc::new(SidecarTrust::default()),
        environments: ArcSwap::default(),
    })
}

/// Watches the labels of namespaces, and publishes the hub's authorities in the namespaces of gateways.
fn share_authorities(tasks: &mut Tasks, context: &Arc<Context>, labels: NamespaceStore) {
    let sharing = AuthorityPublisher {
        client: context.client.clone(),
        settings: context.settings.clone(),
        recorder: context.recorder.clone(),
        namespaces: labels.store.clone(),
        trust: Arc::clone(&context.trust),
    };
    let context = Arc::clone(context);
    let namespace_events = labels.events(
        Api::all(context.client.clone()),
        config(),
        |_| {},
        move |event| {
            context.cluster_state.labels.clear();
            context.trust.asked.notify_one();
            let changed = object_of(event).map(ResourceExt::name_any);
            if let Some(namespace) = changed.filter(|name| context.cluster_state.is_in_use(name)) {
                context.changes.labels_of(namespace);
            }
        },
    );
    tasks.spawn(drain(namespace_events));
    spawn(tasks, sharing.run());
}

/// Sets the phase once all first lists are read.
fn announce(tasks: &mut Tasks, context: &Arc<Context>, phase: watch::Sender<Phase>) {
    let announced = Arc::clone(context);
    tasks.spawn(async move {
        announced.cluster_state.ready().await;
        debug_assert!(announced.cluster_state.is_ready(), "ready() waits for all");
        phase.send_replace(Phase::Leading);
        info!(
            skills = announced.cluster_state.skills().len(),
            runtimes = announced.cluster_state.runtimes().len(),
            "leading"
        );
        std::future::pending().await
    });
}

/// The certificates that the leader maintains: the hub's, and those of registry and webhook if these are installed.
fn certificate_tasks(
    settings: &ControllerSettings,
    metrics: &Metrics,
    owner: Option<&OwnerReference>,
) -> Vec<CertificateTask> {
    let task = |publication: Publication, extra_names: &[String]| CertificateTask {
        namespace: settings.namespace.clone(),
        expiry: metrics.certificate(publication.secret()),
        with_registry: publication == Publication::Hub && settings.registry_names.is_some(),
        publication,
        extra_names: extra_names.to_vec(),
        owner: owner.cloned(),
    };
    let webhook = settings.webhook.as_ref();
    let webhook = webhook.map(|own| task(Publication::Webhook(own.configuration.clone()), &own.names));
    let registry = settings.registry_names.as_ref();
    let registry = registry.map(|names| task(Publication::Registry, names));
    // The registry's is published first: the hub's authorities include the registry's.
    [registry, Some(task(Publication::Hub, &settings.hub_names)), webhook]
        .into_iter()
        .flatten()
        .collect()
}

/// Counts objects for metrics, and reports pods without the sidecar that they ask for, if this installation injects any.
fn report(tasks: &mut Tasks, context: &Arc<Context>) {
    spawn(tasks, object_counts::run(Arc::clone(context)));
    if let Some(default) = context.settings.injection_runtime.clone() {
        spawn(tasks, sidecars::run(Arc::clone(context), default));
    }
}
