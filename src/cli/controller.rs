//! `knack controller`: the reconciling half of the operator.

use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::signals;
use crate::controller::{ControllerSettings, RuntimeName, run};
use crate::sources::fetch::Network;

/// Arguments of `knack controller`.
#[derive(Debug, Args)]
pub struct ControllerArgs {
    /// Namespace of the installation: the leader's Lease is there
    #[arg(long, env = "POD_NAMESPACE", default_value = "knack-system")]
    namespace: String,
    /// Unique name of this process
    #[arg(long, env = "POD_NAME", hide = true)]
    identity: Option<String>,
    /// The SkillRuntime that serves all namespaces, as namespace/name
    #[arg(long)]
    default_runtime: Option<RuntimeName>,
    /// Look at this namespace only; may be given several times
    #[arg(long = "watch-namespace")]
    watch_namespaces: Vec<String>,
    /// Image of SkillRuntimes that name none
    #[arg(long)]
    sandbox_image: Option<String>,
    /// Accept sandbox images without a digest (test clusters)
    #[arg(long)]
    allow_image_tags: bool,
    /// PriorityClass of sandbox pods; a quota counts them by it
    #[arg(long, value_name = "NAME")]
    sandbox_priority_class: Option<String>,
    /// Fetch archives from this network although its addresses are not public, as 10.1.0.0/16; may be given several times
    #[arg(long = "allow-archive-network")]
    allow_archive_networks: Vec<Network>,
    /// A name or address of the hub besides its Service's, for its certificate; may be given several times
    #[arg(long = "hub-name")]
    hub_names: Vec<String>,
    /// Where /healthz, /readyz and /metrics answer
    #[arg(long, default_value = "127.0.0.1:9090")]
    metrics_listen: SocketAddr,
}

/// Runs the controller until SIGTERM or SIGINT.
pub async fn controller(args: ControllerArgs) -> anyhow::Result<ExitCode> {
    let identity = args
        .identity
        .unwrap_or_else(|| format!("knack-controller-{}", uuid::Uuid::new_v4().simple()));
    let settings = ControllerSettings {
        namespace: args.namespace,
        identity,
        default_runtime: args.default_runtime,
        watch_namespaces: args.watch_namespaces,
        default_image: args.sandbox_image,
        allow_image_tags: args.allow_image_tags,
        priority_class: args.sandbox_priority_class,
        allow_archive_networks: args.allow_archive_networks,
        hub_names: args.hub_names,
        metrics_listen: args.metrics_listen,
    };
    let listener = TcpListener::bind(settings.metrics_listen)
        .await
        .with_context(|| format!("--metrics-listen {}", settings.metrics_listen))?;
    let client = kube::Client::try_default()
        .await
        .context("no access to a cluster: neither a kubeconfig nor a pod's ServiceAccount")?;
    let shutdown = CancellationToken::new();
    let stop = shutdown.clone();
    tokio::spawn(async move {
        signals::stop().await;
        tracing::info!("stopping");
        stop.cancel();
    });
    run(client, settings, listener, shutdown).await?;
    Ok(ExitCode::SUCCESS)
}
