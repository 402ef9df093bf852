//! Arguments that `knack controller`, `knack hub` and `knack packages serve` have in common: all judge the same objects by them,
//! so a release gives all of them the same values.

use std::net::SocketAddr;

use clap::Args;
use knack_hub_api::RuntimeName;

use super::listen_address::listen_address;

/// The properties of an installation.
#[derive(Debug, Args)]
pub(super) struct InstallationArgs {
    /// Namespace of the installation, with its Lease, certificate and Services
    #[arg(long, env = "POD_NAMESPACE", default_value = "knack-system")]
    pub(super) namespace: String,
    /// The SkillRuntime that serves all namespaces, as namespace/name
    #[arg(long)]
    pub(super) default_runtime: Option<RuntimeName>,
    /// Watch this namespace only; may be given several times
    #[arg(long = "watch-namespace")]
    pub(super) watch_namespaces: Vec<String>,
    /// Namespaces in which code may run; controller and hub need rights there
    #[arg(long, value_delimiter = ',')]
    pub(super) runtime_namespaces: Vec<String>,
    /// Image of SkillRuntimes that do not name an image
    #[arg(long, env = "KNACK_SANDBOX_IMAGE", value_name = "IMAGE")]
    pub(super) sandbox_image: Option<String>,
    /// Accept sandbox images without a digest (test clusters)
    #[arg(long)]
    pub(super) allow_image_tags: bool,
    /// Address to serve /healthz, /readyz and /metrics on
    #[arg(long, default_value = "127.0.0.1:9090", value_parser = listen_address)]
    pub(super) metrics_listen: SocketAddr,
}

/// The settings of sandbox pods: for the controller, which fences them, and the hub, which makes them.
#[derive(Debug, Args)]
pub(super) struct SandboxArgs {
    /// Environments of packages are built on this cluster, by knack packages serve
    #[arg(long)]
    pub(super) packages: bool,
    /// PriorityClass of sandbox pods; a quota counts them by it
    #[arg(long, value_name = "NAME")]
    pub(super) sandbox_priority_class: Option<String>,
}
