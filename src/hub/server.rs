//! The hub's process: watches, executors, and the TLS listener.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use kube::Client;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::artifacts::Artifacts;
use super::auth::{Access, Authenticator};
use super::body::Bodies;
use super::executors::Executors;
use super::metrics::Metrics;
use super::routes::{HubState, router};
use super::settings::HubSettings;
use super::tls::Certificate;
use super::views::Views;
use super::watch::{self, Shared};
use crate::api::vocabulary::{CLIENT_TOKEN_AUDIENCE, TOKEN_AUDIENCE};
use crate::execution::job::{JobClients, JobSettings};
use crate::probes::Probes;

/// Connections at once: each catalog stream and each execution has one; a thousand gateways with a few runs each.
const CONNECTIONS_MAX: usize = 8192;
/// Time for a TLS handshake, and for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long running streams may take after the stop signal: runs are handed over to the next owner anyway.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(20);
/// How often artifacts of deleted skills are forgotten.
const PRUNE_EVERY: Duration = Duration::from_mins(1);

/// What the process's other ports tell of it.
#[derive(Debug)]
pub struct HubProbes {
    shared: Arc<Shared>,
    metrics: Arc<Metrics>,
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
        self.metrics.text()
    }
}

/// A hub that is ready to run.
#[derive(Debug)]
pub struct Hub {
    state: Arc<HubState>,
    probes: Arc<HubProbes>,
    watches: tokio::task::JoinSet<()>,
}

impl Hub {
    /// Starts the watches. Must be called inside a tokio runtime.
    pub fn start(client: &Client, clients: JobClients, job_settings: JobSettings, settings: HubSettings) -> Self {
        let settings = Arc::new(settings);
        let (shared, metrics) = (Arc::new(Shared::default()), Arc::new(Metrics::default()));
        let artifacts = Artifacts::new(client.clone(), Arc::clone(&shared));
        let on_skill = {
            let artifacts = artifacts.clone();
            move |skill: &crate::api::Skill| artifacts.want(skill)
        };
        let mut watches = watch::spawn(client, &settings, &shared, on_skill);
        let pruned = artifacts.clone();
        watches.spawn(async move {
            loop {
                tokio::time::sleep(PRUNE_EVERY).await;
                pruned.prune();
            }
        });
        let probes = Arc::new(HubProbes {
            shared: Arc::clone(&shared),
            metrics: Arc::clone(&metrics),
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
            views: Views::new(Arc::clone(&shared), artifacts.clone(), Arc::clone(&settings)),
            executors: Executors::new(clients, job_settings, Arc::clone(&settings)),
            bodies: Bodies::default(),
            artifacts,
            shared,
            metrics,
            settings,
        };
        Self {
            state: Arc::new(state),
            probes,
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
    let Hub { state, probes, watches } = hub;
    let tasks = TaskTracker::new();
    tasks.spawn(Arc::clone(&certificate).follow(stop.clone()));
    let executors = tasks.spawn(Arc::clone(&state.executors).follow(
        Arc::clone(&state.shared),
        Arc::clone(&state.metrics),
        stop.clone(),
    ));
    let acceptor = TlsAcceptor::from(Arc::new(certificate.server_config()));
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let connections = TaskTracker::new();
    loop {
        // An error means that the semaphore is closed, which it never is.
        let place =
            tokio::select! { () = stop.cancelled() => break, place = Arc::clone(&places).acquire_owned() => place };
        let stream = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of descriptors, most likely: accepting on at full speed would only heat the machine.
                    tracing::warn!(%error, "a connection cannot be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            },
        };
        let (acceptor, state, stop) = (acceptor.clone(), Arc::clone(&state), stop.clone());
        connections.spawn(async move {
            let _place = place;
            serve(acceptor, stream, state, stop).await;
        });
    }
    probes.draining.store(true, Ordering::Release);
    connections.close();
    // The executors hand over first: their callers hear where to go, and their streams end by that.
    let ended = async {
        let _ = executors.await;
        connections.wait().await;
    };
    if tokio::time::timeout(DRAIN_TIMEOUT, ended).await.is_err() {
        tracing::warn!("streams still open after {} s were cut", DRAIN_TIMEOUT.as_secs());
    }
    drop(watches);
    Ok(())
}

async fn serve(acceptor: TlsAcceptor, stream: TcpStream, state: Arc<HubState>, stop: CancellationToken) {
    // Frames are small and wanted at once.
    let _ = stream.set_nodelay(true);
    let metrics = Arc::clone(&state.metrics);
    let Ok(Ok(stream)) = tokio::time::timeout(HEAD_TIMEOUT, acceptor.accept(stream)).await else {
        metrics.handshake_failures.inc();
        return;
    };
    metrics.connections.inc();
    let mut builder = Builder::new(TokioExecutor::new()).http1_only();
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT);
    let service = TowerToHyperService::new(router(state, stop.clone()));
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "a connection ended");
    }
    metrics.connections.dec();
}
