//! `knack packages serve`: builds the environments that the skills of a cluster need.

use std::collections::BTreeSet;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;
use knack_trust::CaArgs;
use tokio::net::TcpListener;

use super::installation::InstallationArgs;
use super::stop::stop_on_signal;
use crate::api_client;
use crate::builds::{AUTHORITIES_MAX_BYTES, BuilderSettings, Reference, ServeSettings};
use crate::cluster_reader::watch::WatchSettings;

/// Arguments of `knack packages serve`.
#[derive(Debug, Args)]
pub(super) struct ServeArgs {
    #[command(flatten)]
    installation: InstallationArgs,
    /// Namespace of the builder Jobs; this process has rights to Jobs there and nowhere else
    #[arg(long, default_value = "knack-builds")]
    builds_namespace: String,
    /// ServiceAccount of the builder Jobs, which needs no rights
    #[arg(long, default_value = "knack-builder")]
    builder_account: String,
    /// Image of the builder Jobs
    #[arg(long, value_name = "IMAGE")]
    builder_image: String,
    /// Where environments are pushed: registry/repository
    #[arg(long, value_name = "REPOSITORY")]
    repository: String,
    /// Repository of sandbox images, besides that of --sandbox-image, that builders pull with --registry-secret; images of others are
    /// pulled without credentials; may be given several times
    #[arg(long = "base-repository", value_name = "REPOSITORY")]
    base_repositories: Vec<String>,
    /// Add packages to images of the repositories of --base-repository alone
    #[arg(long)]
    only_base_repositories: bool,
    /// Index of Python packages (PEP 503) that builders use
    #[arg(long, value_name = "URL")]
    index: Option<String>,
    /// Secret in the namespace of the builder Jobs with `netrc`, the login for --index
    #[arg(long, value_name = "NAME")]
    index_secret: Option<String>,
    /// Index of Node packages that builders use [default: npm's own]
    #[arg(long, value_name = "URL")]
    npm_index: Option<String>,
    /// Secret in the namespace of the builder Jobs with `npmrc`, the login for --npm-index
    #[arg(long, value_name = "NAME")]
    npm_index_secret: Option<String>,
    /// Secret in the namespace of the builder Jobs with `.dockerconfigjson`, the login for the registry of --repository
    #[arg(long, value_name = "NAME")]
    registry_secret: Option<String>,
    /// Secret in the namespace of the builder Jobs to pull their image with; may be given several times
    #[arg(long = "builder-pull-secret", value_name = "NAME")]
    builder_pull_secrets: Vec<String>,
    /// Connect to the registry without TLS (test clusters)
    #[arg(long)]
    registry_plain_http: bool,
    #[command(flatten)]
    ca: CaArgs,
}

/// Serves until SIGTERM or SIGINT.
pub(super) async fn serve(args: ServeArgs) -> anyhow::Result<ExitCode> {
    let (listener, settings) = (args.installation.metrics_listen, settings(args)?);
    let probes = TcpListener::bind(listener)
        .await
        .with_context(|| format!("--metrics-listen {listener}"))?;
    let client = api_client::client().await?;
    crate::builds::serve(client, settings, probes, stop_on_signal()).await?;
    Ok(ExitCode::SUCCESS)
}

fn settings(args: ServeArgs) -> anyhow::Result<ServeSettings> {
    check_repository("--repository", &args.repository)?;
    for name in &args.base_repositories {
        check_repository("--base-repository", name)?;
    }
    let mut base_repositories = args.base_repositories;
    if !args.only_base_repositories {
        let own = args.installation.sandbox_image.as_deref().and_then(Reference::parse);
        base_repositories.extend(own.map(|own| format!("{}/{}", own.registry, own.repository)));
    }
    let authorities = args.ca.roots()?.pem();
    if authorities
        .as_ref()
        .is_some_and(|text| text.len() > AUTHORITIES_MAX_BYTES)
    {
        bail!(
            "--ca-file: more than {} KiB of certificates, which every builder Job gets; name a file with your own authorities alone",
            AUTHORITIES_MAX_BYTES >> 10
        );
    }
    let set = |list: &[String]| -> BTreeSet<String> { list.iter().filter(|name| !name.is_empty()).cloned().collect() };
    Ok(ServeSettings {
        watching: WatchSettings {
            namespace: args.installation.namespace,
            watch_namespaces: set(&args.installation.watch_namespaces),
            runtime_namespaces: set(&args.installation.runtime_namespaces),
            // It knows them itself.
            packages: false,
            fences: false,
        },
        default_runtime: args.installation.default_runtime,
        default_image: args.installation.sandbox_image,
        allow_image_tags: args.installation.allow_image_tags,
        builder: BuilderSettings {
            namespace: args.builds_namespace,
            image: args.builder_image,
            service_account: args.builder_account,
            repository: args.repository,
            base_repositories,
            only_base_repositories: args.only_base_repositories,
            index: args.index,
            index_secret: args.index_secret,
            npm_index: args.npm_index,
            npm_index_secret: args.npm_index_secret,
            registry_secret: args.registry_secret,
            image_pull_secrets: args.builder_pull_secrets,
            plain_http: args.registry_plain_http,
            authorities,
        },
    })
}

fn check_repository(argument: &str, name: &str) -> anyhow::Result<()> {
    let read = Reference::parse(name);
    if name.contains('@') || read.is_none_or(|read| read.version != "latest") {
        bail!("{argument} {name}: write registry/repository, without tag and digest");
    }
    Ok(())
}
