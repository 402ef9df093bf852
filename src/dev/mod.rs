//! `knack dev`: gateway, catalog from files, local executor, and on request a scripted model, in one process.

mod archives;
mod assemble;
mod bare_source;
mod caller_catalogs;
mod config_args;
mod config_maps;
mod contested;
mod duplicates;
mod file_changes;
mod find_sources;
mod folder;
mod history;
mod local;
mod lost_manifests;
mod named_folder;
mod new_revisions;
mod notes;
mod offered;
mod printing;
mod ready_skills;
mod runtime;
mod search_progress;
mod search_settings;
mod start_settings;
mod uploads;
mod upstreams;
pub mod watch;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

pub use archives::{archive_stem, archived_skill};
pub use assemble::assemble;
use caller_catalogs::UploadRuntime;
pub(crate) use config_args::ConfigArgs;
use contested::contested;
pub(crate) use duplicates::{place_of_first, repeated, repeated_name};
pub use find_sources::{DiscoveredSources, discover, discover_all, discover_text, lone_skill, with_files};
pub(crate) use local::executor as local_executor;
use offered::ServedSkills;
use printing::{announce, greet, print_snapshot};
use ready_skills::ReadySkills;
pub use runtime::FoundRuntime;
pub(crate) use runtime::{config_values, package_rules, settings as runtime_settings};
use search_settings::EnvFlag;
pub use search_settings::Search;
pub(crate) use search_settings::SkillFlag;
use start_settings::StartSettings;
use uploads::DevUploads;
use upstreams::UpstreamArgs;
pub use watch::WatchGuard;

use anyhow::{Context, bail};
use clap::Args;
use clap::builder::BoolishValueParser;
use knack_packages::given::applied;
use knack_packages::{Declaration, Rules, declare};
use knack_registry::HistorySettings;
use knack_serving::Stop;
use knack_skill::catalog::Node;
use knack_skill::model::{Packages as PackageNames, Skill};
use tokio::net::TcpListener;

use crate::catalogs::CatalogArgs;
use crate::cli::listen_address::listen_address;
use crate::cli::terminal::{self, Terminal};
use crate::packages::{Packages, Uv};
use knack_execution::environments::Environments;
use knack_execution::{Capabilities, Executor, Language};
use knack_gateway::catalog::{LastGood, LiveCatalog, ReportLevel, RuntimeSettings, Snapshot};
use knack_gateway::files::user_files::{Bounds, Clock, UserFiles};
use knack_gateway::files::{FILES_FOLDER_REFUSED, FILES_QUOTA_BYTES, FileStore, private};
use knack_gateway::http_server::budget::{BodyTimes, RequestMemory};
use knack_gateway::http_server::server;
use knack_gateway::model_calls::inject::Materials;
use knack_gateway::model_calls::turn_store::{TURNS_DEV_BYTES, TurnStore};
use knack_gateway::providers::operator_key::KeyScope;
use knack_gateway::providers::upstream::Upstreams;
use knack_gateway::runs::code_tools::CodeTools;
use knack_gateway::runs::grants::Grants;
use knack_gateway::runs::skill_runs::SkillRuns;
use knack_gateway::skills_api::uploads::Uploads;
use knack_gateway::telemetry::body_files::BodyRecorder;
use knack_gateway::telemetry::metrics::Metrics;
use knack_gateway::{Gateway, HostPolicy};
use knack_memory::MemoryBudget;
use knack_telemetry::Tracer;
use knack_trust::{CaArgs, Roots};

/// Where uploads and containers are below the folder of `--registry`.
const FILES_FOLDER: &str = "files";

/// How long connections have to end that are cut off: none waits for anything.
const CUT_TIMEOUT: Duration = Duration::from_secs(1);

/// Arguments of `knack dev`.
#[derive(Debug, Args)]
pub struct DevArgs {
    /// Skill folders, manifest files, archives, or folders that hold skills or manifests
    #[arg(default_value = ".")]
    paths: Vec<PathBuf>,
    /// Address to serve on; loopback only
    #[arg(long, default_value = "127.0.0.1:4141", env = "KNACK_LISTEN", value_parser = listen_address)]
    listen: SocketAddr,
    #[command(flatten)]
    upstream: UpstreamArgs,
    /// APIs whose upstream has no tool that runs programs (OpenAI's shell in a container, Anthropic's and Gemini's code
    /// execution): clients that ask for it get runs in the sandbox of this machine
    #[arg(
        long,
        value_name = "APIS",
        env = "KNACK_SANDBOX_CODE_TOOLS",
        value_enum,
        value_delimiter = ','
    )]
    sandbox_code_tools: Vec<CodeTools>,
    /// Do not run code on this machine; calls that need it are answered with an error that says what to do
    #[arg(long)]
    no_local_executor: bool,
    /// Write the bodies of every model request, before and after the gateway, to this folder
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    /// Folder for generated files [default: knack/files below $XDG_STATE_HOME or ~/.local/state]
    #[arg(long, value_name = "DIR", conflicts_with = "no_local_executor")]
    files_dir: Option<PathBuf>,
    /// Keep what clients upload by the Files APIs (Anthropic, OpenAI), and OpenAI's containers, in this process instead of at
    /// the provider; they are inputs of runs. With --registry they are kept in its folder over a restart
    #[arg(long, env = "KNACK_FILES", value_parser = BoolishValueParser::new())]
    files: bool,
    /// Serve the Skills APIs (Anthropic, OpenAI, Agent Flow, OmniRoute, LiteLLM) and keep uploaded skills in this folder
    #[arg(long, value_name = "DIR", env = "KNACK_REGISTRY")]
    registry: Option<PathBuf>,
    /// Model for runs of skills (POST /api/v1/skills/{name}/run) that name no model; requests go to the OpenAI API
    #[arg(long, value_name = "MODEL", env = "KNACK_RUN_MODEL", requires = "registry")]
    run_model: Option<String>,
    #[command(flatten)]
    catalogs: CatalogArgs,
    /// Days to keep the history of executions in the folder of --registry; 0 keeps none and removes the existing one
    #[arg(long, value_name = "DAYS", requires = "registry", default_value_t = HistorySettings::DAYS, value_parser = clap::value_parser!(u32).range(..=3650))]
    history_days: u32,
    /// Give a skill the value of an environment variable; SKILL is the name of a folder, namespace/name of a skill with another namespace
    /// than `default`, and uploads/NAME the uploaded skill NAME of every caller
    #[arg(long, value_name = "SKILL:NAME", conflicts_with = "no_local_executor")]
    allow_env: Vec<String>,
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    ca: CaArgs,
    /// Memory for hidden turns between requests, MiB
    #[arg(long, value_name = "MIB", default_value_t = TURNS_DEV_BYTES >> 20)]
    record_store_mib: usize,
    /// Write the port number to this file once the gateway listens
    #[arg(long, value_name = "FILE")]
    print_port_file: Option<PathBuf>,
}

/// Where uploads and containers are kept, if they are: in the folder of `--registry`, which also keeps who is who, else in a
/// temporary one.
fn user_files(args: &DevArgs) -> anyhow::Result<Option<Arc<UserFiles>>> {
    if !args.files {
        return Ok(None);
    }
    let clock: Clock = Arc::new(jiff::Timestamp::now);
    let Some(registry) = &args.registry else {
        let kept = UserFiles::temporary(Bounds::default(), clock);
        return kept.map(Some).context("cannot create a folder for uploaded files");
    };
    let folder = registry.join(FILES_FOLDER);
    let kept = UserFiles::open(&folder, Bounds::default(), clock);
    let kept = kept.with_context(|| format!("--registry {}: {}", registry.display(), folder.display()))?;
    terminal::line(&format!("uploaded files are kept in {}", folder.display()));
    Ok(Some(kept))
}

/// Serves until Ctrl-C or SIGTERM.
pub async fn dev(args: DevArgs) -> anyhow::Result<ExitCode> {
    let _lines = terminal::serve_lines().context("cannot write to standard output")?;
    let roots = args.ca.roots()?;
    let listener = listen(args.listen).await?;
    let address = listener.local_addr()?;
    let files_folder = files_folder(args.files_dir.clone())?;
    let search = search(&args, files_folder.as_deref())?;
    let (runtime, rules) = runtime(search.clone()).await?;
    let environments = Environments::default();
    let executor = executor(&args, &runtime, &environments).await;
    let capabilities = executor.capabilities();
    let at_start = StartSettings {
        runtime: runtime.clone(),
        rules: rules.clone(),
    };
    let search = search.started_with(at_start);
    let (search, packages) = packages(search, &capabilities, environments, rules, roots.clone());
    let mock = args.upstream.start_mock().await?;
    let upstreams = upstreams(&args, &runtime, mock.as_ref().map(|mock| mock.url.clone()), &roots)?;
    let metrics = Metrics::default();
    let tracer = Tracer::from_env("knack-dev", &roots).map_err(anyhow::Error::msg)?;
    let (changed, changes) = tokio::sync::watch::channel(0);
    let judged = Arc::new(ReadySkills::new(packages.clone(), changed));
    let search = search.installed_by(Arc::clone(&judged));
    let (catalog, _watching) = watch(&search, &capabilities, &metrics, Arc::clone(&judged)).await?;
    let uploads = uploads(&args, &search, judged, &roots)?;
    let _building = packages.map(|packages| packages.follow(changes));
    let grants = Grants::parse(&args.allow_env, |name| std::env::var(name).ok()).map_err(anyhow::Error::msg)?;
    let recorder = recorder(&args)?;
    let secret = secret(uploads.as_deref());
    let gateway = Arc::new(Gateway {
        catalog,
        catalog_age: None,
        upstreams,
        executor,
        sandbox_code_tools: args.sandbox_code_tools.iter().copied().collect(),
        grants: Arc::new(grants),
        uploads: uploads.clone().map(|uploads| uploads as Arc<dyn Uploads>),
        skill_runs: SkillRuns::new(args.run_model.clone()),
        history: uploads.as_ref().and_then(|uploads| uploads.runs()),
        discovery: Some(Arc::new(ServedSkills::new(secret.clone()))),
        files: FileStore::open(FILES_QUOTA_BYTES).context(FILES_FOLDER_REFUSED)?,
        user_files: user_files(&args)?,
        files_folder: files_folder.clone(),
        turn_store: TurnStore::new(args.record_store_mib << 20),
        secret: Arc::new(secret.into()),
        replicas: None,
        requests: RequestMemory::new(&MemoryBudget::of_process(), BodyTimes::default()),
        metrics,
        recent: Arc::default(),
        tracer: tracer.clone(),
        console: Arc::new(Terminal),
        recorder: recorder.clone(),
        host_policy: HostPolicy::LocalOnly,
        public_url: Some(format!("http://{address}")),
        materials: Materials::default(),
        stops: Stop::default(),
    });
    if let Some(uploads) = &uploads {
        uploads.run_by(&gateway);
    }
    announce(&capabilities, files_folder.as_deref());
    // Signal handlers are installed before the address is printed.
    let (stop, again) = (stop_signal(), knack_serving::signals::stop_again());
    greet(address, mock.is_some());
    print_port(&args, address).await?;
    serve(gateway, listener, stop, again).await;
    write_out(recorder.as_ref(), uploads.as_deref(), &tracer).await;
    terminal::line("stopped");
    Ok(ExitCode::SUCCESS)
}

/// The key of callers. The user of runs is the one of uploads, also after a restart.
fn secret(uploads: Option<&DevUploads>) -> knack_wire::history::HistorySecret {
    uploads.map_or_else(knack_gateway::callers::secret::random_secret, DevUploads::secret)
}

/// Serves the APIs of models and MCP until `stop`; `again` cuts off what is still running.
async fn serve(
    gateway: Arc<Gateway>,
    listener: TcpListener,
    stop: impl Future<Output = ()> + Send,
    again: impl Future<Output = ()>,
) {
    let cut = gateway.stops.cut.clone();
    let service = server::Service {
        routes: knack_mcp::router(Arc::clone(&gateway)),
        ..server::Service::open(gateway)
    };
    let served = server::serve(service, listener, stop);
    tokio::pin!(served);
    tokio::select! {
        () = &mut served => {}
        () = again => {
            terminal::line("running answers are cut off");
            cut.cancel();
            // It ends with its connections, of which each has the token.
            let _ = tokio::time::timeout(CUT_TIMEOUT, served).await;
        }
    }
}

/// The providers, asked with the keys of the user.
fn upstreams(
    args: &DevArgs,
    runtime: &RuntimeSettings,
    mock_url: Option<String>,
    roots: &Roots,
) -> anyhow::Result<Upstreams> {
    let bases = args
        .upstream
        .bases(runtime, mock_url, |name| std::env::var(name).ok())?;
    // Only the user of this machine can reach this program, and it runs as that user.
    Ok(Upstreams::new(&bases, roots)?
        .with_key_scope(KeyScope::Account)
        .through_knack(args.upstream.upstream_knack.iter().copied()))
}

/// Waits until recordings, the history of executions and spans are written.
async fn write_out(recorder: Option<&BodyRecorder>, uploads: Option<&DevUploads>, tracer: &Tracer) {
    if let Some(recorder) = recorder {
        recorder.flush().await;
    }
    if let Some(uploads) = uploads {
        uploads.flush().await;
    }
    tracer.close().await;
}

/// Writes the port to the file of `--print-port-file`, if it is given. Errors: the file cannot be written.
async fn print_port(args: &DevArgs, address: SocketAddr) -> anyhow::Result<()> {
    let Some(file) = &args.print_port_file else {
        return Ok(());
    };
    let written = tokio::fs::write(file, format!("{}\n", address.port())).await;
    written.with_context(|| format!("--print-port-file {}", file.display()))
}

/// The recorder of `--record`, if it is given. Errors: its folder cannot be made.
fn recorder(args: &DevArgs) -> anyhow::Result<Option<BodyRecorder>> {
    let recorder = args.record.clone().map(BodyRecorder::start).transpose();
    recorder.context("--record: cannot create the folder")
}

async fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    if !address.ip().is_loopback() {
        bail!(
            "--listen {address}: knack dev serves loopback addresses only, since it runs code for anyone who can reach it; use 127.0.0.1 or [::1]"
        );
    }
    TcpListener::bind(address).await.with_context(|| {
        format!("--listen {address}: cannot listen on this address; is another knack running? choose another port")
    })
}

/// The folder of generated files, made if need be. `None` where there is none by default: they are served by URL only,
/// and the console says so.
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
    let none = |why: &str| {
        terminal::line(&format!(
            "generated files are served by URL only, not written to a folder: {why}; name a folder with --files-dir"
        ));
        Ok(None)
    };
    let Some(folder) = named.or_else(of_user) else {
        return none("neither XDG_STATE_HOME nor HOME is an absolute path");
    };
    match private::create_folder(&folder) {
        Ok(()) => Ok(Some(folder)),
        Err(error) if !chosen => none(&format!("{}: {error}", folder.display())),
        Err(error) => Err(error).with_context(|| format!("--files-dir {}", folder.display())),
    }
}

/// The folders that are searched for skills. Never those that runs or requests write to: a skill that appears there was
/// written by a model, and would be in every later request.
fn search(args: &DevArgs, files_folder: Option<&Path>) -> anyhow::Result<Search> {
    let given = args.config.read(|name| std::env::var(name).ok())?;
    if let Some(record) = &args.record {
        private::create_folder(record).with_context(|| format!("--record {}", record.display()))?;
    }
    if let Some(registry) = &args.registry {
        private::create_folder(registry).with_context(|| format!("--registry {}", registry.display()))?;
    }
    let never = files_folder.into_iter().chain(args.record.as_deref());
    let search = Search::of(args.paths.clone()).never_below(never.chain(args.registry.as_deref()));
    let granted = args.allow_env.iter().map(|word| SkillFlag::of_allow_env(word));
    let given_to = args.config.given_to().chain(granted).collect();
    let search = search.map(|search| {
        let search = search.with_config(given).reporting_given(given_to);
        let has_uploads = args.registry.is_some();
        let search = search.beside_uploads(has_uploads).reporting_pins(!has_uploads);
        if args.no_local_executor {
            return search;
        }
        search.reporting_granted(args.allow_env.iter().filter_map(|word| EnvFlag::of(word)).collect())
    });
    search.context("the folders for generated files, recordings and uploaded skills cannot be read")
}

/// Uploaded skills, with `--registry`.
fn uploads(
    args: &DevArgs,
    search: &Search,
    judged: Arc<ReadySkills>,
    roots: &Roots,
) -> anyhow::Result<Option<Arc<DevUploads>>> {
    let Some(folder) = &args.registry else {
        args.catalogs.refuse_without_registry()?;
        return Ok(None);
    };
    let catalogs = args.catalogs.named_or_default(roots)?;
    let runtime = UploadRuntime {
        packages: search.packages,
        rules: search
            .flags
            .at_start
            .as_ref()
            .map_or_else(Rules::default, |at_start| at_start.rules.clone()),
        granted: search.flags.granted.clone().map(Arc::from),
    };
    let opened = DevUploads::open(folder, args.history_days, runtime, judged, catalogs);
    let opened = opened.with_context(|| format!("--registry {}", folder.display()))?;
    terminal::line(&format!("uploaded skills are kept in {}", folder.display()));
    Ok(Some(Arc::new(opened)))
}

/// The settings of the runtime size the executor, and its rules choose packages; they are read once, before it starts.
/// Errors: what a user named cannot be read, so that defaults would hold where a SkillRuntime sets less, or another provider; or a flag
/// may mean several skills, of which the first would get its value.
async fn runtime(search: Search) -> anyhow::Result<(RuntimeSettings, Rules)> {
    let read = move || {
        let found = discover(&search);
        if let Some(report) = found.named_failed.first() {
            bail!("{}: {}", report.origin, report.text);
        }
        if let Some(text) = contested(&found.flags, &found.skills).into_values().next() {
            bail!("{text}");
        }
        let rules = package_rules(&found.runtimes)?;
        Ok((assemble(found, Node::Absent, &mut LastGood::default()).runtime, rules))
    };
    tokio::task::spawn_blocking(read).await?
}

async fn watch(
    search: &Search,
    capabilities: &Capabilities,
    metrics: &Metrics,
    judged: Arc<ReadySkills>,
) -> anyhow::Result<(Arc<LiveCatalog>, WatchGuard)> {
    let node = if capabilities.languages.contains(&Language::Node) {
        Node::Present
    } else {
        Node::Absent
    };
    let of_catalogs = metrics.of_catalogs();
    let on_change = move |snapshot: &Snapshot| {
        print_snapshot(snapshot);
        judged.files(snapshot.skills.clone());
        let errors = snapshot
            .reports
            .iter()
            .filter(|report| report.level == ReportLevel::Error)
            .count();
        of_catalogs(snapshot.names(), errors);
    };
    watch::watch(search.clone(), node, on_change).await.with_context(|| {
        let names: Vec<String> = search.paths.iter().map(|path| path.display().to_string()).collect();
        format!("{} cannot be watched", names.join(", "))
    })
}

/// Environments are made where code runs. Without uv the standard one is not offered to skills that declare nothing.
fn packages(
    search: Search,
    capabilities: &Capabilities,
    environments: Environments,
    rules: Rules,
    roots: Roots,
) -> (Search, Option<Arc<Packages>>) {
    if capabilities.missing.is_some() {
        return (search, None);
    }
    let offer = match Uv::find() {
        // Nor is the standard environment given where the runtime does not allow it.
        Ok(_) if rules.forbidden(true).is_some() => declared_packages,
        Ok(_) if rules.gives_standard() => declared_or_given,
        Ok(_) => declared_or_standard,
        Err(_) => declared_packages,
    };
    (
        search.with_packages(offer),
        Some(Packages::new(environments, rules, roots, terminal::line)),
    )
}

/// Names of the packages that a skill declares.
fn declared_packages(skill: &Skill) -> PackageNames {
    let declared = declare(&skill.files, skill.requirements.as_ref());
    if declared.is_declared() {
        names(&declared)
    } else {
        PackageNames::default()
    }
}

/// Names of the packages that a skill declares, or those of the standard environment, for a skill that declares none.
fn declared_or_standard(skill: &Skill) -> PackageNames {
    let declared = declare(&skill.files, skill.requirements.as_ref());
    if declared.wants_environment() {
        names(&declared)
    } else {
        PackageNames::default()
    }
}

fn names(declared: &Declaration) -> PackageNames {
    PackageNames {
        python: declared.names(),
        node: declared.node_names(),
    }
}

/// The packages of skills where the runtime gives the standard environment to every skill that declares none.
fn declared_or_given(skill: &Skill) -> PackageNames {
    let declared = declare(&skill.files, skill.requirements.as_ref());
    names(&applied(&Rules::default().with_standard(true), declared))
}

async fn executor(args: &DevArgs, runtime: &RuntimeSettings, environments: &Environments) -> Arc<dyn Executor> {
    if args.no_local_executor {
        return Arc::new(knack_execution::DisabledExecutor::by_flag());
    }
    local::executor(runtime, environments).await
}

fn stop_signal() -> impl Future<Output = ()> + Send {
    let caught = knack_serving::signals::stop();
    async {
        caught.await;
        terminal::line("stopping; running answers are finished first, unless you stop it again");
    }
}
