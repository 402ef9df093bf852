//! `knack hub`: serves gateways, and owns the sandboxes.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use knack_execution::Language;
use knack_hub_api::client::replica_host;
use knack_telemetry::Tracer;
use knack_trust::CaArgs;
use knack_vocabulary::{SECRET_HUB_JOURNAL, SERVICE_HUB};
use sha2::{Digest as _, Sha256};
use tokio::net::TcpListener;

use super::installation::{InstallationArgs, SandboxArgs};
use super::listen_address::listen_address;
use super::probing::Probing;
use super::stop::{ShutdownPauseArgs, stop_on_signal};
use crate::api_client;
use crate::certificates::Certificate;
use crate::hub::server::Hub;
use crate::hub::{HubSettings, run};
use crate::jobs::{Beacon, JobClients, JobSettings, ProbeTarget};
use crate::lease::identity_of;

/// Arguments of `knack hub`.
#[derive(Debug, Args)]
pub struct HubArgs {
    #[command(flatten)]
    installation: InstallationArgs,
    #[command(flatten)]
    sandbox: SandboxArgs,
    /// Address to serve gateways on, by TLS
    #[arg(long, default_value = "0.0.0.0:8443", value_parser = listen_address)]
    listen: SocketAddr,
    /// Image with knack-runner in its root, for sandbox images without the runner: mounted into every sandbox as an image
    /// volume (Kubernetes 1.35 and later)
    #[arg(long, value_name = "IMAGE")]
    runner_image: Option<String>,
    /// Interpreters in the image of SkillRuntimes that do not name an image, most used first: python, node
    #[arg(long, value_delimiter = ',', value_parser = language, default_value = "python")]
    sandbox_languages: Vec<Language>,
    #[command(flatten)]
    ca: CaArgs,
    /// Folder with tls.crt and tls.key
    #[arg(long, value_name = "DIR")]
    tls_dir: PathBuf,
    /// File with the key of the journals, the same for all replicas and across restarts; changing it loses the results of
    /// running executions
    #[arg(long, value_name = "FILE")]
    journal_key: PathBuf,
    /// Seconds after which another replica takes over the runtimes of a replica that no longer answers
    #[arg(long, value_name = "SECONDS", default_value_t = JobSettings::LEASE_DURATION.as_secs(),
        value_parser = clap::value_parser!(u64).range(3..=120))]
    takeover_after: u64,
    /// Seconds in which a new sandbox must be ready, including the pull of its image and the start of a node
    #[arg(long, value_name = "SECONDS", default_value_t = JobSettings::START_TIMEOUT.as_secs(),
        value_parser = clap::value_parser!(u64).range(10..=1800))]
    start_timeout: u64,
    #[command(flatten)]
    shutdown_pause: ShutdownPauseArgs,
    /// Seconds after that for running executions to end at this replica; the others are handed over, and their callers get
    /// the result from the next owner
    #[arg(long, value_name = "SECONDS", env = "KNACK_DRAIN_SECONDS", default_value_t = 60)]
    drain_seconds: u64,
    /// URL at which callers of other replicas reach this one, as https://host:port; by default built from --pod-ip
    #[arg(long, value_name = "URL")]
    advertise: Option<String>,
    /// Address of this pod
    #[arg(long, env = "POD_IP", hide = true)]
    pod_ip: Option<IpAddr>,
    /// Name of this replica
    #[arg(long, env = "POD_NAME", default_value = "knack-hub", hide = true)]
    replica: String,
}

/// Serves until SIGTERM or SIGINT.
pub async fn hub(args: HubArgs) -> anyhow::Result<ExitCode> {
    let settings = settings(&args)?;
    let certificate = Certificate::read(&args.tls_dir).await.with_context(|| {
        format!(
            "--tls-dir {}: mount the Secret knack-hub-tls there, which knack controller creates",
            args.tls_dir.display()
        )
    })?;
    let secret = journal_key(&args.journal_key).await?;
    let listener = TcpListener::bind(args.listen)
        .await
        .with_context(|| format!("--listen {}", args.listen))?;
    let probes_listener = TcpListener::bind(args.installation.metrics_listen)
        .await
        .with_context(|| format!("--metrics-listen {}", args.installation.metrics_listen))?;
    let config = api_client::configuration().await?;
    let clients = JobClients::new(config).context(api_client::UNUSABLE)?;
    if settings.runner_image.is_some() {
        demand_image_volumes(&clients.api).await?;
    }
    let mut job_settings = JobSettings::new(settings.replica.clone(), settings.address.clone(), secret);
    job_settings.lease_duration = Duration::from_secs(args.takeover_after);
    job_settings.start_timeout = Duration::from_secs(args.start_timeout);
    // The hub's own port is the listener that the isolation probe dials.
    job_settings.probe = args.pod_ip.map(|address| ProbeTarget {
        address: SocketAddr::new(address, args.listen.port()),
        beacon: Beacon::default(),
    });
    let (client, tracer) = (clients.api.clone(), settings.tracer.clone());
    tracing::info!(replica = %settings.replica, address = %settings.address, "the hub starts");
    let hub = Hub::start(&client, clients, job_settings, settings);
    let stop = stop_on_signal();
    let probing = Probing::start(hub.probes(), probes_listener);
    let stopping = args.shutdown_pause.before(args.drain_seconds);
    let result = run(hub, certificate, listener, stopping, stop).await;
    tracer.close().await;
    probing.end().await;
    result.context("serving failed")?;
    Ok(ExitCode::SUCCESS)
}

/// The first minor version of Kubernetes 1 whose image volumes are on by default. Older ones accept the field and mount
/// nothing, so that sandboxes would have no runner.
const IMAGE_VOLUMES_SINCE: u32 = 35;
/// How long the API server may take to answer with its version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(15);

async fn demand_image_volumes(client: &kube::Client) -> anyhow::Result<()> {
    let version = tokio::time::timeout(VERSION_TIMEOUT, client.apiserver_version())
        .await
        .context("the API server did not return its version")??;
    if minor(&version.minor) < IMAGE_VOLUMES_SINCE {
        bail!(
            "--runner-image needs Kubernetes 1.{IMAGE_VOLUMES_SINCE} (image volumes); this is {}: use sandbox images that hold the runner",
            version.git_version
        );
    }
    Ok(())
}

/// The number of a minor version; some providers write a plus behind it.
fn minor(text: &str) -> u32 {
    text.trim_end_matches(|letter: char| !letter.is_ascii_digit())
        .parse()
        .unwrap_or(0)
}

fn settings(args: &HubArgs) -> anyhow::Result<HubSettings> {
    if let Some(runtime) = &args.installation.default_runtime
        && !args.installation.runtime_namespaces.contains(&runtime.namespace)
    {
        bail!(
            "--default-runtime {runtime}: its namespace is not among --runtime-namespaces; add it, or its code cannot run"
        );
    }
    let address = match (&args.advertise, args.pod_ip) {
        (Some(url), _) if !url.starts_with("https://") => bail!("--advertise {url}: write https://host:port"),
        (Some(url), _) => url.trim_end_matches('/').to_owned(),
        (None, Some(address)) => {
            let service = format!("{SERVICE_HUB}.{}.svc", args.installation.namespace);
            format!("https://{}:{}", replica_host(address, &service), args.listen.port())
        }
        (None, None) => bail!("--advertise: required: the URL at which callers reach this replica; or set POD_IP"),
    };
    let set = |list: &[String]| -> BTreeSet<String> { list.iter().filter(|name| !name.is_empty()).cloned().collect() };
    Ok(HubSettings {
        namespace: args.installation.namespace.clone(),
        runtime_namespaces: set(&args.installation.runtime_namespaces),
        default_runtime: args.installation.default_runtime.clone(),
        watch_namespaces: set(&args.installation.watch_namespaces),
        default_image: args.installation.sandbox_image.clone(),
        default_languages: args.sandbox_languages.clone(),
        allow_image_tags: args.installation.allow_image_tags,
        runner_image: args.runner_image.clone(),
        packages: args.sandbox.packages,
        priority_class: args.sandbox.sandbox_priority_class.clone(),
        // A pod's name outlives a restart of its container; what a process owned before its restart is not this one's.
        replica: identity_of(&args.replica),
        address,
        tracer: Tracer::from_env("knack-hub", &args.ca.roots()?).map_err(anyhow::Error::msg)?,
    })
}

fn language(word: &str) -> Result<Language, String> {
    [Language::Python, Language::Node]
        .into_iter()
        .find(|language| language.as_str() == word)
        .ok_or_else(|| "write python or node".to_owned())
}

/// The key that all replicas make the keys of journals from. Never made from that of the certificate, which is replaced.
async fn journal_key(file: &Path) -> anyhow::Result<[u8; 32]> {
    let material = tokio::fs::read(file).await.with_context(|| {
        format!(
            "--journal-key {}: mount the Secret {SECRET_HUB_JOURNAL} there, which knack controller creates",
            file.display()
        )
    })?;
    if material.trim_ascii().is_empty() {
        bail!("--journal-key {}: the file is empty", file.display());
    }
    let mut hash = Sha256::new();
    hash.update(b"knack journal key v1\n");
    hash.update(&material);
    Ok(hash.finalize().into())
}

#[cfg(test)]
mod tests {
    use super::minor;

    #[test]
    fn a_minor_version_may_have_a_plus() {
        for (text, expected) in [("36", 36), ("33+", 33), ("", 0)] {
            assert_eq!(minor(text), expected, "{text:?}");
        }
    }
}
