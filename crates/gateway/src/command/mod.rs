//! `knack gateway`: the gateway in a cluster, with its catalog and its executions from a hub.

mod args;
mod environment;
pub(crate) mod health;
mod providers;
mod registry;
mod sidecar;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use clap::{Args, Subcommand};
use futures::FutureExt as _;
use futures::future::OptionFuture;
use knack_execution::remote::RemoteExecutor;
use knack_hub_api::RuntimeName;
use knack_hub_api::client::HubClient;
use knack_memory::MemoryBudget;
use knack_serving::Stop;
use knack_serving::probes::{self, Probes};
use knack_serving::tasks::{TaskEnded, Tasks};
use knack_telemetry::Tracer;
use knack_trust::Roots;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use self::args::{ClientAuthMode, ServeArgs};
pub use self::environment::without_unusable_variables;
use self::health::{HealthArgs, health};
use self::providers::{check_exposure, configured, rekey};
use self::registry::{RegistryLinks, files_of_registry};
pub use self::sidecar::forgiving;
use self::sidecar::{SidecarSettings, or_ignored};
use crate::callers::caller::CallerSecret;
use crate::callers::client_auth::{ClientAccess, ClientAuth};
use crate::callers::tenants::Tenants;
use crate::catalog::{LiveCatalog, ReportLevel, RuntimeSettings, Snapshot, remote};
use crate::files::{FILES_FOLDER_REFUSED, FILES_QUOTA_BYTES, FileStore};
use crate::http_server::budget::{BodyTimes, RequestMemory};
use crate::http_server::probing::GatewayProbes;
use crate::http_server::server;
use crate::model_calls::inject::Materials;
use crate::model_calls::turn_store::TurnStore;
use crate::providers::upstream::Upstreams;
use crate::replicas::{LinkTasks, Replicas};
use crate::runs::grants::Grants;
use crate::runs::run_history::RunHistory;
use crate::runs::skill_runs::SkillRuns;
use crate::skills_api::uploads::Uploads;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::observe::SilentConsole;
use crate::telemetry::recent_requests;
use crate::telemetry::skill_use_reporter::UseReports;
use crate::{Gateway, HostPolicy};

/// How long the start waits for the secret that all replicas share: the first answer of the runtime's owner has it.
const FIRST_LINK_WAIT: Duration = Duration::from_secs(2);

/// Why a sidecar has no catalog whose setting names none. That of another SkillRuntime would be a surprise.
const RUNTIME_UNREADABLE: &str =
    "KNACK_RUNTIME is not namespace/name; correct the ConfigMap knack-sidecar of this namespace";

/// Arguments of `knack gateway`. Every flag has an environment name: a sidecar is configured by its environment alone.
#[derive(Debug, Args)]
#[command(subcommand_negates_reqs = true, args_conflicts_with_subcommands = true)]
pub struct GatewayArgs {
    #[command(subcommand)]
    command: Option<GatewayCommand>,
    #[command(flatten)]
    serve: ServeArgs,
}

#[derive(Debug, Subcommand)]
enum GatewayCommand {
    /// Check whether the gateway of this pod is alive: a probe that needs no shell
    Health(HealthArgs),
}

/// The routes of MCP for a gateway: of the crate above this one, which knows the protocol.
pub type McpRoutes = fn(Arc<Gateway>) -> Router;

/// Serves until SIGTERM or SIGINT, or does what the subcommand says. `mcp` is served where `--mcp` says so.
pub async fn gateway(args: GatewayArgs, mcp: McpRoutes) -> anyhow::Result<ExitCode> {
    match args.command {
        Some(GatewayCommand::Health(args)) => health(&args).await,
        None => serve(args.serve, mcp).await,
    }
}

async fn serve(args: ServeArgs, mcp: McpRoutes) -> anyhow::Result<ExitCode> {
    let stop = knack_serving::signals::stop().shared();
    let SidecarSettings { follows, closed_by } = SidecarSettings::read();
    environment::warn_of_ignored();
    let runtime = args.runtime()?;
    let roots = or_ignored(
        "KNACK_CA_FILE or KNACK_CA_PEM",
        args.ca.roots().map_err(Into::into),
        Roots::default,
    )?;
    let configured = configured(&args).await?;
    check_exposure(&args, &configured.bases)?;
    let client = args.hub_client()?;
    let listener = bind("--listen", args.listen).await?;
    let probes_listener = bind("--metrics-listen", args.metrics_listen).await?;
    let upstreams = Upstreams::new(&configured.bases, &roots)?
        .with_key_scope(args.key_scope())
        .without(configured.unreadable)
        .through_knack(args.upstream_knack.iter().copied());
    let mut rekeying = rekey(&args, &upstreams);
    let tracer = Tracer::from_env("knack-gateway", &roots).map_err(anyhow::Error::msg);
    let tracer = or_ignored("OTEL_EXPORTER_OTLP_*", tracer, Tracer::off)?;
    let GatewayTasks {
        gateway,
        blobs,
        mut registry,
        mut following,
        mut linking,
        mut use_reports,
    } = assemble(&args, (&runtime, follows), &client, upstreams, tracer.clone())?;
    let started = Arc::new(AtomicBool::new(false));
    let ended = CancellationToken::new();
    let probing = tokio::spawn(probe(&gateway, &started, probes_listener, ended.clone()));
    if let (Some(following), Some(linking)) = (&mut following, &mut linking) {
        following.restored().await;
        tokio::select! {
            () = first_answers(Duration::from_secs(args.start_wait_seconds), following, linking) => {}
            () = stop.clone() => {}
        }
    }
    tracing::info!(listen = %args.listen, %runtime, "the gateway is listening");
    started.store(true, std::sync::atomic::Ordering::Release);
    let routes = if args.mcp {
        mcp(Arc::clone(&gateway))
    } else {
        Router::new()
    };
    let service = server::Service {
        routes,
        auth: closed_by
            .map(ClientAccess::Closed)
            .or_else(|| client_auth(args.client_auth, client, &runtime, blobs)),
        stopping: args.stopping(),
        ..server::Service::open(gateway)
    };
    let mut failed = None;
    let stop = async {
        let needed = task_ended(
            &mut following,
            &mut linking,
            &mut use_reports,
            &mut registry,
            &mut rekeying,
        );
        tokio::select! {
            () = stop => {}
            ended = needed => {
                tracing::error!(error = %ended, "a task has ended");
                failed = Some(ended);
            }
        }
    };
    server::serve(service, listener, stop).await;
    close(linking, use_reports, registry).await;
    tracer.close().await;
    ended.cancel();
    let _ = probing.await;
    drop((following, rekeying));
    failed.map_or(Ok(ExitCode::SUCCESS), |ended| Err(ended.into()))
}

/// Returns when a task has ended without which the gateway would go on with what it last saw, or send on nothing more. It then ends
/// as on a stop signal, and is started again.
async fn task_ended(
    following: &mut Option<remote::CatalogTasks>,
    linking: &mut Option<LinkTasks>,
    use_reports: &mut Option<UseReports>,
    registry: &mut RegistryLinks,
    rekeying: &mut Tasks,
) -> TaskEnded {
    tokio::select! {
        Some(ended) = OptionFuture::from(following.as_mut().map(remote::CatalogTasks::ended)) => ended,
        Some(ended) = OptionFuture::from(linking.as_mut().map(LinkTasks::ended)) => ended,
        Some(ended) = OptionFuture::from(use_reports.as_mut().map(UseReports::ended)) => ended,
        ended = registry.ended() => ended,
        ended = rekeying.ended() => ended,
    }
}

/// Ends what a gateway sends to others, once they have what is left.
async fn close(linking: Option<LinkTasks>, use_reports: Option<UseReports>, registry: RegistryLinks) {
    if let Some(linking) = linking {
        linking.close().await;
    }
    if let Some(use_reports) = use_reports {
        use_reports.close().await;
    }
    registry.close().await;
}

/// The gateway with the tasks that keep it current.
struct GatewayTasks {
    gateway: Arc<Gateway>,
    blobs: remote::Blobs,
    registry: RegistryLinks,
    /// `None`: there is no SkillRuntime to follow.
    following: Option<remote::CatalogTasks>,
    linking: Option<LinkTasks>,
    /// `None`: there is no SkillRuntime to report to.
    use_reports: Option<UseReports>,
}

/// Makes the gateway, and starts to follow the hub if it `follows` the SkillRuntime. Errors: a folder cannot be made, or a flag
/// cannot be used.
fn assemble(
    args: &ServeArgs,
    (runtime, follows): (&RuntimeName, bool),
    client: &HubClient,
    upstreams: Upstreams,
    tracer: Tracer,
) -> anyhow::Result<GatewayTasks> {
    let metrics = Metrics::default();
    let on_change = on_change(&metrics, upstreams.clone());
    let requests = RequestMemory::new(&MemoryBudget::of_process(), BodyTimes::default());
    let blobs = remote::Blobs::new(requests.content());
    let folder = args.catalog_dir.clone();
    let followed = follows.then(|| remote::follow(client.clone(), runtime.clone(), blobs.clone(), folder, on_change));
    let (catalog, following) = followed.unzip();
    let catalog = catalog.unwrap_or_else(no_catalog);
    let secret = Arc::new(crate::callers::secret::random_secret().into());
    let link = || link(client, runtime, &secret, &requests, &metrics);
    let (replicas, linking) = follows.then(link).transpose()?.unzip();
    let registry = RegistryLinks::open(args, &catalog, &secret)?;
    let files = files_of_registry(args, replicas.as_ref(), &requests)?;
    let gateway = Arc::new(Gateway {
        catalog,
        catalog_age: following.as_ref().map(remote::CatalogTasks::age),
        upstreams,
        executor: RemoteExecutor::new(client.clone(), runtime.clone()),
        // Without a SkillRuntime there is no sandbox.
        sandbox_code_tools: args.sandbox_code_tools.iter().copied().filter(|_| follows).collect(),
        grants: Arc::new(Grants::default()),
        uploads: registry.relay.clone().map(|relay| relay as Arc<dyn Uploads>),
        skill_runs: SkillRuns::new(run_model(args)),
        history: registry.reports.clone().map(|reports| reports as Arc<dyn RunHistory>),
        discovery: None,
        files: FileStore::open(FILES_QUOTA_BYTES).context(FILES_FOLDER_REFUSED)?,
        user_files: files,
        files_folder: None,
        turn_store: TurnStore::new(args.record_store_mib << 20),
        secret,
        replicas,
        requests,
        metrics,
        recent: Arc::default(),
        tracer,
        console: Arc::new(SilentConsole),
        recorder: None,
        host_policy: HostPolicy::Any,
        public_url: args.public_url.clone().map(|url| url.trim_end_matches('/').to_owned()),
        materials: Materials::default(),
        stops: Stop::default(),
    });
    registry.run_by(&gateway);
    let counts = || Arc::clone(&gateway.metrics.skill_uses);
    let use_reports = follows.then(|| UseReports::start(client.clone(), runtime, counts()));
    Ok(GatewayTasks {
        gateway,
        blobs,
        registry,
        following,
        linking,
        use_reports,
    })
}

/// The model of runs of skills. Without a registry there are none.
fn run_model(args: &ServeArgs) -> Option<String> {
    let model = args.run_model.clone().filter(|model| !model.is_empty());
    if model.is_some() && args.registry.is_none() {
        tracing::warn!("--run-model has no effect without --registry: skills are run by the Skills APIs");
    }
    model
}

/// The catalog of a sidecar whose SkillRuntime is not known.
fn no_catalog() -> Arc<LiveCatalog> {
    LiveCatalog::fixed(Snapshot::without_catalog(
        RuntimeSettings::default(),
        RUNTIME_UNREADABLE,
    ))
}

/// Links the gateway to its other replicas. Errors: a folder cannot be made.
fn link(
    client: &HubClient,
    runtime: &RuntimeName,
    secret: &Arc<CallerSecret>,
    requests: &RequestMemory,
    metrics: &Metrics,
) -> anyhow::Result<(Arc<Replicas>, LinkTasks)> {
    Replicas::link(
        client.clone(),
        runtime.clone(),
        Arc::clone(secret),
        requests.process(),
        metrics.replicas.clone(),
    )
    .context("cannot create a folder for files of other replicas")
}

/// Serves probes, metrics and the last requests until it has ended.
fn probe(
    gateway: &Arc<Gateway>,
    started: &Arc<AtomicBool>,
    listener: TcpListener,
    ended: CancellationToken,
) -> impl Future<Output = ()> + Send + use<> {
    let gateway_probes: Arc<dyn Probes> = Arc::new(GatewayProbes {
        gateway: Arc::clone(gateway),
        started: Arc::clone(started),
    });
    let more = recent_requests::local_router(Arc::clone(&gateway.recent));
    probes::serve(gateway_probes, more, listener, ended.cancelled_owned())
}

/// The service that authenticates callers; `None`: callers are not authenticated.
fn client_auth(
    mode: ClientAuthMode,
    client: HubClient,
    runtime: &RuntimeName,
    blobs: remote::Blobs,
) -> Option<ClientAccess> {
    match mode {
        ClientAuthMode::None => None,
        ClientAuthMode::TokenReview => {
            let tenants = Tenants::new(client.clone(), runtime.clone(), blobs);
            Some(ClientAccess::Tokens(ClientAuth::new(client, runtime.clone(), tenants)))
        }
    }
}

/// Waits for the hub's first answers, unless it is to wait for nothing; a hub that is away does not stop the start.
async fn first_answers(wait: Duration, following: &mut remote::CatalogTasks, linking: &mut LinkTasks) {
    if wait.is_zero() {
        return;
    }
    if tokio::time::timeout(wait, following.first_snapshot()).await.is_err() {
        if following.age().is_saved() {
            tracing::warn!("the hub does not answer: requests get the skills of the saved catalog until it does");
        } else {
            tracing::warn!("no catalog yet: requests are passed on without skills until the hub answers");
        }
    }
    if tokio::time::timeout(wait.min(FIRST_LINK_WAIT), linking.first())
        .await
        .is_err()
    {
        tracing::warn!("no link to other replicas of this gateway yet: each keeps hidden turns and files for itself");
    }
}

async fn bind(flag: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .with_context(|| format!("{flag} {address}"))
}

fn on_change(metrics: &Metrics, upstreams: Upstreams) -> impl Fn(&Snapshot) + Send + Sync + 'static {
    let of_catalogs = metrics.of_catalogs();
    move |snapshot: &Snapshot| {
        let errors = snapshot
            .reports
            .iter()
            .filter(|report| report.level == ReportLevel::Error)
            .count();
        of_catalogs(snapshot.names(), errors);
        for refused in upstreams.follow(&snapshot.runtime.upstreams) {
            tracing::warn!(%refused, "an upstream of the SkillRuntime is not used");
        }
        for report in &snapshot.reports {
            tracing::warn!(report = %report, "the catalog has a problem");
        }
        tracing::info!(
            revision = %snapshot.revision, skills = snapshot.skills.len(), absent = snapshot.absent.as_deref(), "the catalog changed"
        );
    }
}
