//! The hub's process: watches, executors, and the TLS listener.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kube::Client;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::artifacts::Artifacts;
use super::auth::{Access, Authenticator};
use super::body::Bodies;
use super::executors::Executors;
use super::kept::{KeptSecrets, KeptStore};
use super::metrics::Metrics;
use super::routes::{HubState, router};
use super::settings::HubSettings;
use super::tls::Certificate;
use super::views::Views;
use super::watch::{self, Shared};
use crate::api::vocabulary::{CLIENT_TOKEN_AUDIENCE, TOKEN_AUDIENCE};
use crate::execution::job::{Beacon, JobClients, JobSettings, ResultMemory};
use crate::memory::MemoryBudget;
use crate::probes::Probes;
use crate::serving::{Bounds, Serving, Stop, serve};

/// Bounds of the listener. Each catalog stream and each execution has a connection: a thousand gateways with a few runs each,
/// which may all come from one address where a mesh or a load balancer stands between.
const BOUNDS: Bounds = Bounds {
    connections: 8192,
    connections_per_peer: 4096,
    head: Duration::from_secs(10),
    // Longer than a gateway keeps an unused connection.
    idle: Duration::from_mins(2),
    // Results wait in memory for their reader; a line comes every 10 s, so a reader that lives takes some.
    stalled: Duration::from_mins(1),
    http2: false,
};
/// How long running streams may take after the stop signal: runs are handed over to the next owner anyway.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(20);
/// How often artifacts of deleted skills, and what is kept for gateways and was not asked for in its time, are forgotten.
const PRUNE_EVERY: Duration = Duration::from_mins(1);

/// What the process's other ports tell of it.
#[derive(Debug)]
pub struct HubProbes {
    shared: Arc<Shared>,
    metrics: Arc<Metrics>,
    memory: MemoryBudget,
    kept: Arc<KeptStore>,
    lists: usize,
    draining: AtomicBool,
}

impl Probes for HubProbes {
    fn ready(&self) -> Result<String, String> {
        if self.draining.load(Ordering::Acquire) {
            return Err("draining".to_owned());
        }
        match self.shared.read(|world| world.waiting_for(self.lists)) {
            Some(what) => Err(format!("waiting for the first list of {what}")),
            None => Ok(String::new()),
        }
    }

    fn metrics(&self) -> String {
        self.metrics.memory(self.memory.held_bytes(), self.memory.total_bytes());
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
    /// Answers isolation probes at the hub's own port.
    beacon: Option<Beacon>,
    watches: tokio::task::JoinSet<()>,
}

impl Hub {
    /// Starts the watches. Must be called inside a tokio runtime.
    pub fn start(client: &Client, clients: JobClients, mut job_settings: JobSettings, settings: HubSettings) -> Self {
        let settings = Arc::new(settings);
        let kept_secrets = KeptSecrets::new(job_settings.secret);
        let memory = MemoryBudget::of_process();
        let beacon = job_settings.probe.as_ref().map(|probe| probe.beacon.clone());
        job_settings.memory = Some(ResultMemory::of(&memory));
        let (shared, metrics) = (Arc::new(Shared::default()), Arc::new(Metrics::default()));
        let artifacts = Artifacts::new(client.clone(), Arc::clone(&shared), clients.events.clone(), &memory);
        let on_skill = {
            let artifacts = artifacts.clone();
            move |skill: &crate::api::Skill| artifacts.want(skill)
        };
        let mut watches = watch::spawn(client, &settings, &shared, on_skill);
        let kept = Arc::new(KeptStore::new(&memory, metrics.kept_evicted.clone()));
        let pruned = (artifacts.clone(), Arc::clone(&kept));
        watches.spawn(async move {
            loop {
                tokio::time::sleep(PRUNE_EVERY).await;
                pruned.0.prune();
                pruned.1.prune();
            }
        });
        let probes = Arc::new(HubProbes {
            shared: Arc::clone(&shared),
            metrics: Arc::clone(&metrics),
            memory: memory.clone(),
            kept: Arc::clone(&kept),
            lists: watch::lists(&settings),
            draining: AtomicBool::new(false),
        });
        let state = HubState {
            callers: Authenticator::new(client.clone(), TOKEN_AUDIENCE),
            clients: Authenticator::new(client.clone(), CLIENT_TOKEN_AUDIENCE),
            access: Access::new(
                client.clone(),
                Arc::clone(&shared),
                settings.default_runtime.clone(),
                watch::lists(&settings),
            ),
            views: Views::new(
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
            settings,
        };
        Self {
            state: Arc::new(state),
            probes,
            beacon,
            watches,
        }
    }

    /// What the probes' port tells.
    pub fn probes(&self) -> Arc<HubProbes> {
        Arc::clone(&self.probes)
    }
}

/// Serves until `stop`, then hands runtimes over and lets streams end within [`DRAIN_TIMEOUT`].
pub async fn run(
    hub: Hub,
    certificate: Arc<Certificate>,
    listener: TcpListener,
    stop: CancellationToken,
) -> std::io::Result<()> {
    let Hub {
        state,
        probes,
        beacon,
        watches,
    } = hub;
    let tasks = TaskTracker::new();
    tasks.spawn(Arc::clone(&certificate).follow(stop.clone()));
    let executors = tasks.spawn(Arc::clone(&state.executors).follow(
        Arc::clone(&state.shared),
        Arc::clone(&state.metrics),
        stop.clone(),
    ));
    let stopping = Stop::default();
    let serving = Serving {
        bounds: BOUNDS,
        tls: Some(TlsAcceptor::from(Arc::new(certificate.server_config()))),
        metrics: state.metrics.listener.clone(),
        beacon,
    };
    let router = router(Arc::clone(&state), stop.clone());
    let connections = tasks.spawn(serve(listener, router, serving, stopping.clone()));
    stop.cancelled().await;
    probes.draining.store(true, Ordering::Release);
    stopping.close.cancel();
    // The executors hand over first: their callers hear where to go, and their streams end by that.
    let ended = async {
        let _ = executors.await;
        let _ = connections.await;
    };
    if tokio::time::timeout(DRAIN_TIMEOUT, ended).await.is_err() {
        tracing::warn!("streams still open after {} s were cut", DRAIN_TIMEOUT.as_secs());
        stopping.cut.cancel();
    }
    drop(watches);
    Ok(())
}
