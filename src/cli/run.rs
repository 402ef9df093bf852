//! `knack skill run`: one run of a skill's tool or script, in the same sandbox that a model's call gets.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use knack_skill::LoadInput;
use knack_skill::call::ToolRun;
use knack_skill::catalog::ModelCode;
use knack_skill::model::Skill;
use knack_skill::problem::Profile;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::{Output, terminal};
use crate::catalog::{RuntimeSettings, Search, discover};
use crate::execution::{ExecutionId, ExecutionRequest, ExecutionResult, Exit, InputFile, Limits, Program, SkillMount};
use crate::gateway::grants::Grants;
use crate::hub_api::RuntimeName;

/// Arguments of `knack skill run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Skill folder or manifest file; with --runtime, a Skill of the cluster as namespace/name
    pub(super) path: PathBuf,
    /// Which skill, if the path holds several
    #[arg(long)]
    skill: Option<String>,
    /// Declared tool to call, with --arguments
    #[arg(long)]
    tool: Option<String>,
    /// Arguments of the tool, as a model would give them
    #[arg(long, value_name = "JSON", default_value = "{}", requires = "tool")]
    arguments: String,
    /// File to put into the working directory as inputs/<name>; repeat for several
    #[arg(long, value_name = "FILE")]
    input: Vec<PathBuf>,
    /// Where result files are saved
    #[arg(long, value_name = "DIR", default_value = "knack-files")]
    pub(super) files_dir: PathBuf,
    /// Wall-clock limit, seconds
    #[arg(long)]
    timeout: Option<u64>,
    /// Give the skill the value of an environment variable
    #[arg(long, value_name = "SKILL:NAME")]
    pub(super) allow_env: Vec<String>,
    /// Run in a cluster, at this SkillRuntime (namespace/name), instead of on this machine
    #[arg(long, value_name = "RUNTIME")]
    runtime: Option<RuntimeName>,
    /// With --runtime: the ServiceAccount to run as, as namespace/name; "default" of the runtime's namespace when absent
    #[arg(long, value_name = "ACCOUNT", requires = "runtime")]
    pub(super) service_account: Option<String>,
    /// With --runtime: the namespace that Knack is installed in
    #[arg(long, value_name = "NAMESPACE", default_value = "knack-system", requires = "runtime")]
    pub(super) hub_namespace: String,
    /// With --runtime: the context of the kubeconfig
    #[arg(long, requires = "runtime")]
    pub(super) context: Option<String>,
    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    pub(super) output: Output,
    /// Program and arguments, instead of a tool: `-- python3 skills/NAME/scripts/x.py out.png`
    #[arg(last = true)]
    command: Vec<String>,
}

/// Runs once; the exit code is the program's.
pub async fn run(args: RunArgs) -> anyhow::Result<ExitCode> {
    if let Some(runtime) = args.runtime.clone() {
        return super::run_cluster::run(args, runtime).await;
    }
    let skill = find_skill(&args).await?;
    let request = request(&args, &skill, Limits::default().timeout).await?;
    terminal::note(&format!("starting the sandbox for {}", skill.id.name));
    let executor = super::local::executor(&RuntimeSettings {
        warm_replicas: Some(0),
        ..RuntimeSettings::default()
    })
    .await;
    let capabilities = executor.capabilities();
    for note in &capabilities.notes {
        terminal::note(note);
    }
    if let Some(missing) = capabilities.missing {
        bail!("code is not run here: {missing}");
    }
    terminal::note("running");
    let cancel = CancellationToken::new();
    let stop = cancel.clone();
    let interrupt = tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            stop.cancel();
        }
    });
    let result = executor.execute(request, cancel).await?;
    interrupt.abort();
    let saved = save(&args.files_dir, &result).await?;
    match args.output {
        Output::Text => print_text(&result, &saved, true),
        Output::Json => print_json(&result, &saved),
    }
    Ok(exit_code(result.exit))
}

async fn find_skill(args: &RunArgs) -> anyhow::Result<Arc<Skill>> {
    let paths = vec![args.path.clone()];
    let found = tokio::task::spawn_blocking(move || discover(&Search::of(paths))).await?;
    for report in &found.reports {
        terminal::note(&report.to_string());
    }
    let mut sources: Vec<_> = found
        .skills
        .into_iter()
        .filter(|source| args.skill.as_ref().is_none_or(|name| *name == source.id.name))
        .collect();
    let source = match sources.len() {
        0 => bail!(
            "{}: no such skill found; name a folder with a SKILL.md or a manifest file",
            args.path.display()
        ),
        1 => sources.remove(0),
        _ => {
            let names: Vec<_> = sources.iter().map(|source| source.id.name.as_str()).collect();
            bail!(
                "{} holds several skills; choose one with --skill: {}",
                args.path.display(),
                names.join(", ")
            )
        }
    };
    let loaded = knack_skill::load(LoadInput {
        id: source.id,
        files: source.files,
        overrides: source.overrides,
        profile: Profile::Load,
    });
    for problem in &loaded.problems {
        terminal::note(&problem.to_string());
    }
    loaded
        .skill
        .map(Arc::new)
        .with_context(|| format!("{}: the skill has errors", args.path.display()))
}

/// The request; `timeout` is the limit where neither the command line nor the skill names one.
pub(super) async fn request(args: &RunArgs, skill: &Arc<Skill>, timeout: Duration) -> anyhow::Result<ExecutionRequest> {
    let id = ExecutionId::new(crate::execution::now(), &uuid::Uuid::now_v7().to_string(), 0, "cli");
    let mount = SkillMount {
        name: skill.id.name.clone(),
        skill: Arc::clone(skill),
    };
    let mut request = match &args.tool {
        Some(name) => {
            let tool = tool(skill, name, &args.arguments)?;
            let env = grants(args, &tool)?;
            ExecutionRequest {
                env,
                ..ExecutionRequest::of_tool(id, CALLER, tool, mount)
            }
        }
        None => ExecutionRequest {
            skill: Some(format!("{}/{}", skill.id.namespace, skill.id.name)),
            mounts: vec![mount],
            ..ExecutionRequest::new(id, CALLER, command(args, skill)?)
        },
    };
    let asked = args.timeout.or(skill.sandbox.timeout_seconds);
    request.limits.timeout = asked.map_or(timeout, Duration::from_secs);
    request.inputs = inputs(&args.input).await?;
    Ok(request)
}

/// Whose executions a person's own are.
const CALLER: &str = "cli";

/// A command line of the person at the terminal: it gets what `run_code` gets, so no environment values.
fn command(args: &RunArgs, skill: &Skill) -> anyhow::Result<Program> {
    if args.command.is_empty() {
        let tools: Vec<_> = skill.tools.iter().map(|tool| tool.name.as_str()).collect();
        bail!(
            "say what to run: --tool NAME (tools of this skill: {}), or a command after --",
            if tools.is_empty() {
                "none".to_owned()
            } else {
                tools.join(", ")
            }
        );
    }
    if !args.allow_env.is_empty() {
        bail!("--allow-env: only declared tools are given environment values, as in knack dev; name one with --tool");
    }
    Ok(Program::Command {
        argv: args.command.clone(),
    })
}

/// A declared tool with its arguments, as a model's call of it.
fn tool(skill: &Skill, name: &str, arguments: &str) -> anyhow::Result<ToolRun> {
    if !skill.tools.iter().any(|tool| tool.name == name) {
        let tools: Vec<_> = skill.tools.iter().map(|tool| tool.name.as_str()).collect();
        bail!(
            "--tool {name}: this skill declares {}",
            if tools.is_empty() {
                "no tools".to_owned()
            } else {
                tools.join(", ")
            }
        );
    }
    let arguments: Map<String, Value> = serde_json::from_str(arguments).context("--arguments must be a JSON object")?;
    ToolRun::resolve(skill, name, arguments, &crate::tool_schema::validate)
        .map_err(|refused| anyhow::anyhow!("--arguments: {}", refused.trim_start_matches("Error: ")))
}

/// The values that `--allow-env` grants to a tool; in a cluster the runtime's grants are the hub's.
fn grants(args: &RunArgs, tool: &ToolRun) -> anyhow::Result<BTreeMap<String, String>> {
    let grants = Grants::parse(&args.allow_env, |name| std::env::var(name).ok()).map_err(anyhow::Error::msg)?;
    let granted = grants.for_tool(tool);
    tool.admit(!granted.env.is_empty(), ModelCode::Allow)
        .map_err(anyhow::Error::msg)?;
    if args.runtime.is_none() {
        for name in &granted.missing {
            terminal::note(&format!(
                "the tool asks for {name}, which is not granted; give it with --allow-env {}:{name}",
                tool.skill.name
            ));
        }
    }
    Ok(granted.env)
}

async fn inputs(paths: &[PathBuf]) -> anyhow::Result<Vec<InputFile>> {
    let mut files = Vec::with_capacity(paths.len());
    for path in paths {
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .with_context(|| format!("--input {}: not a file name", path.display()))?;
        let bytes = tokio::fs::read(path)
            .await
            .with_context(|| format!("--input {}", path.display()))?;
        files.push(InputFile {
            path: format!("inputs/{name}"),
            bytes: bytes.into(),
        });
    }
    Ok(files)
}

pub(super) async fn save(folder: &Path, result: &ExecutionResult) -> anyhow::Result<BTreeMap<String, PathBuf>> {
    let mut saved = BTreeMap::new();
    for file in &result.files {
        // The executor delivers relative paths without `..` only; they stay below the folder.
        let path = folder.join(&file.path);
        if let Some(parent) = path.parent() {
            tokio::fs::create_dir_all(parent)
                .await
                .with_context(|| format!("--files-dir {}", folder.display()))?;
        }
        tokio::fs::write(&path, &file.bytes)
            .await
            .with_context(|| format!("saving {}", path.display()))?;
        saved.insert(file.path.clone(), path);
    }
    Ok(saved)
}

/// `outputs`: with what the program wrote, unless that was shown while it ran.
pub(super) fn print_text(result: &ExecutionResult, saved: &BTreeMap<String, PathBuf>, outputs: bool) {
    if outputs {
        terminal::raw(&result.stdout.bytes);
        terminal::note(result.stderr.text().trim_end());
    }
    for path in saved.values() {
        terminal::note(&format!("saved {}", path.display()));
    }
    for error in &result.file_errors {
        terminal::note(&format!("not saved {}: {}", error.path, error.reason));
    }
    terminal::note(&format!(
        "{}, {} ms, locks: seccomp {}, Landlock {} (ABI {})",
        ended(result.exit),
        result.timings.run.as_millis(),
        if result.locks.seccomp { "on" } else { "off" },
        result.locks.landlock,
        result.locks.landlock_abi
    ));
}

pub(super) fn print_json(result: &ExecutionResult, saved: &BTreeMap<String, PathBuf>) {
    let files: Vec<Value> = result
        .files
        .iter()
        .map(|file| json!({"name": file.path, "mime_type": file.mime_type, "size_bytes": file.bytes.len(), "sha256": file.sha256, "saved": saved.get(&file.path)}))
        .collect();
    let document = json!({
        "execution": result.id.to_string(), "status": result.status().as_str(), "end": ended(result.exit), "exit_code": code(result.exit),
        "stdout": result.stdout.text(), "stderr": result.stderr.text(), "truncated": result.stdout.truncated || result.stderr.truncated, "files": files,
        "file_errors": result.file_errors.iter().map(|error| json!({"name": error.path, "reason": error.reason})).collect::<Vec<_>>(),
        "run_ms": u64::try_from(result.timings.run.as_millis()).unwrap_or(u64::MAX),
    });
    terminal::line(&format!("{document:#}"));
}

fn ended(exit: Exit) -> String {
    match exit {
        Exit::Code(code) => format!("exit {code}"),
        Exit::Signal(signal) => format!("ended by signal {signal}"),
        Exit::Timeout => "ended by its time limit".to_owned(),
        Exit::OutOfMemory => "ended by its memory limit".to_owned(),
        Exit::OutputLimit => "ended by its output limit".to_owned(),
        Exit::DiskLimit => "ended by its disk limit".to_owned(),
        Exit::ProcessLimit => "ended by its process limit".to_owned(),
    }
}

/// Exit codes as a shell reports them: 128 + signal, 124 for a timeout, 137 for a kill by a limit.
const fn code(exit: Exit) -> i32 {
    match exit {
        Exit::Code(code) => code,
        Exit::Signal(signal) => 128 + signal,
        Exit::Timeout => 124,
        Exit::OutOfMemory | Exit::OutputLimit | Exit::DiskLimit | Exit::ProcessLimit => 137,
    }
}

pub(super) fn exit_code(exit: Exit) -> ExitCode {
    ExitCode::from(u8::try_from(code(exit)).unwrap_or(1))
}
