//! `knack registry`: serves the Skills APIs over the Skills of a cluster.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use knack_serving::{Stopping, probes, signals};
use knack_vocabulary::SECRET_REGISTRY_TLS;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::hub::tls::Certificate;
use crate::registry::{Registry, RegistrySettings, run};

/// Arguments of `knack registry`.
#[derive(Debug, Args)]
pub struct RegistryArgs {
    /// Serve this namespace only; may be given several times
    #[arg(long = "watch-namespace")]
    watch_namespaces: Vec<String>,
    /// Address to serve the APIs on, by TLS
    #[arg(long, default_value = "0.0.0.0:8444")]
    listen: SocketAddr,
    /// Folder with tls.crt and tls.key
    #[arg(long, value_name = "DIR")]
    tls_dir: PathBuf,
    /// Where /healthz, /readyz and /metrics answer
    #[arg(long, default_value = "127.0.0.1:9090")]
    metrics_listen: SocketAddr,
    /// Seconds after SIGTERM in which /readyz fails and everything is served on, until load balancers have noticed
    #[arg(
        long,
        value_name = "SECONDS",
        env = "KNACK_SHUTDOWN_PAUSE_SECONDS",
        default_value_t = 5
    )]
    shutdown_pause_seconds: u64,
    /// Seconds that answers under way may take after that
    #[arg(long, value_name = "SECONDS", env = "KNACK_DRAIN_SECONDS", default_value_t = 30)]
    drain_seconds: u64,
}

/// Serves until SIGTERM or SIGINT.
pub async fn registry(args: RegistryArgs) -> anyhow::Result<ExitCode> {
    let certificate = Certificate::read(&args.tls_dir).await.with_context(|| {
        format!(
            "--tls-dir {}: mount the Secret {SECRET_REGISTRY_TLS} there, which knack controller --registry creates",
            args.tls_dir.display()
        )
    })?;
    let listener = TcpListener::bind(args.listen)
        .await
        .with_context(|| format!("--listen {}", args.listen))?;
    let probes_listener = TcpListener::bind(args.metrics_listen)
        .await
        .with_context(|| format!("--metrics-listen {}", args.metrics_listen))?;
    let client = kube::Client::try_default()
        .await
        .context("no access to a cluster: neither a kubeconfig nor a pod's ServiceAccount")?;
    let watched = args.watch_namespaces.into_iter().filter(|name| !name.is_empty());
    let settings = RegistrySettings {
        watch_namespaces: watched.collect(),
    };
    tracing::info!(listen = %args.listen, "the registry starts");
    let registry = Registry::start(&client, settings);
    let stop = CancellationToken::new();
    let signal = stop.clone();
    tokio::spawn(async move {
        signals::stop().await;
        tracing::info!("stopping");
        signal.cancel();
    });
    let ended = CancellationToken::new();
    let probing = tokio::spawn(probes::serve(
        registry.probes(),
        axum::Router::new(),
        probes_listener,
        ended.clone().cancelled_owned(),
    ));
    let stopping = Stopping {
        pause: Duration::from_secs(args.shutdown_pause_seconds),
        drain: Duration::from_secs(args.drain_seconds),
    };
    run(registry, certificate, listener, stopping, stop).await;
    ended.cancel();
    let _ = probing.await;
    Ok(ExitCode::SUCCESS)
}
