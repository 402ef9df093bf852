//! `knack controller`: the reconciling half of the operator.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::installation::InstallationArgs;
use super::signals;
use crate::controller::{ControllerSettings, run};
use crate::sources::fetch::Network;

/// Arguments of `knack controller`.
#[derive(Debug, Args)]
pub struct ControllerArgs {
    #[command(flatten)]
    installation: InstallationArgs,
    /// Unique name of this process
    #[arg(long, env = "POD_NAME", hide = true)]
    identity: Option<String>,
    /// Fetch archives from this network although its addresses are not public, as 10.1.0.0/16; may be given several times
    #[arg(long = "allow-archive-network")]
    allow_archive_networks: Vec<Network>,
    /// A name or address of the hub besides its Service's, for its certificate; may be given several times
    #[arg(long = "hub-name")]
    hub_names: Vec<String>,
}

/// Runs the controller until SIGTERM or SIGINT.
pub async fn controller(args: ControllerArgs) -> anyhow::Result<ExitCode> {
    let identity = args
        .identity
        .unwrap_or_else(|| format!("knack-controller-{}", uuid::Uuid::new_v4().simple()));
    let installation = args.installation;
    let settings = ControllerSettings {
        namespace: installation.namespace,
        identity,
        default_runtime: installation.default_runtime,
        watch_namespaces: installation.watch_namespaces,
        runtime_namespaces: installation.runtime_namespaces,
        default_image: installation.sandbox_image,
        allow_image_tags: installation.allow_image_tags,
        priority_class: installation.sandbox_priority_class,
        allow_archive_networks: args.allow_archive_networks,
        hub_names: args.hub_names,
        metrics_listen: installation.metrics_listen,
    };
    if let Some(default) = &settings.default_runtime
        && !settings.looks_after(&default.namespace)
    {
        anyhow::bail!(
            "--default-runtime {default}: its namespace is neither among --watch-namespace nor among --runtime-namespaces; add it, or nobody fences its sandboxes"
        );
    }
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
