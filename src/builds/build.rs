//! A builder Job: from a request to an image in the registry.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use flate2::read::GzDecoder;
use knack_execution::interpreter::CodeUser;
use knack_packages::environment::EnvironmentImage;
use knack_packages::{Declaration, EnvironmentKey, Request, State};
use knack_trust::{CaArgs, Roots};
use serde_json::{Value, json};

use super::credentials::{Credentials, RegistryError};
use super::decide::why_unlisted;
use super::fit::{NODE_VARIABLE, PYTHON_VARIABLE, fit};
use super::image::{ImageDocuments, Reference, is_index, of_platform, platform_word, platforms, with_layer};
use super::layer::{self, Layer};
use super::outcome::Outcome;
use super::reach::guard_of;
use super::registry::{Access, ImageRegistry};
use crate::counted::counted;
use crate::packages::{
    BaseInterpreter, BuildError, BuildLimits, Builder, BuiltEnvironment, EnvironmentInfo, NpmIndex, Store, Uv,
};

/// The file from which the kubelet reads the outcome.
const TERMINATION_FILE: &str = "/dev/termination-log";
/// Largest request: that of a lock of 200 packages with the hashes of all their files is 2 MiB, that of 500 of Node 200 KiB.
const REQUEST_MAX_BYTES: u64 = 16 << 20;

/// Arguments of `knack packages build`.
#[derive(Debug, Args)]
pub struct BuildArgs {
    /// Key of the requested environment
    #[arg(long)]
    key: EnvironmentKey,
    /// File with the request, compressed
    #[arg(long, value_name = "FILE")]
    request: PathBuf,
    /// Where the image is pushed: registry/repository
    #[arg(long)]
    repository: String,
    /// Repository of sandbox images that are pulled with the registry's credentials; those of others are pulled without (repeatable)
    #[arg(long = "base-repository", value_name = "NAME")]
    base_repositories: Vec<String>,
    /// Build on images of these repositories alone
    #[arg(long)]
    only_base_repositories: bool,
    /// Folder of environments, here and in sandboxes
    #[arg(long, value_name = "DIR")]
    store: PathBuf,
    /// A .dockerconfigjson for the registry
    #[arg(long, value_name = "FILE")]
    registry_credentials: Option<PathBuf>,
    /// Connect to the registry without TLS (test clusters)
    #[arg(long)]
    plain_http: bool,
    #[command(flatten)]
    ca: CaArgs,
    /// File to write the result to
    #[arg(long, value_name = "FILE", default_value = TERMINATION_FILE, hide = true)]
    outcome: PathBuf,
}

/// Builds and pushes; exit code 0 if the environment is in the registry.
pub async fn build(args: BuildArgs) -> anyhow::Result<ExitCode> {
    let outcome = match build_one(&args).await {
        Ok(outcome) => outcome,
        Err(error) => Outcome::failed(error.state, error.text),
    };
    tracing::info!(state = %outcome.state, message = %outcome.message, "the build finished");
    std::fs::write(&args.outcome, outcome.text())?;
    let is_ready = outcome.state == State::Ready;
    Ok(if is_ready { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn build_one(args: &BuildArgs) -> Result<Outcome, BuildError> {
    let request = read(&args.request)?;
    let failed = |text: String| BuildError::new(State::Failed, text);
    if request.key().as_ref() != Ok(&args.key) {
        return Err(failed(
            "the request does not match its key; the key was created by another version".to_owned(),
        ));
    }
    let credentials = match &args.registry_credentials {
        Some(file) => {
            let text = tokio::fs::read(file).await;
            let text = text.map_err(|error| failed(format!("--registry-credentials: {error}")))?;
            Credentials::read(&text).map_err(refused)?
        }
        None => Credentials::default(),
    };
    let wrong = |what: &str, text: &str| failed(format!("{what} {text:?} is not an image name"));
    let target = Reference::parse(&args.repository).ok_or_else(|| wrong("--repository", &args.repository))?;
    let base = Reference::parse(&request.base).ok_or_else(|| wrong("the sandbox image", &request.base))?;
    let roots = args.ca.roots().map_err(|error| failed(error.to_string()))?;
    // The image is what a SkillRuntime names, whose editor may not read what the installation's account may.
    let is_listed = base.is_of(&args.base_repositories);
    if args.only_base_repositories && !is_listed {
        return Err(BuildError::new(State::PackagesOff, why_unlisted(&request.base)));
    }
    let anonymous = Credentials::default();
    let base_credentials = if is_listed { &credentials } else { &anonymous };
    let mut from =
        ImageRegistry::new(&base, Access::Pull, base_credentials, args.plain_http, &roots).map_err(refused)?;
    if !is_listed {
        let named = args.base_repositories.iter().chain([&args.repository]);
        let guard = guard_of(named.map(String::as_str), args.plain_http);
        from = from.guarded(guard, &roots).map_err(refused)?;
    }
    let to = ImageRegistry::new(&target, Access::PullPush, &credentials, args.plain_http, &roots).map_err(refused)?;
    // Before the installation: an environment that cannot be pushed need not be built.
    let base = Parts::of(&from, &base.version, architecture()).await;
    let base = base.map_err(|error| refused(if is_listed { error } else { unlisted(&error) }))?;
    let declared = request.input.declaration().map_err(|findings| {
        let first = findings.first().map(ToString::to_string).unwrap_or_default();
        BuildError::new(State::Refused, first)
    })?;
    let own = |variable: &str| std::env::var(variable).unwrap_or_default();
    let fit = fit(
        declared,
        &base.config,
        (&own(PYTHON_VARIABLE), &own(NODE_VARIABLE)),
        &request.base,
    )?;
    let built = install(args, &request, (&fit.declared, &roots)).await?;
    let file = tempfile::NamedTempFile::new().map_err(|error| failed(format!("a temporary file: {error}")))?;
    let (folder, path) = (built.environment.root.clone(), file.path().to_path_buf());
    let modules = built.environment.node_modules.clone();
    let written = tokio::task::spawn_blocking(move || layer::write(&folder, modules.as_deref(), &path)).await;
    let layer = written.map_err(|error| failed(error.to_string()))?;
    let layer = layer.map_err(|error| failed(format!("the layer: {error}")))?;
    let digest = push(&base, &from, &to, &layer, file.path()).await.map_err(refused)?;
    Ok(Outcome {
        state: State::Ready,
        is_partial: fit.left_out.is_some(),
        message: message_of(&built.about, fit.left_out),
        environment: Some(EnvironmentImage {
            image: format!("{}@{digest}", args.repository),
            home: built.environment.root.display().to_string(),
        }),
    })
}

/// The error of an image that was asked for without the registry's credentials.
fn unlisted(error: &RegistryError) -> RegistryError {
    RegistryError(format!(
        "{error}; the request was sent without credentials, because the sandbox image is from no repository in the chart values \
         sandbox.images and packages.baseRepositories"
    ))
}

fn refused(error: RegistryError) -> BuildError {
    BuildError::new(State::RegistryRefused, error.0)
}

fn read(file: &Path) -> Result<Request, BuildError> {
    let failed = |text: String| BuildError::new(State::Failed, format!("the request cannot be read: {text}"));
    let file = File::open(file).map_err(|error| failed(error.to_string()))?;
    let mut text = Vec::new();
    let read = GzDecoder::new(file).take(REQUEST_MAX_BYTES).read_to_end(&mut text);
    read.map_err(|error| failed(error.to_string()))?;
    serde_json::from_slice(&text).map_err(|error| failed(error.to_string()))
}

async fn install(
    args: &BuildArgs,
    request: &Request,
    (declared, roots): (&Declaration, &Roots),
) -> Result<BuiltEnvironment, BuildError> {
    let rules = request.rules().map_err(|text| BuildError::new(State::Conflict, text))?;
    let base = BaseInterpreter::of_host(CodeUser::SameUser).await?;
    let store = Store::open(&args.store, CodeUser::SameUser)?;
    let npm = NpmIndex::of(std::env::vars_os(), roots);
    let uv = Uv::find().and_then(|uv| uv.trusting(roots));
    let builder = Builder::new(store, base, uv, npm, BuildLimits::default(), rules);
    builder.environment(declared, &|line| tracing::info!("{line}")).await
}

/// The message about a ready environment: what is left out of it, and its packages, as many as fit.
fn message_of(about: &EnvironmentInfo, left_out: Option<String>) -> String {
    let list = |packages: &[(String, String)]| {
        let all: Vec<String> = packages
            .iter()
            .map(|(name, version)| format!("{name} {version}"))
            .collect();
        all.join(", ")
    };
    let count = counted(about.packages.len() + about.node.len(), "package");
    let size = about.bytes / 1_000_000;
    let python = format!("Python {}: {}", about.python, list(&about.packages));
    let node = format!("Node: {}", list(&about.node));
    let parts = [
        (!about.packages.is_empty() || about.node.is_empty()).then_some(python),
        (!about.node.is_empty()).then_some(node),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let left_out = left_out.map(|why| format!("{why}; ")).unwrap_or_default();
    format!("{left_out}{count}, {size} MB, {}", parts.join("; "))
}

/// The parts of a base image in the registry.
#[derive(Debug)]
struct Parts {
    manifest: Value,
    kind: String,
    config: Value,
}

impl Parts {
    /// The image for an architecture. Errors: those of the registry, and an image that is for others only.
    async fn of(registry: &ImageRegistry, version: &str, architecture: &str) -> Result<Self, RegistryError> {
        let (mut manifest, mut kind) = registry.manifest(version).await?;
        if is_index(&manifest) {
            let digest = of_platform(&manifest, architecture).map(str::to_owned);
            let others = || other_platform(registry, version, architecture, &platforms(&manifest));
            (manifest, kind) = registry.manifest(&digest.ok_or_else(others)?).await?;
        }
        let digest = manifest.pointer("/config/digest").and_then(Value::as_str);
        let digest = digest.ok_or_else(|| RegistryError("the sandbox image's manifest names no config".to_owned()))?;
        let config = registry.config(digest).await?;
        if config["architecture"].as_str().is_some_and(|own| own != architecture) {
            let own = platform_word(&config["architecture"]).map(|own| format!("linux/{own}"));
            return Err(other_platform(registry, version, architecture, own.as_slice()));
        }
        Ok(Self { manifest, kind, config })
    }
}

/// The error of an image that has nothing for this architecture: packages of this machine on top of it would not run.
fn other_platform(registry: &ImageRegistry, version: &str, architecture: &str, has: &[String]) -> RegistryError {
    let has = if has.is_empty() {
        "no platform that it names".to_owned()
    } else {
        has.join(", ")
    };
    registry.error(&format!(
        "the sandbox image {version} is not for linux/{architecture}, on which its packages are built; it is for {has}"
    ))
}

/// This machine's architecture in the words of images.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Pushes the base with the layer on top; returns the digest of the new image.
async fn push(
    base: &Parts,
    from: &ImageRegistry,
    to: &ImageRegistry,
    layer: &Layer,
    file: &Path,
) -> Result<String, RegistryError> {
    let ImageDocuments { config, mut manifest } = with_layer(&base.config, &base.manifest, layer)
        .map_err(|why| RegistryError(format!("the sandbox image: {why}")))?;
    for below in base.manifest["layers"].as_array().into_iter().flatten() {
        let (digest, size) = (below["digest"].as_str(), below["size"].as_u64());
        let (Some(digest), Some(size)) = (digest, size) else {
            return Err(RegistryError(
                "the sandbox image has a layer without digest or size".to_owned(),
            ));
        };
        to.copy_blob(digest, size, from).await?;
    }
    to.push_file(&layer.digest, layer.size, file).await?;
    let config = config.to_string().into_bytes();
    let config_digest = format!("sha256:{}", knack_skill::digest::sha256(&config));
    manifest["config"]["digest"] = json!(config_digest);
    manifest["config"]["size"] = json!(config.len());
    to.push_bytes(&config_digest, config).await?;
    let manifest = manifest.to_string().into_bytes();
    let digest = format!("sha256:{}", knack_skill::digest::sha256(&manifest));
    to.push_manifest(&digest, &base.kind, manifest).await?;
    Ok(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environment_is_reported_with_the_packages_of_both() {
        let list = |names: &[&str]| -> Vec<(String, String)> {
            names
                .iter()
                .map(|name| ((*name).to_owned(), "1.0".to_owned()))
                .collect()
        };
        for (python, node, left_out, expected) in [
            (
                &["a", "b"][..],
                &[][..],
                None,
                "2 packages, 4 MB, Python 3.11.2: a 1.0, b 1.0",
            ),
            (
                &["a"],
                &["@s/c"],
                None,
                "2 packages, 4 MB, Python 3.11.2: a 1.0; Node: @s/c 1.0",
            ),
            (&[], &["c", "d"], None, "2 packages, 4 MB, Node: c 1.0, d 1.0"),
            (
                &["a"],
                &[],
                Some("without x"),
                "without x; 1 package, 4 MB, Python 3.11.2: a 1.0",
            ),
        ] {
            let about = EnvironmentInfo {
                key: "k".into(),
                python: "3.11.2".to_owned(),
                bytes: 4_100_000,
                files: 9,
                packages: list(python),
                node: list(node),
            };
            assert_eq!(message_of(&about, left_out.map(str::to_owned)), expected);
        }
    }
}

#[cfg(test)]
#[path = "push_tests.rs"]
mod push_tests;

#[cfg(test)]
#[path = "base_tests.rs"]
mod base_tests;
