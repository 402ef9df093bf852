//! `knack registry`: serves the Skills APIs over the Skills of a cluster.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use knack_registry::HistorySettings;
use knack_trust::CaArgs;
use knack_vocabulary::SECRET_REGISTRY_TLS;
use tokio::net::TcpListener;

use super::explicit_flags::ExplicitFlags;
use super::listen_address::listen_address;
use super::probing::Probing;
use super::stop::{ShutdownPauseArgs, stop_on_signal};
use crate::api_client;
use crate::catalogs::CatalogArgs;
use crate::certificates::Certificate;
use crate::registry::{FilesOptions, HistoryOptions, Registry, RegistrySettings, run};

/// MiB of the history by default: some 20,000 executions of 12 KiB.
const HISTORY_MIB: u64 = 256;

/// Hours that an upload is kept by default.
const FILES_HOURS: u32 = 24;
/// MiB of uploads and containers by default: 32 containers of the largest size.
const FILES_MIB: u64 = 1024;

/// Arguments of `knack registry`.
#[derive(Debug, Args)]
pub struct RegistryArgs {
    #[command(flatten)]
    typed: ExplicitFlags,
    /// Serve this namespace only; may be given several times
    #[arg(long = "watch-namespace")]
    watch_namespaces: Vec<String>,
    /// Address to serve the APIs on, by TLS
    #[arg(long, default_value = "0.0.0.0:8444", value_parser = listen_address)]
    listen: SocketAddr,
    /// Folder with tls.crt and tls.key
    #[arg(long, value_name = "DIR")]
    tls_dir: PathBuf,
    /// Address to serve /healthz, /readyz and /metrics on
    #[arg(long, default_value = "127.0.0.1:9090", value_parser = listen_address)]
    metrics_listen: SocketAddr,
    /// Keep the history of executions that gateways report in this folder, which no other process may write
    #[arg(long, value_name = "DIR")]
    history_dir: Option<PathBuf>,
    /// Days that executions are kept
    #[arg(long, value_name = "DAYS", default_value_t = HistorySettings::DAYS, requires = "history_dir",
        value_parser = clap::value_parser!(u32).range(1..))]
    history_days: u32,
    /// Maximum size of the history on disk, MiB, in steps of 4
    #[arg(long, value_name = "MIB", default_value_t = HISTORY_MIB, requires = "history_dir",
        value_parser = clap::value_parser!(u64).range(8..=65_536))]
    history_mib: u64,
    /// Keep the files that clients of gateways upload, and their containers, in this folder, which no other process may use
    #[arg(long, value_name = "DIR")]
    files_dir: Option<PathBuf>,
    /// Hours that an upload is kept
    #[arg(long, value_name = "HOURS", default_value_t = FILES_HOURS, requires = "files_dir",
        value_parser = clap::value_parser!(u32).range(1..=2160))]
    files_hours: u32,
    /// Maximum size of all files on disk, MiB; one ServiceAccount may use half of it, one client of it a quarter
    #[arg(long, value_name = "MIB", default_value_t = FILES_MIB, requires = "files_dir",
        value_parser = clap::value_parser!(u64).range(128..=1_048_576))]
    files_mib: u64,
    #[command(flatten)]
    catalog: CatalogArgs,
    #[command(flatten)]
    ca: CaArgs,
    #[command(flatten)]
    shutdown_pause: ShutdownPauseArgs,
    /// Seconds after that for running answers to end
    #[arg(long, value_name = "SECONDS", env = "KNACK_DRAIN_SECONDS", default_value_t = 30)]
    drain_seconds: u64,
}

/// Serves until SIGTERM or SIGINT.
pub async fn registry(args: RegistryArgs) -> anyhow::Result<ExitCode> {
    if !args.catalog.is_named() {
        args.typed.refuse(
            &["--ca-file", "--ca-pem"],
            "without --catalog, the registry connects to no other server",
        )?;
    }
    let catalogs = args.catalog.named(&args.ca.roots()?)?;
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
    let client = api_client::client().await?;
    let watched = args.watch_namespaces.into_iter().filter(|name| !name.is_empty());
    let settings = RegistrySettings {
        watch_namespaces: watched.collect(),
        history: args.history_dir.map(|folder| HistoryOptions {
            folder,
            days: args.history_days,
            most_bytes: args.history_mib << 20,
        }),
        files: args.files_dir.map(|folder| FilesOptions {
            folder,
            hours: args.files_hours,
            most_bytes: args.files_mib << 20,
        }),
        catalogs,
    };
    tracing::info!(listen = %args.listen, "the registry starts");
    let registry = Registry::start(&client, settings)?;
    let stop = stop_on_signal();
    let probing = Probing::start(registry.probes(), probes_listener);
    let stopping = args.shutdown_pause.before(args.drain_seconds);
    let result = run(registry, certificate, listener, stopping, stop).await;
    probing.end().await;
    result.context("serving failed")?;
    Ok(ExitCode::SUCCESS)
}
