//! The arguments of `knack skill run`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use knack_execution::{ExecutionId, ExecutionRequest, InputFile, Limits, Program, SkillMount};
use knack_gateway::catalog::RuntimeSettings;
use knack_gateway::runs::grants::Grants;
use knack_hub_api::RuntimeName;
use knack_skill::call::ToolRun;
use knack_skill::catalog::ModelCode;
use knack_skill::config::{SkillConfig, entries_for, problems, undeclared};
use knack_skill::model::Skill;
use knack_skill::risk::Risk;
use knack_trust::CaArgs;
use serde_json::{Map, Value};

use super::explicit_flags::ExplicitFlags;
use super::{Output, terminal};
use crate::dev::{ConfigArgs, SkillFlag};
use crate::regular_file;

/// The highest limit of a run, as of a SkillRuntime (`maxTimeoutSeconds`).
const TIMEOUT_MAX_SECONDS: u64 = 3600;

/// Arguments of `knack skill run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub(super) typed: ExplicitFlags,
    /// Skill folder or manifest file; with --runtime, a Skill of the cluster as namespace/name
    pub(super) path: PathBuf,
    /// Name of the skill, or namespace/name, if the path holds several
    #[arg(long)]
    pub(super) skill: Option<String>,
    /// Declared tool to call, with --arguments
    #[arg(long, conflicts_with = "command")]
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
    /// Wall-clock limit, seconds; when absent, what the skill asks for (timeout_ms, spec.sandbox.timeoutSeconds) up to the
    /// runtime's limit, else the runtime's default, 10 unless it sets another
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=TIMEOUT_MAX_SECONDS))]
    timeout: Option<u64>,
    /// Give the skill the value of an environment variable; SKILL is its name, or namespace/name if its namespace is not `default`
    #[arg(long, value_name = "SKILL:NAME")]
    pub(super) allow_env: Vec<String>,
    #[command(flatten)]
    pub(super) config: ConfigArgs,
    #[command(flatten)]
    pub(super) ca: CaArgs,
    /// Run in a cluster, at this SkillRuntime (namespace/name), instead of on this machine
    #[arg(long, value_name = "RUNTIME")]
    pub(super) runtime: Option<RuntimeName>,
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

/// The limits of a runtime, for runs of its skills.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunLimits {
    /// Wall-clock limit where neither the command line nor the skill names one.
    timeout: Duration,
    /// The highest one that a skill may ask for; the command line may name any.
    max_timeout: Duration,
    /// Memory limit where the skill names none.
    memory_bytes: Option<u64>,
    /// The highest one that a skill may ask for.
    max_memory_bytes: Option<u64>,
}

impl RunLimits {
    /// The limits of a runtime on this machine.
    pub(super) fn of(runtime: &RuntimeSettings) -> Self {
        Self {
            timeout: runtime.timeout,
            max_timeout: runtime.max_timeout,
            memory_bytes: runtime.memory_bytes,
            max_memory_bytes: runtime.max_memory_bytes,
        }
    }

    /// The limits of a runtime in a cluster, whose hub judges what the skill asks for.
    pub(super) fn of_cluster(timeout: Duration) -> Self {
        Self {
            timeout,
            max_timeout: Duration::from_secs(TIMEOUT_MAX_SECONDS),
            memory_bytes: None,
            max_memory_bytes: None,
        }
    }
}

/// The request of a run within the limits of its runtime.
/// `config`: values of configuration; in a cluster they are the hub's. `now` is [`knack_execution::Executor::now`] of the executor
/// that it is for.
pub(super) async fn request(
    args: &RunArgs,
    skill: &Arc<Skill>,
    runtime: &RunLimits,
    config: Option<&[SkillConfig]>,
    now: Duration,
) -> anyhow::Result<ExecutionRequest> {
    let id = ExecutionId::new(now, &uuid::Uuid::now_v7().to_string(), 0, "cli");
    let mount = SkillMount {
        name: skill.id.name.clone(),
        skill: Arc::clone(skill),
    };
    let mut request = match &args.tool {
        Some(name) => {
            let mut tool = tool(skill, name, &args.arguments)?;
            let mut env = grants(args, &tool)?;
            if let Some(config) = config {
                env.extend(configured(&mut tool, config)?);
            }
            ExecutionRequest {
                env,
                ..ExecutionRequest::of_tool(id, CALLER, tool, mount)
            }
        }
        None => ExecutionRequest {
            skill: Some(skill.id.clone()),
            mounts: vec![mount],
            ..ExecutionRequest::new(id, CALLER, command(args, skill)?)
        },
    };
    let asked = skill.sandbox.timeout_seconds.map(Duration::from_secs);
    let asked = asked.map(|asked| asked.min(runtime.max_timeout));
    let limits = &mut request.limits;
    limits.timeout = args
        .timeout
        .map(Duration::from_secs)
        .or(asked)
        .unwrap_or(runtime.timeout);
    let memory = skill.sandbox.memory_bytes;
    let memory = memory.map(|asked| runtime.max_memory_bytes.map_or(asked, |most| asked.min(most)));
    limits.memory_bytes = memory.or(runtime.memory_bytes);
    if let Some(asked) = skill.sandbox.max_output_bytes {
        limits.max_output_bytes = asked.min(limits.max_output_bytes);
    }
    request.inputs = inputs(&args.input).await?;
    Ok(request)
}

/// The caller's name for runs from the command line.
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
    if !args.config.is_empty() {
        bail!("--set: only declared tools are given configuration, as in knack dev; name one with --tool");
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
    ToolRun::resolve(skill, name, arguments, &knack_tool_schema::validate)
        .map_err(|refused| anyhow::anyhow!("--arguments: {}", refused.trim_start_matches("Error: ")))
}

/// Refuses values that no tool of the skill would get. `given`: those of `--set` and `--set-env`.
pub(super) fn refuse_unused(args: &RunArgs, skill: &Skill, given: &[SkillConfig]) -> anyhow::Result<()> {
    // With a command, both flags are refused altogether.
    if args.tool.is_none() {
        return Ok(());
    }
    let name = skill.id.word();
    // An invalid word is reported where the values are read.
    let granted = args.allow_env.iter().filter(|word| word.contains(':'));
    let granted = granted.map(|word| SkillFlag::of_allow_env(word));
    if let Some(other) = args
        .config
        .given_to()
        .chain(granted)
        .find(|given| !given.is_for(&skill.id))
    {
        bail!("{}: the skill is {name}, not {}", other.flag, other.skill);
    }
    let tools = skill
        .tools
        .iter()
        .map(|tool| (tool.name.as_str(), tool.config.as_slice()));
    let entries = entries_for(given, &skill.id);
    if let Some(unknown) = undeclared(&tools, &entries).first() {
        let declared = skill
            .tools
            .iter()
            .flat_map(|tool| &tool.config)
            .map(|param| param.name.as_str());
        let flag = args
            .config
            .given_to()
            .find(|given| given.flag.ends_with(&format!(".{unknown}")));
        bail!(
            "{}: no tool of this skill has that parameter; they have {}",
            flag.map_or_else(|| format!("--set {name}.{unknown}"), |given| given.flag),
            listed(&declared.collect::<BTreeSet<_>>())
        );
    }
    // Those of the skill (`tool_env`) are for each of its tools.
    let of_tools = skill.tools.iter().flat_map(|tool| &tool.env);
    let asked: BTreeSet<&str> = skill.env.iter().chain(of_tools).map(String::as_str).collect();
    let mut granted = args.allow_env.iter().filter_map(|word| word.rsplit_once(':'));
    if let Some((_, unknown)) = granted.find(|(_, variable)| !asked.contains(variable)) {
        bail!(
            "--allow-env {name}:{unknown}: no tool of this skill asks for that variable; they ask for {}",
            listed(&asked)
        );
    }
    Ok(())
}

fn listed(names: &BTreeSet<&str>) -> String {
    if names.is_empty() {
        return "none".to_owned();
    }
    let names: Vec<&str> = names.iter().copied().collect();
    names.join(", ")
}

/// The values that `--allow-env` grants to a tool; in a cluster the runtime's grants are the hub's.
fn grants(args: &RunArgs, tool: &ToolRun) -> anyhow::Result<BTreeMap<String, String>> {
    let grants = Grants::parse(&args.allow_env, |name| std::env::var(name).ok()).map_err(anyhow::Error::msg)?;
    let granted = grants.for_tool(tool);
    // The limit of a runtime is for what models call; a cluster has its own word.
    tool.admit(!granted.env.is_empty(), ModelCode::Allow, Risk::Critical)
        .map_err(anyhow::Error::msg)?;
    if args.runtime.is_none() {
        for name in &granted.missing {
            terminal::note(&format!(
                "the tool asks for {name}, which is not granted; give it with --allow-env {}:{name}",
                tool.skill.word()
            ));
        }
    }
    Ok(granted.env)
}

/// The values of the tool's configuration.
fn configured(tool: &mut ToolRun, config: &[SkillConfig]) -> anyhow::Result<BTreeMap<String, String>> {
    let entries = entries_for(config, &tool.skill);
    if let Some(why) = problems(&tool.tool, &tool.config, &entries) {
        bail!(
            "--tool {}: in its configuration, {why}; give values with --set {}.PARAMETER=VALUE",
            tool.tool,
            tool.skill.word()
        );
    }
    tool.configure(&entries).map_err(anyhow::Error::msg)
}

async fn inputs(paths: &[PathBuf]) -> anyhow::Result<Vec<InputFile>> {
    let mut files: Vec<InputFile> = Vec::with_capacity(paths.len());
    for path in paths {
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .with_context(|| format!("--input {}: not a file name", path.display()))?;
        let place = format!("inputs/{name}");
        if files.iter().any(|other| other.path == place) {
            bail!(
                "--input {}: another input is {place} already; rename one of the files",
                path.display()
            );
        }
        let from = path.clone();
        let read = tokio::task::spawn_blocking(move || regular_file::read(&from, Limits::MAX_INPUT_BYTES)).await?;
        let bytes = read.with_context(|| format!("--input {}", path.display()))?;
        files.push(InputFile {
            path: place,
            bytes: bytes.into(),
        });
    }
    Ok(files)
}
