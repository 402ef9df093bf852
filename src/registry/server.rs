//! The registry's process: watches, the sweep, the TLS listener and its routes, and what gateways post.

use std::future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::routing::any;
use bytes::Bytes;
use http::{Method, Response, StatusCode};
use knack_gateway::files::user_files::FILES_PATH;
use knack_hub_api::HubRefusal;
use knack_memory::MemoryBudget;
use knack_registry::{CLAIM_PATH, REPORT_MAX_BYTES, REPORT_PATH, Reader, Stamp};
use knack_serving::bodies::HeldBody;
use knack_serving::probes::Probes;
use knack_serving::sources::Sources;
use knack_serving::{Bounds, Serving, Stop, Stopping, serve, until_sent};
use knack_vocabulary::{HEADER_CLIENT, TOKEN_AUDIENCE};
use kube::Client;
use kube::core::DeserializeGuard;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::caller::authenticate;
use super::caller_store::Shared;
use super::catalogs::ClusterCatalogs;
use super::cluster::Cluster;
use super::files::ClusterFiles;
use super::history::ClusterHistory;
use super::metrics::Metrics;
use super::refusal::status_of;
use super::request::{CHANGES, READS, answer};
use super::state::{RegistrySettings, RegistryState};
use super::sweep::{self, sweep};
use crate::account_auth::{AccessReviewer, Authenticator, ServiceAccountCaller};
use crate::certificates::Certificate;
use crate::cluster_reader::decoded::decoded;
use crate::cluster_reader::watch;
use crate::installer_index::Site;
use crate::request_bodies::Bodies;
use crate::sources::archive::unpack_upload;
use crate::tasks::{TaskEnded, Tasks};

/// Bounds of the listener: gateways relay their callers' requests over a few connections each.
const BOUNDS: Bounds = Bounds {
    connections: 2048,
    connections_per_peer: 512,
    head: Duration::from_secs(32),
    // Longer than a gateway keeps an unused connection.
    idle: Duration::from_mins(2),
    stalled: Duration::from_mins(1),
    http2: false,
};
/// Share of the process's memory budget for content that is downloaded.
const DOWNLOADS_DIVISOR: usize = 4;
/// A registry that is ready to run.
#[derive(Debug)]
pub struct Registry {
    pub(super) state: Arc<RegistryState>,
    watches: Tasks,
}

impl Registry {
    /// Starts the watches. Must be called inside a tokio runtime. Errors: the history or the files cannot be opened.
    pub fn start(client: &Client, settings: RegistrySettings) -> anyhow::Result<Self> {
        let history = settings.history.as_ref().map(ClusterHistory::open).transpose()?;
        let memory = MemoryBudget::of_process();
        let scopes = settings.scopes();
        let shared = Arc::new(Shared {
            cluster: Cluster::new(client.clone()),
            rights: AccessReviewer::new(client.clone()),
            downloads: memory.part(memory.total_bytes() / DOWNLOADS_DIVISOR),
        });
        let catalogs = settings.catalogs.clone();
        let catalogs = catalogs.map(|catalogs| ClusterCatalogs::new(catalogs, shared.downloads.clone()));
        let files = settings.files.as_ref();
        let files = files.map(|options| ClusterFiles::open(options, shared.downloads.clone()));
        let state = Arc::new(RegistryState {
            reader: Arc::new(Reader::new(unpack_upload)),
            callers: Authenticator::new(client.clone(), TOKEN_AUDIENCE),
            bodies: Bodies::of(&memory),
            changes: Arc::new(Sources::new(CHANGES)),
            reads: Arc::new(Sources::new(READS)),
            memory,
            metrics: Metrics::default(),
            history,
            files: files.transpose()?,
            catalogs,
            site: Site::default(),
            lists: scopes.len(),
            draining: AtomicBool::new(false),
            settings,
            shared,
        });
        let mut watches = Tasks::default();
        for scope in scopes.clone() {
            watches.spawn("watch of Skills", follow(client.clone(), Arc::clone(&state), scope));
        }
        watches.spawn(
            "removal of what changes of skills left behind",
            sweeping(Arc::clone(&state), scopes),
        );
        Ok(Self { state, watches })
    }

    /// State that the probes' port reports.
    pub fn probes(&self) -> Arc<dyn Probes> {
        Arc::clone(&self.state) as Arc<dyn Probes>
    }
}

async fn follow(client: Client, state: Arc<RegistryState>, scope: Option<String>) {
    let api = watch::api::<DeserializeGuard<knack_api::Skill>>(&client, scope.as_deref());
    watch::follow(api, "Skill", |event| {
        match decoded(event, "Skill") {
            Ok(event) => state.shared.cluster.apply(scope.as_deref(), event),
            Err(undecoded) => state.shared.cluster.apply_undecoded(scope.as_deref(), &undecoded),
        }
        future::ready(())
    })
    .await;
}

/// Removes what ended changes have left, first of all what this replica's last life has.
async fn sweeping(state: Arc<RegistryState>, scopes: Vec<Option<String>>) {
    while state.ready().is_err() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    loop {
        let swept = Box::pin(sweep(&state.shared.cluster, &scopes, Stamp::of_now().now)).await;
        state.metrics.swept.inc_by(swept.removed);
        if swept.removed > 0 {
            tracing::info!(
                removed = swept.removed,
                "ConfigMaps that changes of skills had left behind were removed"
            );
        }
        if let Err(error) = swept.outcome {
            state.metrics.sweep_failures.inc();
            tracing::warn!(%error, "not everything that changes of skills left behind could be removed; this is the first failure; trying again at the next cleanup");
        }
        tokio::time::sleep(sweep::EVERY).await;
    }
}

/// Serves until `stop`, or until a task has ended that it needs, and then as [`Stopping`] says.
pub async fn run(
    registry: Registry,
    certificate: Arc<Certificate>,
    listener: TcpListener,
    stopping: Stopping,
    stop: CancellationToken,
) -> Result<(), TaskEnded> {
    let Registry { state, mut watches } = registry;
    let (tasks, ending, stops) = (TaskTracker::new(), CancellationToken::new(), Stop::default());
    let mut certificates = tasks.spawn(Arc::clone(&certificate).follow(ending.clone()));
    let serving = Serving {
        bounds: BOUNDS,
        tls: Some(TlsAcceptor::from(Arc::new(certificate.server_config()))),
        metrics: state.metrics.listener.clone(),
        beacon: None,
    };
    let router = Router::new()
        .route(REPORT_PATH, any(of_gateway))
        .route(CLAIM_PATH, any(of_gateway))
        .route(FILES_PATH, any(of_gateway))
        .fallback(answer)
        .with_state(Arc::clone(&state));
    let mut connections = tasks.spawn(serve(listener, router, serving, stops.clone()));
    let failed = tokio::select! {
        () = stop.cancelled() => None,
        ended = watches.ended() => Some(ended),
        ended = &mut certificates => Some(TaskEnded::new("reading of the certificate", ended)),
        ended = &mut connections => return Err(TaskEnded::new("listener", ended)),
    };
    if let Some(error) = &failed {
        tracing::error!(%error, "a task has ended");
    }
    let unready = || state.draining.store(true, Ordering::Release);
    stopping.end(&stops, unready, connections).await;
    if let Some(history) = &state.history {
        history.kept.flush().await;
    }
    ending.cancel();
    drop(watches);
    failed.map_or(Ok(()), Err)
}

/// Answers a gateway that reports executions or keeps files. Not logged: each gateway does so all the time.
async fn of_gateway(State(state): State<Arc<RegistryState>>, request: Request) -> Response<Body> {
    let begun = Instant::now();
    let (api, answer) = if request.uri().path() == FILES_PATH {
        ("files", files(&state, request).await)
    } else {
        ("history", report(&state, request).await)
    };
    let (status, body) = answer.unwrap_or_else(|refusal| (status_of(&refusal), refusal.message.into()));
    let seconds = begun.elapsed().as_secs_f64();
    state.metrics.answered(api, status.as_u16(), seconds);
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response
}

async fn report(state: &RegistryState, request: Request) -> Result<(StatusCode, Bytes), HubRefusal> {
    let Some(history) = &state.history else {
        let text = "this registry keeps no history of executions";
        return Ok((StatusCode::NOT_FOUND, text.into()));
    };
    let is_claim = request.uri().path() == CLAIM_PATH;
    let (caller, held) = match posted(state, request).await? {
        Ok(posted) => posted,
        Err(refused) => return Ok(refused),
    };
    if held.bytes.len() > REPORT_MAX_BYTES {
        return Ok((StatusCode::PAYLOAD_TOO_LARGE, "the report is too large".into()));
    }
    if is_claim {
        return Ok(history.claim(&caller, &held.bytes).await);
    }
    let (status, text) = history.take(&caller, &held.bytes, &state.metrics).await;
    Ok((status, text.into()))
}

async fn files(state: &RegistryState, request: Request) -> Result<(StatusCode, Bytes), HubRefusal> {
    let Some(files) = &state.files else {
        return Ok((StatusCode::NOT_FOUND, "this registry keeps no files".into()));
    };
    match posted(state, request).await? {
        Ok((caller, held)) => {
            // Its memory is held by the last part of it, which may be on a thread when the gateway has left.
            let body = until_sent(held.bytes, held.holding);
            Ok(files.answer(&caller, &body, &state.metrics).await)
        }
        Err(refused) => Ok(refused),
    }
}

/// What a gateway posts, and the account that it proved to be; or why it is not served.
async fn posted(
    state: &RegistryState,
    request: Request,
) -> Result<Result<(ServiceAccountCaller, HeldBody), (StatusCode, Bytes)>, HubRefusal> {
    if request.method() != Method::POST {
        return Ok(Err((
            StatusCode::METHOD_NOT_ALLOWED,
            "method not allowed; use POST".into(),
        )));
    }
    let (parts, body) = request.into_parts();
    // A gateway names a client with each request that it sends on for one: no client may post as the gateway.
    if parts.headers.contains_key(HEADER_CLIENT) {
        let text = format!("requests with the header {HEADER_CLIENT} are answered by the Skills APIs only");
        return Ok(Err((StatusCode::FORBIDDEN, text.into())));
    }
    let caller = authenticate(&state.callers, &parts).await?;
    if !state.settings.serves(&caller.namespace) {
        let text = format!(
            "this installation does not serve namespace {}; its operator can add it to watchNamespaces of the chart",
            caller.namespace
        );
        return Ok(Err((StatusCode::FORBIDDEN, text.into())));
    }
    let held = state.bodies.read(&caller.key(), &parts.headers, body).await?;
    Ok(Ok((caller, held)))
}
