//! `knack controller`: the reconciling half of the operator.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use knack_hub_api::RuntimeName;
use knack_trust::CaArgs;
use tokio::net::TcpListener;

use super::installation::{InstallationArgs, SandboxArgs};
use super::listen_address::listen_address;
use super::stop::stop_on_signal;
use crate::api_client;
use crate::controller::{ControllerSettings, WebhookSettings, run};
use crate::lease::Keeper;
use knack_egress::Network;

/// Arguments of `knack controller`.
#[derive(Debug, Args)]
pub struct ControllerArgs {
    #[command(flatten)]
    installation: InstallationArgs,
    #[command(flatten)]
    sandbox: SandboxArgs,
    /// Unique name of this process
    #[arg(long, env = "POD_NAME", hide = true)]
    identity: Option<String>,
    /// Allow archives from this network although its addresses are not public, for example 10.1.0.0/16; may be given several times
    #[arg(long = "allow-archive-network")]
    allow_archive_networks: Vec<Network>,
    #[command(flatten)]
    ca: CaArgs,
    /// A name or address of the hub besides its Service's, for its certificate; may be given several times
    #[arg(long = "hub-name")]
    hub_names: Vec<String>,
    /// Also issue and renew the registry's certificate
    #[arg(long)]
    registry: bool,
    /// A name or address of the registry besides its Service's, for its certificate; may be given several times
    #[arg(long = "registry-name", requires = "registry")]
    registry_names: Vec<String>,
    /// The SkillRuntime, as namespace/name, of sidecars whose pod names none; pods that request a sidecar but do not have one
    /// are reported
    #[arg(long)]
    injection_runtime: Option<RuntimeName>,
    /// The image of injected sidecars, also for the webhook, whatever the injection's parameters say; pods whose sidecar has another
    /// image are reported
    #[arg(
        long,
        env = "KNACK_SIDECAR_IMAGE",
        value_name = "IMAGE",
        requires = "injection_runtime"
    )]
    sidecar_image: Option<String>,
    /// Restart workloads whose pods have a sidecar of another image, in namespaces with the label knack.dev/roll: enabled
    #[arg(long, requires = "sidecar_image")]
    roll_stale_sidecars: bool,
    /// Publish the hub's authorities for sidecars as this ClusterTrustBundle instead of as ConfigMaps in their namespaces
    #[arg(long, value_name = "NAME")]
    trust_bundle: Option<String>,
    #[command(flatten)]
    webhook: WebhookArgs,
}

/// The webhook that injects sidecars, for API servers without MutatingAdmissionPolicy.
#[derive(Debug, Args)]
struct WebhookArgs {
    /// Inject sidecars by a webhook that listens here, with TLS
    #[arg(long, requires_all = ["webhook_configuration", "injection_parameters"], value_parser = listen_address)]
    webhook_listen: Option<SocketAddr>,
    /// The MutatingWebhookConfiguration whose caBundle this controller writes
    #[arg(long, value_name = "NAME", requires = "webhook_listen")]
    webhook_configuration: Option<String>,
    /// What is injected: parameters.yaml of the chart's ConfigMap knack-injection
    #[arg(long, value_name = "FILE", requires = "webhook_listen")]
    injection_parameters: Option<PathBuf>,
    /// A name or address of the webhook besides its Service's, for its certificate; may be given several times
    #[arg(long = "webhook-name", requires = "webhook_listen")]
    webhook_names: Vec<String>,
}

impl WebhookArgs {
    fn settings(self, image: Option<String>) -> Option<WebhookSettings> {
        Some(WebhookSettings {
            listen: self.webhook_listen?,
            configuration: self.webhook_configuration?,
            parameters: self.injection_parameters?,
            image,
            names: self.webhook_names,
        })
    }
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
        packages: args.sandbox.packages,
        priority_class: args.sandbox.sandbox_priority_class,
        allow_archive_networks: args.allow_archive_networks,
        roots: args.ca.roots()?,
        hub_names: args.hub_names,
        registry_names: args.registry.then_some(args.registry_names),
        injection_runtime: args.injection_runtime,
        sidecar_image: args.sidecar_image.clone(),
        roll_stale_sidecars: args.roll_stale_sidecars,
        trust_bundle: args.trust_bundle,
        webhook: args.webhook.settings(args.sidecar_image),
        metrics_listen: installation.metrics_listen,
    };
    if let Some(default) = &settings.default_runtime
        && !settings.manages(&default.namespace)
    {
        anyhow::bail!(
            "--default-runtime {default}: its namespace is neither among --watch-namespace nor among --runtime-namespaces; add it, or its sandboxes get no NetworkPolicy"
        );
    }
    let listener = TcpListener::bind(settings.metrics_listen)
        .await
        .with_context(|| format!("--metrics-listen {}", settings.metrics_listen))?;
    let webhook = match &settings.webhook {
        Some(webhook) => Some(
            TcpListener::bind(webhook.listen)
                .await
                .with_context(|| format!("--webhook-listen {}", webhook.listen))?,
        ),
        None => None,
    };
    let config = api_client::configuration().await?;
    let leases = Keeper::start(config.clone()).context(api_client::UNUSABLE)?;
    let client = kube::Client::try_from(config).context(api_client::UNUSABLE)?;
    run(client, leases, settings, listener, webhook, stop_on_signal()).await?;
    Ok(ExitCode::SUCCESS)
}
