//! The flags of `knack gateway`, and the settings that they set.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::builder::BoolishValueParser;
use clap::{Args, ValueEnum};
use knack_hub_api::RuntimeName;
use knack_hub_api::client::{Authorities, HubClient, HubClientSettings, Token};
use knack_trust::CaArgs;

use crate::http_server::server::Stopping;
use crate::providers::operator_key::KeyScope;
use crate::providers::provider::Api;
use crate::runs::code_tools::CodeTools;

/// What the gateway serves, and how. Required arguments are `Option`s, since `health` does not need them.
#[derive(Debug, Args)]
pub(super) struct ServeArgs {
    /// Address to serve applications on
    #[arg(long, env = "KNACK_LISTEN", default_value = "127.0.0.1:8080")]
    pub(super) listen: SocketAddr,
    /// The hub, as https://host:port
    #[arg(long, value_name = "URL", env = "KNACK_HUB", required = true)]
    pub(super) hub: Option<String>,
    /// File with the authorities of the hub's certificate; reread when it changes; it may be missing at the start
    #[arg(long, value_name = "FILE", env = "KNACK_HUB_CA", required = true)]
    pub(super) hub_ca: Option<PathBuf>,
    /// The registry of uploaded skills, as https://host:port: requests to the Skills APIs go there, as this gateway's own
    /// ServiceAccount; --hub-ca must have the authorities of its certificate, too
    #[arg(long, value_name = "URL", env = "KNACK_REGISTRY")]
    pub(super) registry: Option<String>,
    /// Model for runs of skills (POST /api/v1/skills/{name}/run) that name no model; requests go to the OpenAI API
    #[arg(long, value_name = "MODEL", env = "KNACK_RUN_MODEL")]
    pub(super) run_model: Option<String>,
    /// The registry that keeps the history of executions, as https://host:port: runs are reported there, as this gateway's own
    /// ServiceAccount
    #[arg(long, value_name = "URL", env = "KNACK_HISTORY")]
    pub(super) history: Option<String>,
    /// The registry that keeps uploads and containers, as https://host:port: clients' requests to the Files APIs of Anthropic and
    /// OpenAI and about containers go there instead of to the provider, as this gateway's own ServiceAccount
    #[arg(long, value_name = "URL", env = "KNACK_FILES_REGISTRY")]
    pub(super) files_registry: Option<String>,
    /// File with a ServiceAccount token for the audience "knack"
    #[arg(
        long,
        value_name = "FILE",
        env = "KNACK_TOKEN_FILE",
        default_value = "/var/run/secrets/knack/token"
    )]
    pub(super) token_file: PathBuf,
    /// The SkillRuntime to serve, as namespace/name
    #[arg(long, env = "KNACK_RUNTIME", required_unless_present = "default_runtime")]
    pub(super) runtime: Option<RuntimeName>,
    /// The SkillRuntime to serve without --runtime: the cluster's default for applications that choose none
    #[arg(long, env = "KNACK_DEFAULT_RUNTIME")]
    pub(super) default_runtime: Option<RuntimeName>,
    /// Base URL for the OpenAI API
    #[arg(long, value_name = "URL", env = "KNACK_UPSTREAM_OPENAI")]
    pub(super) upstream_openai: Option<String>,
    /// Base URL for the Anthropic API
    #[arg(long, value_name = "URL", env = "KNACK_UPSTREAM_ANTHROPIC")]
    pub(super) upstream_anthropic: Option<String>,
    /// Base URL for the Gemini API
    #[arg(long, value_name = "URL", env = "KNACK_UPSTREAM_GEMINI")]
    pub(super) upstream_gemini: Option<String>,
    /// APIs whose upstream is another gateway of Knack, such as the one of a cluster: the header x-knack-via says that
    /// skills are injected here, so it injects none
    #[arg(
        long,
        value_name = "APIS",
        env = "KNACK_UPSTREAM_KNACK",
        value_enum,
        value_delimiter = ','
    )]
    pub(super) upstream_knack: Vec<Api>,
    /// APIs whose upstream has no tool that runs programs (OpenAI's shell in a container, Anthropic's and Gemini's code
    /// execution): clients that ask for it get runs in the sandbox of the runtime
    #[arg(
        long,
        value_name = "APIS",
        env = "KNACK_SANDBOX_CODE_TOOLS",
        value_enum,
        value_delimiter = ','
    )]
    pub(super) sandbox_code_tools: Vec<CodeTools>,
    #[command(flatten)]
    pub(super) ca: CaArgs,
    /// Folder with provider keys, one file per API (openai, anthropic, gemini); sent instead of the client's
    #[arg(long, value_name = "DIR", env = "KNACK_PROVIDER_KEYS_DIR")]
    pub(super) provider_keys_dir: Option<PathBuf>,
    /// Let callers do everything that the keys in --provider-keys-dir permit (files, batches, stored answers of all callers
    /// that share them), not only model calls
    #[arg(
        long,
        env = "KNACK_PROVIDER_KEYS_WHOLE_ACCOUNT",
        requires = "provider_keys_dir",
        value_parser = BoolishValueParser::new()
    )]
    pub(super) provider_keys_whole_account: bool,
    /// Who may use this gateway
    #[arg(long, value_enum, env = "KNACK_CLIENT_AUTH", default_value_t)]
    pub(super) client_auth: ClientAuthMode,
    /// Serve the tools and files of skills to MCP clients too, at /mcp. A call needs no model and no provider: whoever may
    /// use this gateway may run the tools of its skills
    #[arg(long, env = "KNACK_MCP", value_parser = BoolishValueParser::new())]
    pub(super) mcp: bool,
    /// Base URL under which clients reach this gateway, for links to files in tool texts
    #[arg(long, value_name = "URL", env = "KNACK_PUBLIC_URL")]
    pub(super) public_url: Option<String>,
    /// Memory for hidden turns between requests, MiB
    #[arg(long, value_name = "MIB", env = "KNACK_RECORD_STORE_MIB", default_value_t = 16)]
    pub(super) record_store_mib: usize,
    /// Folder for a copy of the catalog, which a restarted gateway serves until the hub answers
    #[arg(long, value_name = "DIR", env = "KNACK_CATALOG_DIR")]
    pub(super) catalog_dir: Option<PathBuf>,
    /// Seconds to wait at the start for the first catalog, so that a new pod has its skills before it gets traffic; 0 in a
    /// sidecar, since its application waits for it
    #[arg(long, value_name = "SECONDS", env = "KNACK_START_WAIT_SECONDS", default_value_t = 10)]
    pub(super) start_wait_seconds: u64,
    /// Seconds after SIGTERM during which /readyz fails but requests are still served, until load balancers notice
    #[arg(
        long,
        value_name = "SECONDS",
        env = "KNACK_SHUTDOWN_PAUSE_SECONDS",
        default_value_t = 5
    )]
    pub(super) shutdown_pause_seconds: u64,
    /// Seconds after that for running answers to end; the longest request takes 540 unless its runtime sets another limit
    #[arg(long, value_name = "SECONDS", env = "KNACK_DRAIN_SECONDS", default_value_t = 600)]
    pub(super) drain_seconds: u64,
    /// Address to serve /healthz, /readyz, /metrics and, within the pod, knack trace on
    #[arg(long, env = "KNACK_METRICS_LISTEN", default_value = "127.0.0.1:9090")]
    pub(super) metrics_listen: SocketAddr,
}

impl ServeArgs {
    /// The SkillRuntime to serve. Errors: none is named.
    pub(super) fn runtime(&self) -> anyhow::Result<RuntimeName> {
        let chosen = self.runtime.as_ref().or(self.default_runtime.as_ref());
        chosen
            .cloned()
            .context("--runtime: name a SkillRuntime as namespace/name")
    }

    /// How the server ends.
    pub(super) const fn stopping(&self) -> Stopping {
        Stopping {
            pause: Duration::from_secs(self.shutdown_pause_seconds),
            drain: Duration::from_secs(self.drain_seconds),
        }
    }

    /// The requests for which callers may use the operator's keys.
    pub(super) const fn key_scope(&self) -> KeyScope {
        if self.provider_keys_whole_account {
            KeyScope::Account
        } else {
            KeyScope::Models
        }
    }

    /// The client of the hub. Errors: a flag that cannot be used.
    pub(super) fn hub_client(&self) -> anyhow::Result<HubClient> {
        self.client("--hub", self.hub.clone().context("--hub: required")?)
    }

    /// The client of a registry, which authenticates callers as the hub does; `None` without a URL.
    pub(super) fn registry_client(&self, flag: &str, url: Option<&String>) -> anyhow::Result<Option<HubClient>> {
        let url = url.filter(|url| !url.is_empty());
        url.map(|url| self.client(flag, url.clone())).transpose()
    }

    fn client(&self, flag: &str, url: String) -> anyhow::Result<HubClient> {
        HubClient::new(HubClientSettings {
            url,
            authorities: Authorities::File(self.hub_ca.clone().context("--hub-ca: required")?),
            token: Token::File(self.token_file.clone()),
            address: None,
        })
        .map_err(|error| anyhow::anyhow!("{flag}: {error}"))
    }
}

/// The words of `--client-auth`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(super) enum ClientAuthMode {
    /// Anyone who reaches the port, with a provider key of their own.
    #[default]
    None,
    /// Callers that send a ServiceAccount token for the audience "knack-gateway" and may use the runtime.
    TokenReview,
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
