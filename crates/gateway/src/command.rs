//! `knack gateway`: the gateway in a cluster, with its catalog and its executions from a hub.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context as _, bail};
use axum::Router;
use clap::{Args, Subcommand, ValueEnum};
use knack_execution::remote::RemoteExecutor;
use knack_hub_api::RuntimeName;
use knack_hub_api::client::{Authorities, HubClient, HubClientSettings, Token};
use knack_memory::MemoryBudget;
use knack_serving::probes::{self, Probes};
use knack_telemetry::Tracer;
use knack_trust::CaArgs;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::budget::{BodyTimes, Requests};
use crate::caller::CallerSecret;
use crate::catalog::{LiveCatalog, ReportLevel, Snapshot, remote};
use crate::client_auth::ClientAuth;
use crate::code_tools::CodeTools;
use crate::files::{FILES_QUOTA_BYTES, FileStore};
use crate::grants::Grants;
use crate::health::{HealthArgs, health};
use crate::inject::Materials;
use crate::metrics::Metrics;
use crate::observe::Silent;
use crate::operator_key::KeyScope;
use crate::probing::GatewayProbes;
use crate::provider::Api;
use crate::provider_keys;
use crate::recent;
use crate::records::RecordStore;
use crate::registry_relay::Relay;
use crate::replicas::{Linking, Replicas};
use crate::reports::{Reporting, Reports};
use crate::run_history::RunHistory;
use crate::server::{self, Stopping};
use crate::tenants::Tenants;
use crate::uploads::Uploads;
use crate::upstream::{Base, BaseUrl, Upstreams};
use crate::user_files::{RemoteFiles, UserFiles};
use crate::{Gateway, HostPolicy};

/// How long the start waits for the secret that all replicas share: the first answer of the runtime's owner has it.
const FIRST_LINK_WAIT: Duration = Duration::from_secs(2);

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
    /// Ask the gateway of this pod whether it is alive: a probe that needs no shell
    Health(HealthArgs),
}

/// What the gateway serves, and how. What is required is an `Option`, since `health` goes without.
#[derive(Debug, Args)]
struct ServeArgs {
    /// Address to serve applications on
    #[arg(long, env = "KNACK_LISTEN", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// The hub, as https://host:port
    #[arg(long, value_name = "URL", env = "KNACK_HUB", required = true)]
    hub: Option<String>,
    /// File with the authorities of the hub's certificate; read again when it changes, and need not be there at the start
    #[arg(long, value_name = "FILE", env = "KNACK_HUB_CA", required = true)]
    hub_ca: Option<PathBuf>,
    /// The registry of uploaded skills, as https://host:port: requests to the Skills APIs go there, as this gateway's own
    /// ServiceAccount; --hub-ca has the authorities of its certificate, too
    #[arg(long, value_name = "URL", env = "KNACK_REGISTRY")]
    registry: Option<String>,
    /// The registry that keeps the history of executions, as https://host:port: runs are reported there, as this gateway's own
    /// ServiceAccount
    #[arg(long, value_name = "URL", env = "KNACK_HISTORY")]
    history: Option<String>,
    /// The registry that keeps uploads and containers, as https://host:port: clients' requests to the Files APIs of Anthropic and
    /// OpenAI and about containers go there instead of to the provider, as this gateway's own ServiceAccount
    #[arg(long, value_name = "URL", env = "KNACK_FILES_REGISTRY")]
    files_registry: Option<String>,
    /// File with a ServiceAccount token for the audience "knack"
    #[arg(
        long,
        value_name = "FILE",
        env = "KNACK_TOKEN_FILE",
        default_value = "/var/run/secrets/knack/token"
    )]
    token_file: PathBuf,
    /// The SkillRuntime to serve, as namespace/name
    #[arg(long, env = "KNACK_RUNTIME", required_unless_present = "default_runtime")]
    runtime: Option<RuntimeName>,
    /// The SkillRuntime to serve where --runtime names none: what the cluster has for applications that choose none
    #[arg(long, env = "KNACK_DEFAULT_RUNTIME")]
    default_runtime: Option<RuntimeName>,
    /// Base URL for the OpenAI API
    #[arg(long, value_name = "URL", env = "KNACK_UPSTREAM_OPENAI")]
    upstream_openai: Option<String>,
    /// Base URL for the Anthropic API
    #[arg(long, value_name = "URL", env = "KNACK_UPSTREAM_ANTHROPIC")]
    upstream_anthropic: Option<String>,
    /// Base URL for the Gemini API
    #[arg(long, value_name = "URL", env = "KNACK_UPSTREAM_GEMINI")]
    upstream_gemini: Option<String>,
    /// APIs whose upstream has no tool that runs programs (OpenAI's shell in a container, Anthropic's and Gemini's code
    /// execution): clients that ask for it get runs in the sandbox of the runtime
    #[arg(
        long,
        value_name = "APIS",
        env = "KNACK_SANDBOX_CODE_TOOLS",
        value_enum,
        value_delimiter = ','
    )]
    sandbox_code_tools: Vec<CodeTools>,
    #[command(flatten)]
    ca: CaArgs,
    /// Folder with provider keys, one file per API (openai, anthropic, gemini); sent instead of the client's
    #[arg(long, value_name = "DIR", env = "KNACK_PROVIDER_KEYS_DIR")]
    provider_keys_dir: Option<PathBuf>,
    /// Give callers everything that the keys in --provider-keys-dir can do (files, batches, stored answers of all
    /// callers that share them), not only model calls
    #[arg(long, env = "KNACK_PROVIDER_KEYS_WHOLE_ACCOUNT", requires = "provider_keys_dir")]
    provider_keys_whole_account: bool,
    /// Who may use this gateway
    #[arg(long, value_enum, env = "KNACK_CLIENT_AUTH", default_value_t)]
    client_auth: ClientAuthMode,
    /// Serve the tools and files of skills to MCP clients too, at /mcp. A call needs no model and no provider: whoever may
    /// use this gateway may run the tools of its skills
    #[arg(long, env = "KNACK_MCP")]
    mcp: bool,
    /// Base URL under which clients reach this gateway, for links to files in tool texts
    #[arg(long, value_name = "URL", env = "KNACK_PUBLIC_URL")]
    public_url: Option<String>,
    /// Memory for hidden turns between requests, MiB
    #[arg(long, value_name = "MIB", env = "KNACK_RECORD_STORE_MIB", default_value_t = 16)]
    record_store_mib: usize,
    /// Folder for a copy of the catalog, which a gateway that is started again serves until the hub answers
    #[arg(long, value_name = "DIR", env = "KNACK_CATALOG_DIR")]
    catalog_dir: Option<PathBuf>,
    /// Seconds that the start waits for the first catalog, so that a pod that is rolled out knows its skills before it gets
    /// traffic; 0 in a sidecar, whose application waits for it
    #[arg(long, value_name = "SECONDS", env = "KNACK_START_WAIT_SECONDS", default_value_t = 10)]
    start_wait_seconds: u64,
    /// Seconds after SIGTERM in which /readyz fails and requests are still taken, until load balancers have noticed
    #[arg(
        long,
        value_name = "SECONDS",
        env = "KNACK_SHUTDOWN_PAUSE_SECONDS",
        default_value_t = 5
    )]
    shutdown_pause_seconds: u64,
    /// Seconds that running answers may take after that; the longest request takes 540 unless its runtime says otherwise
    #[arg(long, value_name = "SECONDS", env = "KNACK_DRAIN_SECONDS", default_value_t = 600)]
    drain_seconds: u64,
    /// Where /healthz, /readyz and /metrics answer, and within the pod knack trace
    #[arg(long, env = "KNACK_METRICS_LISTEN", default_value = "127.0.0.1:9090")]
    metrics_listen: SocketAddr,
}

impl ServeArgs {
    fn runtime(&self) -> anyhow::Result<RuntimeName> {
        let chosen = self.runtime.as_ref().or(self.default_runtime.as_ref());
        chosen
            .cloned()
            .context("--runtime: name a SkillRuntime as namespace/name")
    }
}

/// The words of `--client-auth`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum ClientAuthMode {
    /// Anyone who reaches the port, with a provider key of their own.
    #[default]
    None,
    /// Callers that send a ServiceAccount token for the audience "knack-gateway" and may use the runtime.
    TokenReview,
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
    let runtime = args.runtime()?;
    let roots = args.ca.roots()?;
    let bases = bases(&args).await?;
    check_exposure(&args, &bases)?;
    let client = hub_client(&args)?;
    let listener = bind("--listen", args.listen).await?;
    let probes_listener = bind("--metrics-listen", args.metrics_listen).await?;
    let upstreams = Upstreams::new(&bases, &roots)?.with_key_scope(key_scope(&args));
    let rekeying = rekey(&args, &upstreams);
    let metrics = Metrics::default();
    let tracer = Tracer::from_env("knack-gateway", &roots).map_err(anyhow::Error::msg)?;
    let on_change = on_change(&metrics, upstreams.clone());
    let requests = Requests::new(&MemoryBudget::of_process(), BodyTimes::default());
    let blobs = remote::Blobs::new(requests.content());
    let folder = args.catalog_dir.clone();
    let (catalog, mut following) = remote::follow(client.clone(), runtime.clone(), blobs.clone(), folder, on_change);
    let secret = Arc::new(crate::secret::random_secret().into());
    let (replicas, mut linking) = Replicas::link(
        client.clone(),
        runtime.clone(),
        Arc::clone(&secret),
        requests.process(),
        metrics.replicas.clone(),
    )
    .context("a folder for files of other replicas cannot be made")?;
    let registry = OfRegistry::open(&args, &catalog, &secret)?;
    let files = files_of_registry(&args, &replicas, &requests)?;
    let gateway = Arc::new(Gateway {
        catalog,
        catalog_age: Some(following.age()),
        upstreams,
        executor: RemoteExecutor::new(client.clone(), runtime.clone()),
        sandbox_code_tools: args.sandbox_code_tools.iter().copied().collect(),
        grants: Arc::new(Grants::default()),
        uploads: registry.relay.clone().map(|relay| relay as Arc<dyn Uploads>),
        history: registry.reports.clone().map(|reports| reports as Arc<dyn RunHistory>),
        discovery: None,
        files: FileStore::open(FILES_QUOTA_BYTES).context("a folder for generated files cannot be made")?,
        user_files: files,
        files_folder: None,
        records: RecordStore::new(args.record_store_mib << 20),
        secret,
        replicas: Some(replicas),
        requests,
        metrics,
        recent: Arc::default(),
        tracer: tracer.clone(),
        console: Arc::new(Silent),
        recorder: None,
        host_policy: HostPolicy::Any,
        public_url: args.public_url.clone().map(|url| url.trim_end_matches('/').to_owned()),
        materials: Materials::default(),
        draining: AtomicBool::new(false),
    });
    registry.run_by(&gateway);
    let started = Arc::new(AtomicBool::new(false));
    let ended = CancellationToken::new();
    let probing = tokio::spawn(probe(&gateway, &started, probes_listener, ended.clone()));
    following.restored().await;
    let start_wait = Duration::from_secs(args.start_wait_seconds);
    if !start_wait.is_zero() {
        first_answers(start_wait, &mut following, &mut linking).await;
    }
    tracing::info!(listen = %args.listen, %runtime, "the gateway serves");
    started.store(true, std::sync::atomic::Ordering::Release);
    let routes = if args.mcp {
        mcp(Arc::clone(&gateway))
    } else {
        Router::new()
    };
    let service = server::Service {
        routes,
        auth: client_auth(args.client_auth, client, &runtime, blobs),
        stopping: stopping(&args),
        ..server::Service::open(gateway)
    };
    server::serve(service, listener, knack_serving::signals::stop()).await;
    linking.close().await;
    registry.close().await;
    tracer.close().await;
    ended.cancel();
    let _ = probing.await;
    drop((following, rekeying));
    Ok(ExitCode::SUCCESS)
}

/// Follows the folder of provider keys, if there is one, until it is dropped.
fn rekey(args: &ServeArgs, upstreams: &Upstreams) -> Option<AbortOnDropHandle<()>> {
    let folder = args.provider_keys_dir.clone()?;
    let following = provider_keys::follow(folder, upstreams.clone());
    Some(AbortOnDropHandle::new(tokio::spawn(following)))
}

/// Uploads and containers that a registry keeps, if one is named for it.
fn files_of_registry(
    args: &ServeArgs,
    replicas: &Arc<Replicas>,
    requests: &Requests,
) -> anyhow::Result<Option<Arc<UserFiles>>> {
    let client = client_if(args, "--files-registry", args.files_registry.as_ref())?;
    let files = |client| RemoteFiles::new(client, Some(Arc::clone(replicas)), requests.process());
    Ok(client.map(|client| UserFiles::of(files(client))))
}

/// Serves probes, metrics and the last requests until it has ended.
fn probe(
    gateway: &Arc<Gateway>,
    started: &Arc<AtomicBool>,
    listener: TcpListener,
    ended: CancellationToken,
) -> impl Future<Output = std::io::Result<()>> + Send + use<> {
    let gateway_probes: Arc<dyn Probes> = Arc::new(GatewayProbes {
        gateway: Arc::clone(gateway),
        started: Arc::clone(started),
    });
    let more = recent::local_router(Arc::clone(&gateway.recent));
    probes::serve(gateway_probes, more, listener, ended.cancelled_owned())
}

/// How the server ends.
const fn stopping(args: &ServeArgs) -> Stopping {
    Stopping {
        pause: Duration::from_secs(args.shutdown_pause_seconds),
        drain: Duration::from_secs(args.drain_seconds),
    }
}

/// The service that authenticates callers; `None`: callers are not authenticated.
fn client_auth(
    mode: ClientAuthMode,
    client: HubClient,
    runtime: &RuntimeName,
    blobs: remote::Blobs,
) -> Option<Arc<ClientAuth>> {
    match mode {
        ClientAuthMode::None => None,
        ClientAuthMode::TokenReview => {
            let tenants = Tenants::new(client.clone(), runtime.clone(), blobs);
            Some(ClientAuth::new(client, runtime.clone(), tenants))
        }
    }
}

/// Waits for the hub's first answers; a hub that is away does not stop the start.
async fn first_answers(wait: Duration, following: &mut remote::Following, linking: &mut Linking) {
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

fn hub_client(args: &ServeArgs) -> anyhow::Result<HubClient> {
    client_of(args, "--hub", args.hub.clone().context("--hub: required")?)
}

/// The gateway's connections to the registry of its cluster.
struct OfRegistry {
    /// `--registry`.
    relay: Option<Arc<Relay>>,
    /// `--history`.
    reports: Option<Arc<Reports>>,
    reporting: Option<Reporting>,
}

impl OfRegistry {
    fn open(args: &ServeArgs, catalog: &Arc<LiveCatalog>, secret: &Arc<CallerSecret>) -> anyhow::Result<Self> {
        let history = client_if(args, "--history", args.history.as_ref())?;
        let (reports, reporting) = history.map(Reports::start).unzip();
        let registry = client_if(args, "--registry", args.registry.as_ref())?;
        let relay = registry.map(|registry| {
            let relay = Relay::new(registry, Arc::clone(catalog), Arc::clone(secret), reports.clone());
            Arc::new(relay)
        });
        Ok(Self {
            relay,
            reports,
            reporting,
        })
    }

    fn run_by(&self, gateway: &Arc<Gateway>) {
        if let Some(relay) = &self.relay {
            relay.run_by(gateway);
        }
    }

    async fn close(self) {
        if let Some(reporting) = self.reporting {
            reporting.close().await;
        }
    }
}

/// Of a registry, which knows callers as the hub does.
fn client_if(args: &ServeArgs, flag: &str, url: Option<&String>) -> anyhow::Result<Option<HubClient>> {
    let url = url.filter(|url| !url.is_empty());
    url.map(|url| client_of(args, flag, url.clone())).transpose()
}

fn client_of(args: &ServeArgs, flag: &str, url: String) -> anyhow::Result<HubClient> {
    HubClient::new(HubClientSettings {
        url,
        authorities: Authorities::File(args.hub_ca.clone().context("--hub-ca: required")?),
        token: Token::File(args.token_file.clone()),
        address: None,
    })
    .map_err(|error| anyhow::anyhow!("{flag}: {error}"))
}

async fn bind(flag: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .with_context(|| format!("{flag} {address}"))
}

const fn key_scope(args: &ServeArgs) -> KeyScope {
    if args.provider_keys_whole_account {
        KeyScope::Account
    } else {
        KeyScope::Models
    }
}

/// Keys of the operator are for known callers only (docs/design/decisions.md#keys-of-the-operator).
fn check_exposure(args: &ServeArgs, bases: &BTreeMap<Api, Base>) -> anyhow::Result<()> {
    let keyed: Vec<&str> = bases
        .iter()
        .filter(|(_, base)| base.key.is_some())
        .map(|(api, _)| api.as_str())
        .collect();
    if !keyed.is_empty() && args.client_auth == ClientAuthMode::None && !args.listen.ip().is_loopback() {
        bail!(
            "--provider-keys-dir holds a key for {}, and --listen {} is open to the network: anyone who reaches it could use the key; \
             set --client-auth token-review, or listen on loopback",
            keyed.join(", "),
            args.listen
        );
    }
    Ok(())
}

async fn bases(args: &ServeArgs) -> anyhow::Result<BTreeMap<Api, Base>> {
    let mut keys = match &args.provider_keys_dir {
        Some(folder) => provider_keys::read(folder).await?,
        None => BTreeMap::new(),
    };
    let mut bases = BTreeMap::new();
    for (api, flag) in [
        (Api::OpenAi, &args.upstream_openai),
        (Api::Anthropic, &args.upstream_anthropic),
        (Api::Gemini, &args.upstream_gemini),
    ] {
        let key = keys.remove(&api);
        if flag.is_none() && key.is_none() {
            continue;
        }
        let url = BaseUrl::parse(flag.as_deref().unwrap_or(api.default_url()))
            .map_err(|error| anyhow::anyhow!("--upstream-{}: {error}", api.as_str()))?;
        bases.insert(api, Base { url, key });
    }
    Ok(bases)
}

fn on_change(metrics: &Metrics, upstreams: Upstreams) -> impl Fn(&Snapshot) + Send + Sync + 'static {
    let (skills, broken) = (metrics.skills.clone(), metrics.broken_sources.clone());
    move |snapshot: &Snapshot| {
        skills.set(i64::try_from(snapshot.skills.len()).unwrap_or(i64::MAX));
        let errors = snapshot
            .reports
            .iter()
            .filter(|report| report.level == ReportLevel::Error)
            .count();
        broken.set(i64::try_from(errors).unwrap_or(i64::MAX));
        for refused in upstreams.follow(&snapshot.runtime.upstreams) {
            tracing::warn!(%refused, "an upstream of the SkillRuntime is not used");
        }
        for report in &snapshot.reports {
            tracing::warn!(report = %report, "catalog");
        }
        tracing::info!(
            revision = %snapshot.revision, skills = snapshot.skills.len(), absent = snapshot.absent.as_deref(), "catalog"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sidecar cannot choose its arguments: it is configured by its environment alone.
    #[test]
    fn every_flag_has_an_environment_name() {
        let command = ServeArgs::augment_args(clap::Command::new("gateway"));
        let mut flags = 0;
        for flag in command.get_arguments() {
            let Some(long) = flag.get_long() else { continue };
            let name = format!("KNACK_{}", long.to_uppercase().replace('-', "_"));
            let found = flag.get_env().and_then(std::ffi::OsStr::to_str);
            assert_eq!(found, Some(name.as_str()), "--{long}");
            flags += 1;
        }
        assert!(flags > 15, "{flags}");
    }
}
