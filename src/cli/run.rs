//! `knack skill run`: one run of a skill's tool or script, in the same sandbox that a model's call gets.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use knack_execution::environments::Environments;
use knack_gateway::catalog::{RuntimeSettings, SkillSource};
use knack_packages::Rules;
use knack_skill::config::SkillConfig;
use knack_skill::model::Skill;
use knack_skill::problem::Profile;

use super::find_sources::find_sources;
use super::run_args::{RunArgs, RunLimits, refuse_unused, request};
use super::run_result::{exit_code, print_json, print_json_error, print_outputs, print_text, save};
use super::stop::{stop_on_signal, unless_stopped};
use super::{Output, terminal};
use crate::dev::{config_values, discover, package_rules, runtime_settings};
use crate::packages::Packages;

/// Runs once; the exit code is the program's. A document says so, too, if nothing is run.
pub async fn run(args: RunArgs) -> anyhow::Result<ExitCode> {
    let output = args.output;
    let ran = run_once(args).await;
    if let (Err(error), Output::Json) = (&ran, output) {
        print_json_error(error);
    }
    ran
}

async fn run_once(args: RunArgs) -> anyhow::Result<ExitCode> {
    if let Some(runtime) = args.runtime.clone() {
        return super::run_cluster::run(args, runtime).await;
    }
    let roots = args.ca.roots()?;
    let Found {
        skill,
        rules,
        mut config,
        runtime,
    } = find_skill(&args).await?;
    let given = args.config.read(|name| std::env::var(name).ok())?;
    refuse_unused(&args, &skill, &given)?;
    config.extend(given);
    let request = request(
        &args,
        &skill,
        &RunLimits::of(&runtime),
        Some(&config),
        knack_execution::now(),
    )
    .await?;
    terminal::note(&format!("starting the sandbox for {}", skill.id.name));
    let environments = Environments::default();
    let settings = RuntimeSettings {
        warm_replicas: Some(0),
        max_memory_bytes: runtime.max_memory_bytes,
        ..RuntimeSettings::default()
    };
    let executor = crate::dev::local_executor(&settings, &environments).await;
    let capabilities = executor.capabilities();
    for note in &capabilities.notes {
        terminal::note(note);
    }
    if let Some(missing) = capabilities.missing {
        bail!("code is not run here: {missing}");
    }
    let packages = Packages::new(environments, rules, roots, terminal::note);
    let installed = unless_stopped(async { Ok(packages.ensure(&skill).await) }).await?;
    if installed.is_err() {
        bail!(
            "skill {}: the packages that it declares are not installed, so it is not run",
            skill.id.name
        );
    }
    terminal::note("running");
    let result = executor.execute(request, stop_on_signal()).await?;
    if args.output == Output::Text {
        print_outputs(&result);
    }
    let saved = save(&args.files_dir, &result).await;
    match args.output {
        Output::Text => print_text(&result, &saved),
        Output::Json => print_json(&result, &saved),
    }
    Ok(exit_code(result.exit, &saved))
}

/// A skill, and what the runtime beside it sets for its runs.
struct Found {
    skill: Arc<Skill>,
    rules: Rules,
    config: Vec<SkillConfig>,
    runtime: RuntimeSettings,
}

/// Why no skill of a path can be run.
fn nothing_to_run(named: Option<&str>, others: &[SkillSource]) -> String {
    match named {
        Some(named) if !others.is_empty() => format!("there is no skill {named}; found: {}", choices(others)),
        _ => "no skill found; name a folder with a SKILL.md or a manifest file".to_owned(),
    }
}

/// Skills by whether `--skill` chooses them.
pub(super) struct Choice {
    pub(super) chosen: Vec<SkillSource>,
    pub(super) others: Vec<SkillSource>,
}

/// What `--skill` with this word chooses: by the words of other arguments, and where none is meant so, by bare names.
pub(super) fn choose(sources: Vec<SkillSource>, word: &str) -> Choice {
    let is_meant = sources.iter().any(|source| source.id.is_meant_by(word));
    let (chosen, others) = sources.into_iter().partition(|source| {
        if is_meant {
            source.id.is_meant_by(word)
        } else {
            source.id.name == word
        }
    });
    Choice { chosen, others }
}

/// The words that choose between skills.
fn choices(sources: &[SkillSource]) -> String {
    let words: Vec<String> = sources.iter().map(|source| source.id.word()).collect();
    words.join(", ")
}

/// What to do where a path has several skills of which one is meant.
pub(super) fn choose_one(sources: &[SkillSource]) -> String {
    let words: BTreeSet<String> = sources.iter().map(|source| source.id.word()).collect();
    if words.len() == sources.len() {
        return format!("several skills; choose one with --skill: {}", choices(sources));
    }
    let origins: Vec<&str> = sources.iter().map(|source| source.origin.as_str()).collect();
    format!("several skills; name the path of one: {}", origins.join(", "))
}

async fn find_skill(args: &RunArgs) -> anyhow::Result<Found> {
    let found = find_sources(vec![args.path.clone()], discover).await?;
    let rules = package_rules(&found.runtimes)?;
    let config = config_values(&found.runtimes);
    let runtime = runtime_settings(&found.runtimes);
    for report in found.over_ceiling() {
        terminal::note(&report.to_string());
    }
    let Choice { mut chosen, others } = match &args.skill {
        Some(word) => choose(found.skills, word),
        None => Choice {
            chosen: found.skills,
            others: Vec::new(),
        },
    };
    let source = match chosen.len() {
        0 => bail!(
            "{}: {}",
            args.path.display(),
            nothing_to_run(args.skill.as_deref(), &others)
        ),
        1 => chosen.remove(0),
        _ => bail!("{}: {}", args.path.display(), choose_one(&chosen)),
    };
    if source.suspend {
        let name = &source.id.name;
        terminal::note(&format!(
            "skill {name}: spec.suspend is true, so nothing serves it; it is run here"
        ));
    }
    let loaded = source.load(Profile::Load);
    for problem in &loaded.problems {
        terminal::note(&problem.to_string());
    }
    let skill = loaded
        .skill
        .with_context(|| format!("{}: the skill has errors", args.path.display()))?;
    Ok(Found {
        skill: Arc::new(skill),
        rules,
        config,
        runtime,
    })
}
