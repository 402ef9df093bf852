//! `knack dev`: gateway, catalog from files, local executor, and on request a scripted model, in one process.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, bail};
use clap::Args;
use http::HeaderValue;
use knack_skill::catalog::Node;
use knack_wire::history::HistorySecret;
use tokio::net::TcpListener;

use super::terminal::{self, Terminal};
use crate::catalog::{
    LastGood, LiveCatalog, ReportLevel, RuntimeSettings, Search, Snapshot, Watching, assemble, discover,
};
use crate::execution::{Capabilities, Executor, Language};
use crate::gateway::budget::{BodyTimes, Requests};
use crate::gateway::files::{FILES_QUOTA_BYTES, FileStore};
use crate::gateway::grants::Grants;
use crate::gateway::inject::Materials;
use crate::gateway::metrics::Metrics;
use crate::gateway::operator_key::KeyScope;
use crate::gateway::recorder::Recorder;
use crate::gateway::records::{RECORDS_DEV_BYTES, RecordStore};
use crate::gateway::upstream::{Api, Base, Upstreams};
use crate::gateway::{Gateway, HostPolicy, server};
use crate::memory::MemoryBudget;
use crate::telemetry::Tracer;

/// Arguments of `knack dev`.
#[derive(Debug, Args)]
pub struct DevArgs {
    /// Skill folders, manifest files, or folders that hold either
    #[arg(default_value = ".")]
    paths: Vec<PathBuf>,
    /// Address to serve on; loopback only
    #[arg(long, default_value = "127.0.0.1:4141", env = "KNACK_LISTEN")]
    listen: SocketAddr,
    /// Provider for every API: a base URL, `mock` (a scripted model), or `mock=SCRIPT.yaml`
    #[arg(long, env = "KNACK_UPSTREAM")]
    upstream: Option<String>,
    /// Base URL for the OpenAI API
    #[arg(long, env = "KNACK_UPSTREAM_OPENAI")]
    upstream_openai: Option<String>,
    /// Base URL for the Anthropic API
    #[arg(long, env = "KNACK_UPSTREAM_ANTHROPIC")]
    upstream_anthropic: Option<String>,
    /// Base URL for the Gemini API
    #[arg(long, env = "KNACK_UPSTREAM_GEMINI")]
    upstream_gemini: Option<String>,
    /// Do not run code on this machine: calls that need it are answered with what to do
    #[arg(long)]
    no_local_executor: bool,
    /// Write the bodies of every request, before and after the gateway, into this folder
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    /// Where generated files are written [default: knack/files below $XDG_STATE_HOME or ~/.local/state]
    #[arg(long, value_name = "DIR")]
    files_dir: Option<PathBuf>,
    /// Give a skill the value of an environment variable
    #[arg(long, value_name = "SKILL:NAME")]
    allow_env: Vec<String>,
    /// Memory for hidden turns between requests, MiB
    #[arg(long, value_name = "MIB", default_value_t = RECORDS_DEV_BYTES >> 20)]
    record_store_mib: usize,
    /// Write the port that is served into this file, once it is
    #[arg(long, value_name = "FILE")]
    print_port_file: Option<PathBuf>,
}

/// Serves until Ctrl-C or SIGTERM.
pub async fn dev(args: DevArgs) -> anyhow::Result<ExitCode> {
    let listener = listen(args.listen).await?;
    let address = listener.local_addr()?;
    let files_folder = files_folder(args.files_dir.clone())?;
    let search = search(&args, files_folder.as_deref())?;
    let runtime = runtime(search.clone()).await?;
    let executor = executor(&args, &runtime).await;
    let capabilities = executor.capabilities();
    let mock = start_mock(args.upstream.as_deref()).await?;
    let bases = bases(&args, &runtime, mock.as_ref().map(|mock| mock.url.clone()))?;
    // Whoever reaches this program is its user, whose account it is.
    let upstreams = Upstreams::new(&bases)?.with_key_scope(KeyScope::Account);
    let metrics = Metrics::default();
    let tracer = Tracer::from_env("knack-dev").map_err(anyhow::Error::msg)?;
    let (catalog, _watching) = watch(&search, &capabilities, &metrics).await?;
    let grants = Grants::parse(&args.allow_env, |name| std::env::var(name).ok()).map_err(anyhow::Error::msg)?;
    let recorder = args.record.clone().map(Recorder::start).transpose();
    let recorder = recorder.context("--record: the folder cannot be made")?;
    let gateway = Arc::new(Gateway {
        catalog,
        upstreams,
        executor,
        grants: Arc::new(grants),
        files: FileStore::open(FILES_QUOTA_BYTES).context("a folder for generated files cannot be made")?,
        files_folder: files_folder.clone(),
        records: RecordStore::new(args.record_store_mib << 20),
        secret: Arc::new(random_secret().into()),
        replicas: None,
        requests: Requests::new(&MemoryBudget::of_process(), BodyTimes::default()),
        metrics,
        tracer: tracer.clone(),
        console: Arc::new(Terminal),
        recorder: recorder.clone(),
        host_policy: HostPolicy::LocalOnly,
        public_url: Some(format!("http://{address}")),
        materials: Materials::default(),
        draining: AtomicBool::new(false),
    });
    for note in &capabilities.notes {
        terminal::line(note);
    }
    if let Some(missing) = &capabilities.missing {
        terminal::line(&format!("code is not run here: {missing}"));
    }
    if let Some(folder) = &files_folder {
        terminal::line(&format!("generated files are written to {}", folder.display()));
    }
    greet(address, mock.is_some());
    if let Some(file) = &args.print_port_file {
        let written = tokio::fs::write(file, format!("{}\n", address.port())).await;
        written.with_context(|| format!("--print-port-file {}", file.display()))?;
    }
    server::serve(server::Service::open(gateway), listener, stop_signal()).await;
    if let Some(recorder) = &recorder {
        recorder.flush().await;
    }
    tracer.close().await;
    terminal::line("stopped");
    Ok(ExitCode::SUCCESS)
}

async fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    if !address.ip().is_loopback() {
        bail!(
            "--listen {address}: knack dev serves loopback addresses only, since it runs code for whoever can reach it; use 127.0.0.1 or [::1]"
        );
    }
    TcpListener::bind(address).await.with_context(|| {
        format!("--listen {address}: the address cannot be served; is another knack running? choose another port")
    })
}

/// The folder of generated files, made if need be. `None` without a home: they are served by URL only.
///
/// Outside of what is searched for skills by default: what a model writes must not look like a part of the project.
fn files_folder(named: Option<PathBuf>) -> anyhow::Result<Option<PathBuf>> {
    let of_user = || {
        let absolute = |name: &str| {
            std::env::var_os(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
        Some(state.join("knack/files"))
    };
    let chosen = named.is_some();
    let Some(folder) = named.or_else(of_user) else {
        return Ok(None);
    };
    match std::fs::create_dir_all(&folder) {
        Ok(()) => Ok(Some(folder)),
        Err(_) if !chosen => Ok(None),
        Err(error) => Err(error).with_context(|| format!("--files-dir {}", folder.display())),
    }
}

/// What is searched. Never below the folders that runs or requests write to: a skill that appears there was written by a
/// model, and would stand in every later request.
fn search(args: &DevArgs, files_folder: Option<&Path>) -> anyhow::Result<Search> {
    if let Some(record) = &args.record {
        std::fs::create_dir_all(record).with_context(|| format!("--record {}", record.display()))?;
    }
    let search = Search::of(args.paths.clone()).never_below(files_folder.into_iter().chain(args.record.as_deref()));
    search.context("the folders for generated files and recordings cannot be read")
}

/// The settings of the runtime size the executor; they are read once, before it starts.
async fn runtime(search: Search) -> anyhow::Result<RuntimeSettings> {
    let read = move || assemble(discover(&search), Node::Absent, &mut LastGood::default()).runtime;
    Ok(tokio::task::spawn_blocking(read).await?)
}

async fn watch(
    search: &Search,
    capabilities: &Capabilities,
    metrics: &Metrics,
) -> anyhow::Result<(Arc<LiveCatalog>, Watching)> {
    let node = if capabilities.languages.contains(&Language::Node) {
        Node::Present
    } else {
        Node::Absent
    };
    let (skills, broken) = (metrics.skills.clone(), metrics.broken_sources.clone());
    let on_change = move |snapshot: &Snapshot| {
        tell_snapshot(snapshot);
        skills.set(i64::try_from(snapshot.skills.len()).unwrap_or(i64::MAX));
        let errors = snapshot
            .reports
            .iter()
            .filter(|report| report.level == ReportLevel::Error)
            .count();
        broken.set(i64::try_from(errors).unwrap_or(i64::MAX));
    };
    LiveCatalog::watch(search.clone(), node, on_change)
        .await
        .with_context(|| {
            let names: Vec<String> = search.paths.iter().map(|path| path.display().to_string()).collect();
            format!("{} cannot be watched", names.join(", "))
        })
}

async fn executor(args: &DevArgs, runtime: &RuntimeSettings) -> Arc<dyn Executor> {
    if args.no_local_executor {
        return Arc::new(crate::execution::Disabled::by_flag());
    }
    super::local::executor(runtime).await
}

async fn start_mock(upstream: Option<&str>) -> anyhow::Result<Option<crate::mock::MockServer>> {
    let script = match upstream {
        Some("mock") => crate::mock::Script::built_in(),
        Some(word) => match word.strip_prefix("mock=") {
            Some(path) => {
                let text = tokio::fs::read_to_string(path)
                    .await
                    .with_context(|| format!("--upstream {word}: the script cannot be read"))?;
                crate::mock::Script::parse(&text).map_err(|error| anyhow::anyhow!("--upstream {word}: {error}"))?
            }
            None => return Ok(None),
        },
        None => return Ok(None),
    };
    Ok(Some(
        crate::mock::spawn(script)
            .await
            .context("the scripted model cannot listen on loopback")?,
    ))
}

/// Addresses by API: a flag of its own, then `--upstream`, then the SkillRuntime, then the public one.
fn bases(args: &DevArgs, runtime: &RuntimeSettings, mock: Option<String>) -> anyhow::Result<BTreeMap<Api, Base>> {
    let all = mock.or_else(|| args.upstream.clone());
    let mut bases = BTreeMap::new();
    for (api, flag) in [
        (Api::OpenAi, &args.upstream_openai),
        (Api::Anthropic, &args.upstream_anthropic),
        (Api::Gemini, &args.upstream_gemini),
    ] {
        let Some(url) = flag
            .clone()
            .or_else(|| all.clone())
            .or_else(|| runtime.upstreams.get(api.as_str()).cloned())
        else {
            continue;
        };
        let parsed: http::Uri = url
            .parse()
            .with_context(|| format!("upstream {}: {url:?} is not a URL", api.as_str()))?;
        if !matches!(parsed.scheme_str(), Some("http" | "https")) || parsed.host().is_none() {
            bail!(
                "upstream {}: {url:?} is not an http or https URL; write for example {}",
                api.as_str(),
                api.default_url()
            );
        }
        // The operator's own key, from the environment of knack and from nowhere else; it is sent instead of the client's.
        let variable = format!("KNACK_UPSTREAM_{}_KEY", api.as_str().to_uppercase());
        let key = std::env::var(&variable)
            .ok()
            .map(|key| HeaderValue::from_str(&key))
            .transpose()
            .with_context(|| format!("{variable} cannot be a header value"))?;
        bases.insert(api, Base { url, key });
    }
    Ok(bases)
}

fn tell_snapshot(snapshot: &Snapshot) {
    for report in &snapshot.reports {
        terminal::line(&report.to_string());
    }
    let names: Vec<&str> = snapshot.skills.iter().map(|skill| skill.id.name.as_str()).collect();
    terminal::line(&format!(
        "{} skills at revision {}: {}",
        names.len(),
        snapshot.revision,
        names.join(", ")
    ));
}

/// How to point each SDK here: the only thing that a person must do.
fn greet(address: SocketAddr, mock: bool) {
    terminal::line(&format!(
        "knack serves http://{address}{}",
        if mock { " with a scripted model behind it" } else { "" }
    ));
    terminal::line(&format!("  OpenAI SDKs     export OPENAI_BASE_URL=http://{address}/v1"));
    terminal::line(&format!("  Anthropic SDKs  export ANTHROPIC_BASE_URL=http://{address}"));
    terminal::line(&format!(
        "  Google Gen AI   export GOOGLE_GEMINI_BASE_URL=http://{address}   (passes through; skills are not injected yet)"
    ));
}

/// A secret for callers' identities that lives as long as the process.
pub(super) fn random_secret() -> HistorySecret {
    // Two version 4 UUIDs hold 244 random bits from the operating system.
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(uuid::Uuid::new_v4().as_bytes());
    bytes[16..].copy_from_slice(uuid::Uuid::new_v4().as_bytes());
    HistorySecret::new(bytes)
}

async fn stop_signal() {
    super::signals::stop().await;
    terminal::line("stopping; running answers are finished first");
}
