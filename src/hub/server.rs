//! The hub's process: watches, executors, and the TLS listener.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use knack_memory::MemoryBudget;
use knack_serving::probes::Probes;
use knack_serving::{Bounds, Serving, Stop, Stopping, serve};
use knack_vocabulary::{CLIENT_TOKEN_AUDIENCE, TOKEN_AUDIENCE};
use kube::Client;
use tokio::net::TcpListener;
use tokio::sync::watch as channel;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::artifacts::Artifacts;
use super::catalog_views::CatalogViews;
use super::executors::Executors;
use super::metrics::Metrics;
use super::peers;
use super::reported_uses::{ReportedUses, note_regularly};
use super::routes::{HubState, router};
use super::settings::HubSettings;
use super::shared_values::{KeptSecrets, KeptStore};
use super::start::{self, Start};
use crate::account_auth::Authenticator;
use crate::certificates::Certificate;
use crate::cluster_reader::watch::{self, Shared};
use crate::hub::access::Access;
use crate::jobs::{Beacon, JobClients, JobSettings, ResultMemory};
use crate::lease::Peers;
use crate::request_bodies::Bodies;
use crate::tasks::{TaskEnded, Tasks};

/// Bounds of the listener. Each catalog stream and each execution has a connection: a thousand gateways with a few runs
/// each, which may all come from one address behind a mesh or a load balancer.
const BOUNDS: Bounds = Bounds {
    connections: 8192,
    connections_per_peer: 4096,
    // As long as the API server of Kubernetes gives a head: many clients of one busy node connect at once, and each has
    // handshakes and bodies of the others before its own turn.
    head: Duration::from_secs(32),
    // Longer than a gateway keeps an unused connection.
    idle: Duration::from_mins(2),
    // Results wait in memory for their reader; a line is sent every 10 s, so a live reader takes some bytes.
    stalled: Duration::from_mins(1),
    http2: false,
};
/// How long the handover at the end of the drain may take: deleting idle pods, releasing Leases, writing results, and
/// answering callers.
const HAND_OVER_TIMEOUT: Duration = Duration::from_secs(20);
/// How often artifacts of deleted skills and expired values of gateways are removed.
const PRUNE_EVERY: Duration = Duration::from_mins(1);

/// State that the process's other ports report.
#[derive(Debug)]
pub struct HubProbes {
    start: Start,
    metrics: Arc<Metrics>,
    memory: MemoryBudget,
    kept: Arc<KeptStore>,
    artifacts: Artifacts,
    draining: AtomicBool,
}

impl Probes for HubProbes {
    fn ready(&self) -> Result<String, String> {
        if self.draining.load(Ordering::Acquire) {
            return Err("draining".to_owned());
        }
        match self.start.waiting_for() {
            Some(what) => Err(format!("reading {what} for the first time")),
            None => Ok(String::new()),
        }
    }

    fn metrics(&self) -> String {
        self.metrics.memory(self.memory.held_bytes(), self.memory.total_bytes());
        self.metrics.summaries(self.artifacts.summary_bytes());
        let (values, bytes) = self.kept.usage();
        self.metrics.kept(values, bytes);
        self.metrics.text()
    }
}

/// A hub that is ready to run.
#[derive(Debug)]
pub struct Hub {
    state: Arc<HubState>,
    probes: Arc<HubProbes>,
    peers: channel::Sender<Peers>,
    /// Answers isolation probes at the hub's own port.
    beacon: Option<Beacon>,
    watches: Tasks,
}

impl Hub {
    /// Starts the watches. Must be called inside a tokio runtime.
    pub fn start(client: &Client, clients: JobClients, mut job_settings: JobSettings, settings: HubSettings) -> Self {
        let settings = Arc::new(settings);
        let watching = settings.watching();
        let kept_secrets = KeptSecrets::new(job_settings.secret);
        let memory = MemoryBudget::of_process();
        let beacon = job_settings.probe.as_ref().map(|probe| probe.beacon.clone());
        job_settings.memory = Some(ResultMemory::of(&memory));
        let (shared, metrics) = (Arc::new(Shared::default()), Arc::new(Metrics::default()));
        let peers = channel::Sender::<Peers>::default();
        job_settings.peers = peers.subscribe();
        let artifacts = Artifacts::new(client.clone(), Arc::clone(&shared), clients.events.clone(), &memory);
        let (mut watches, start) = follow(client, &watching, &shared, &artifacts);
        watches.spawn(
            "watch of replicas",
            peers::follow(client.clone(), settings.namespace.clone(), peers.clone()),
        );
        let reported_uses = Arc::new(ReportedUses::default());
        watches.spawn(
            "notes of uses",
            note_regularly(client.clone(), settings.namespace.clone(), Arc::clone(&reported_uses)),
        );
        let kept = Arc::new(KeptStore::new(&memory, metrics.kept_evicted.clone()));
        watches.spawn(
            "removal of what expired",
            prune_regularly(artifacts.clone(), Arc::clone(&kept)),
        );
        let probes = Arc::new(HubProbes {
            start: start.clone(),
            metrics: Arc::clone(&metrics),
            memory: memory.clone(),
            kept: Arc::clone(&kept),
            artifacts: artifacts.clone(),
            draining: AtomicBool::new(false),
        });
        let state = HubState {
            callers: Authenticator::new(client.clone(), TOKEN_AUDIENCE),
            clients: Authenticator::new(client.clone(), CLIENT_TOKEN_AUDIENCE),
            access: Access::new(
                client.clone(),
                Arc::clone(&shared),
                settings.default_runtime.clone(),
                watch::lists(&watching),
            ),
            start,
            views: CatalogViews::new(
                Arc::clone(&shared),
                artifacts.clone(),
                Arc::clone(&settings),
                metrics.views.clone(),
            ),
            executors: Executors::new(clients, job_settings, Arc::clone(&settings)),
            bodies: Bodies::of(&memory),
            kept,
            kept_secrets,
            artifacts,
            shared,
            metrics,
            reported_uses,
            settings,
        };
        Self {
            state: Arc::new(state),
            probes,
            peers,
            beacon,
            watches,
        }
    }

    /// State that the probes' port reports.
    pub fn probes(&self) -> Arc<HubProbes> {
        Arc::clone(&self.probes)
    }
}

/// Starts the watches, and the first reading of what their lists name.
fn follow(
    client: &Client,
    watching: &watch::WatchSettings,
    shared: &Arc<Shared>,
    artifacts: &Artifacts,
) -> (Tasks, Start) {
    let on_skill = {
        let artifacts = artifacts.clone();
        move |skill: &knack_api::Skill| artifacts.request_read(skill)
    };
    let mut watches = watch::spawn(client, watching, shared, on_skill);
    let (start, first_reading) = start::begin(shared, artifacts.clone(), watching);
    watches.spawn_finite("first reading of skills", first_reading);
    (watches, start)
}

/// Removes artifacts of deleted skills and expired values of gateways. Never returns.
async fn prune_regularly(artifacts: Artifacts, kept: Arc<KeptStore>) {
    loop {
        tokio::time::sleep(PRUNE_EVERY).await;
        artifacts.prune();
        kept.prune();
    }
}

/// Serves until `stop`, or until a task has ended that it needs, and then as [`Stopping`] says:
///
/// ```text
/// stop ── pause ── drain ──────────────────────── end
/// not ready; everything is served on
/// each runtime is handed over as soon as nothing of it is under way
///          catalogs end: their gateways go to another replica
///                        what is left is handed over: its callers ask the next owner, by id
/// ```
pub async fn run(
    hub: Hub,
    certificate: Arc<Certificate>,
    listener: TcpListener,
    stopping: Stopping,
    stop: CancellationToken,
) -> Result<(), TaskEnded> {
    let Hub {
        state,
        probes,
        peers,
        beacon,
        mut watches,
    } = hub;
    let (tasks, ending, catalogs, stops) = (
        TaskTracker::new(),
        CancellationToken::new(),
        CancellationToken::new(),
        Stop::default(),
    );
    let mut certificates = tasks.spawn(Arc::clone(&certificate).follow(ending.clone()));
    let mut executors = tasks.spawn(Arc::clone(&state.executors).follow(
        Arc::clone(&state.shared),
        Arc::clone(&state.metrics),
        ending.clone(),
    ));
    let serving = Serving {
        bounds: BOUNDS,
        tls: Some(TlsAcceptor::from(Arc::new(certificate.server_config()))),
        metrics: state.metrics.listener.clone(),
        beacon,
    };
    let router = router(Arc::clone(&state), catalogs.clone());
    let mut connections = tasks.spawn(serve(listener, router, serving, stops.clone()));
    let failed = tokio::select! {
        () = stop.cancelled() => None,
        // Without the watches the hub would serve what it saw last. Runs in progress are handed over, as at every end.
        ended = watches.ended() => Some(ended),
        ended = &mut certificates => Some(TaskEnded::new("reading of the certificate", ended)),
        // Without the executors nothing can be handed over.
        ended = &mut executors => return Err(TaskEnded::new("executors of runtimes", ended)),
        ended = &mut connections => return Err(TaskEnded::new("listener", ended)),
    };
    if let Some(error) = &failed {
        tracing::error!(%error, "a task has ended");
    }
    let unready = || {
        probes.draining.store(true, Ordering::Release);
        peers.send_modify(Peers::leave);
    };
    let hand_over = async {
        catalogs.cancel();
        stops.renew.cancel();
        drain(&state.executors, stopping.drain).await;
        ending.cancel();
        // The executors hand over first: their callers get the address of the new owner, which ends their streams.
        let begun = Instant::now();
        let _ = tokio::time::timeout(HAND_OVER_TIMEOUT, executors).await;
        HAND_OVER_TIMEOUT.saturating_sub(begun.elapsed())
    };
    stopping.end_after(&stops, unready, hand_over, connections).await;
    drop(watches);
    failed.map_or(Ok(()), Err)
}

/// Waits until every runtime is handed over, at most `bound`.
async fn drain(executors: &Executors, bound: Duration) {
    if tokio::time::timeout(bound, executors.handed_over()).await.is_err() {
        tracing::warn!(
            "runs still under way after {} s are left to the next owners",
            bound.as_secs()
        );
    }
}
