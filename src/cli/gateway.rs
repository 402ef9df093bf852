//! `knack gateway`: the gateway in a cluster, with its catalog and its executions from a hub.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::{provider_keys, signals};
use crate::catalog::{ReportLevel, Snapshot, remote};
use crate::execution::remote::RemoteExecutor;
use crate::gateway::budget::{BodyTimes, Requests};
use crate::gateway::client_auth::ClientAuth;
use crate::gateway::files::{FILES_QUOTA_BYTES, FileStore};
use crate::gateway::grants::Grants;
use crate::gateway::inject::Materials;
use crate::gateway::metrics::Metrics;
use crate::gateway::observe::Silent;
use crate::gateway::operator_key::KeyScope;
use crate::gateway::records::RecordStore;
use crate::gateway::replicas::Replicas;
use crate::gateway::server::{self, Stopping};
use crate::gateway::tenants::Tenants;
use crate::gateway::upstream::{Api, Base, Upstreams};
use crate::gateway::{Gateway, HostPolicy};
use crate::hub_api::RuntimeName;
use crate::hub_client::{Authorities, HubClient, HubClientSettings, Token};
use crate::memory::MemoryBudget;
use crate::probes::{self, Probes};
use crate::telemetry::Tracer;

/// How long the start waits for the first snapshot: a pod that is rolled out should know its skills before it gets traffic,
/// and traffic must flow all the same while the hub is away.
const FIRST_SNAPSHOT_WAIT: Duration = Duration::from_secs(10);

/// How long the start waits for the secret that all replicas share: it comes with the first answer of the runtime's owner.
const FIRST_LINK_WAIT: Duration = Duration::from_secs(2);

/// Arguments of `knack gateway`.
#[derive(Debug, Args)]
pub struct GatewayArgs {
    /// Address to serve applications on
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// The hub, as https://host:port
    #[arg(long, value_name = "URL")]
    hub: String,
    /// File with the authorities of the hub's certificate
    #[arg(long, value_name = "FILE")]
    hub_ca: PathBuf,
    /// File with a ServiceAccount token for the audience "knack"
    #[arg(long, value_name = "FILE", default_value = "/var/run/secrets/knack/token")]
    token_file: PathBuf,
    /// The SkillRuntime to serve, as namespace/name
    #[arg(long)]
    runtime: RuntimeName,
    /// Base URL for the OpenAI API
    #[arg(long, value_name = "URL")]
    upstream_openai: Option<String>,
    /// Base URL for the Anthropic API
    #[arg(long, value_name = "URL")]
    upstream_anthropic: Option<String>,
    /// Base URL for the Gemini API
    #[arg(long, value_name = "URL")]
    upstream_gemini: Option<String>,
    /// Folder with provider keys, one file per API (openai, anthropic, gemini); sent instead of the client's
    #[arg(long, value_name = "DIR")]
    provider_keys_dir: Option<PathBuf>,
    /// Give callers everything that the keys in --provider-keys-dir can do (files, batches, stored answers of everybody who
    /// shares them), not only model calls
    #[arg(long, requires = "provider_keys_dir")]
    provider_keys_whole_account: bool,
    /// Who may use this gateway
    #[arg(long, value_enum, default_value_t)]
    client_auth: ClientAuthMode,
    /// Base URL under which clients reach this gateway, for links to files in tool texts
    #[arg(long, value_name = "URL")]
    public_url: Option<String>,
    /// Memory for hidden turns between requests, MiB
    #[arg(long, value_name = "MIB", default_value_t = 16)]
    record_store_mib: usize,
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
    /// Where /healthz, /readyz and /metrics answer
    #[arg(long, default_value = "127.0.0.1:9090")]
    metrics_listen: SocketAddr,
}

/// The words of `--client-auth`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum ClientAuthMode {
    /// Whoever reaches the port, with a provider key of his own.
    #[default]
    None,
    /// Who shows a ServiceAccount token for the audience "knack-gateway" and may use the runtime.
    TokenReview,
}

/// Serves until SIGTERM or SIGINT.
pub async fn gateway(args: GatewayArgs) -> anyhow::Result<ExitCode> {
    let bases = bases(&args).await?;
    check_exposure(&args, &bases)?;
    let client = hub_client(&args)?;
    let listener = bind("--listen", args.listen).await?;
    let probes_listener = bind("--metrics-listen", args.metrics_listen).await?;
    let upstreams = Upstreams::new(&bases)?.with_key_scope(key_scope(&args));
    let rekeying = args
        .provider_keys_dir
        .clone()
        .map(|folder| AbortOnDropHandle::new(tokio::spawn(provider_keys::follow(folder, upstreams.clone()))));
    let metrics = Metrics::default();
    let tracer = Tracer::from_env("knack-gateway").map_err(anyhow::Error::msg)?;
    let on_change = on_change(&metrics, upstreams.clone());
    let requests = Requests::new(&MemoryBudget::of_process(), BodyTimes::default());
    let blobs = remote::Blobs::new(requests.content());
    let (catalog, mut following) = remote::follow(client.clone(), args.runtime.clone(), blobs.clone(), on_change);
    let secret = Arc::new(super::dev::random_secret().into());
    let (replicas, mut linking) = Replicas::link(
        client.clone(),
        args.runtime.clone(),
        Arc::clone(&secret),
        requests.process(),
        metrics.replicas.clone(),
    )
    .context("a folder for files of other replicas cannot be made")?;
    let gateway = Arc::new(Gateway {
        catalog,
        upstreams,
        executor: RemoteExecutor::new(client.clone(), args.runtime.clone()),
        grants: Arc::new(Grants::default()),
        files: FileStore::open(FILES_QUOTA_BYTES).context("a folder for generated files cannot be made")?,
        files_folder: None,
        records: RecordStore::new(args.record_store_mib << 20),
        secret,
        replicas: Some(replicas),
        requests,
        metrics,
        tracer: tracer.clone(),
        console: Arc::new(Silent),
        recorder: None,
        host_policy: HostPolicy::Any,
        public_url: args.public_url.clone().map(|url| url.trim_end_matches('/').to_owned()),
        materials: Materials::default(),
        draining: AtomicBool::new(false),
    });
    let started = Arc::new(AtomicBool::new(false));
    let ended = CancellationToken::new();
    let told: Arc<dyn Probes> = Arc::new(GatewayProbes {
        gateway: Arc::clone(&gateway),
        started: Arc::clone(&started),
    });
    let probing = tokio::spawn(probes::serve(told, probes_listener, ended.clone().cancelled_owned()));
    if tokio::time::timeout(FIRST_SNAPSHOT_WAIT, following.first_snapshot())
        .await
        .is_err()
    {
        tracing::warn!("no catalog yet: requests are passed on without skills until the hub answers");
    }
    if tokio::time::timeout(FIRST_LINK_WAIT, linking.first()).await.is_err() {
        tracing::warn!("no link to other replicas of this gateway yet: each keeps hidden turns and files for itself");
    }
    let auth = match args.client_auth {
        ClientAuthMode::None => None,
        ClientAuthMode::TokenReview => {
            let tenants = Tenants::new(client.clone(), args.runtime.clone(), blobs);
            Some(ClientAuth::new(client, args.runtime.clone(), tenants))
        }
    };
    tracing::info!(listen = %args.listen, runtime = %args.runtime, "the gateway serves");
    started.store(true, std::sync::atomic::Ordering::Release);
    let service = server::Service {
        auth,
        stopping: Stopping {
            pause: Duration::from_secs(args.shutdown_pause_seconds),
            drain: Duration::from_secs(args.drain_seconds),
        },
        ..server::Service::open(gateway)
    };
    server::serve(service, listener, signals::stop()).await;
    linking.close().await;
    tracer.close().await;
    ended.cancel();
    let _ = probing.await;
    drop((following, rekeying));
    Ok(ExitCode::SUCCESS)
}

fn hub_client(args: &GatewayArgs) -> anyhow::Result<HubClient> {
    HubClient::new(HubClientSettings {
        url: args.hub.clone(),
        authorities: Authorities::File(args.hub_ca.clone()),
        token: Token::File(args.token_file.clone()),
        address: None,
    })
    .map_err(|error| anyhow::anyhow!("--hub: {error}"))
}

async fn bind(flag: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .with_context(|| format!("{flag} {address}"))
}

const fn key_scope(args: &GatewayArgs) -> KeyScope {
    if args.provider_keys_whole_account {
        KeyScope::Account
    } else {
        KeyScope::Models
    }
}

/// Keys of the operator are for known callers only (docs/design/decisions.md#keys-of-the-operator).
fn check_exposure(args: &GatewayArgs, bases: &BTreeMap<Api, Base>) -> anyhow::Result<()> {
    let keyed: Vec<&str> = bases
        .iter()
        .filter(|(_, base)| base.key.is_some())
        .map(|(api, _)| api.as_str())
        .collect();
    if !keyed.is_empty() && args.client_auth == ClientAuthMode::None && !args.listen.ip().is_loopback() {
        bail!(
            "--provider-keys-dir holds a key for {}, and --listen {} is open to the network: whoever reaches it would spend it; \
             set --client-auth token-review, or listen on loopback",
            keyed.join(", "),
            args.listen
        );
    }
    Ok(())
}

async fn bases(args: &GatewayArgs) -> anyhow::Result<BTreeMap<Api, Base>> {
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
        let url = flag.clone().unwrap_or_else(|| api.default_url().to_owned());
        crate::gateway::upstream::check_url(&url)
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

struct GatewayProbes {
    gateway: Arc<Gateway>,
    started: Arc<AtomicBool>,
}

impl Probes for GatewayProbes {
    fn ready(&self) -> Result<String, String> {
        if self.gateway.is_draining() {
            return Err("draining".to_owned());
        }
        if !self.started.load(std::sync::atomic::Ordering::Acquire) {
            return Err("waiting for the first catalog".to_owned());
        }
        let snapshot = self.gateway.catalog.current();
        Ok(match &snapshot.absent {
            Some(reason) => format!("without catalog: {reason}"),
            None => format!("revision={} skills={}", snapshot.revision, snapshot.skills.len()),
        })
    }

    fn metrics(&self) -> String {
        self.gateway.metrics_text()
    }
}
