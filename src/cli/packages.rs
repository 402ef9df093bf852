//! `knack skill packages` and `knack packages prune`: environments on this machine, for people.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use knack_execution::interpreter::CodeUser;
use knack_gateway::catalog::SkillSource;
use knack_packages::given::applied;
use knack_packages::rules::read_day;
use knack_packages::{Declaration, Rules, State, declare};
use knack_trust::CaArgs;
use serde_json::{Value, json};

use super::explicit_flags::ExplicitFlags;
use super::find_sources::find_sources;
use super::stop::unless_stopped;
use super::{Output, terminal};
use crate::counted::counted;
use crate::dev::{discover, package_rules};
use crate::packages::{BuildError, BuildLimits, Builder, BuiltEnvironment, Store, default_store, open_builder};

/// Arguments of `knack skill packages`.
#[derive(Debug, Args)]
pub struct PackagesArgs {
    #[command(flatten)]
    typed: ExplicitFlags,
    /// Skill folders, manifest files, or folders that hold either
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Build the missing environments
    #[arg(long)]
    build: bool,
    /// Choose versions that no lock fixes among the files that the index got by the end of this day in UTC (2026-07-01), instead of
    /// the SkillRuntime's day
    #[arg(long, value_name = "DATE", value_parser = read_day)]
    exclude_newer: Option<String>,
    #[command(flatten)]
    ca: CaArgs,
    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// Arguments of `knack packages prune`.
#[derive(Debug, Args)]
pub struct PruneArgs {
    /// Remove environments that were not used for this many days; 0 removes all that no running knack uses
    #[arg(long, value_name = "DAYS", default_value_t = 30)]
    unused_for: u64,
}

/// One skill with its packages.
struct ListedPackages {
    skill: String,
    declared: Declaration,
    state: State,
    error: Option<BuildError>,
    built: Option<BuiltEnvironment>,
}

/// Shows every skill that is found. Exit code 1 if one of them declares what cannot be had, or a path cannot be read.
pub async fn packages(args: PackagesArgs) -> anyhow::Result<ExitCode> {
    if !args.build {
        args.typed.refuse(
            &["--ca-file", "--ca-pem"],
            "has an effect only with --build: no index is contacted without it",
        )?;
    }
    let found = find_sources(args.paths.clone(), discover).await?;
    if found.skills.is_empty() {
        bail!("no skill found; name a folder with a SKILL.md or a manifest file");
    }
    let mut rules = package_rules(&found.runtimes)?;
    if let Some(day) = &args.exclude_newer {
        rules = rules.excluding_newer(Some(day)).map_err(anyhow::Error::msg)?;
    }
    let roots = args.ca.roots()?;
    let listing = async {
        let builder = open_builder(BuildLimits::default(), rules.clone(), &roots).await;
        // A person asks for it, and names the skills.
        let builder = if args.build {
            builder.map(Builder::choosing_node)
        } else {
            builder
        };
        let mut all = Vec::new();
        for source in &found.skills {
            all.push(list_packages(source, &rules, &builder, args.build).await);
        }
        Ok(all)
    };
    let all = unless_stopped(listing).await?;
    match args.output {
        Output::Text => all.iter().for_each(print_text),
        Output::Json => {
            let skills: Vec<Value> = all.iter().map(to_json).collect();
            terminal::line(&format!("{:#}", json!({"skills": skills})));
        }
    }
    let failed = all.iter().any(|shown| shown.error.is_some()) || found.errors().next().is_some();
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

async fn list_packages(
    source: &SkillSource,
    rules: &Rules,
    builder: &Result<Builder, BuildError>,
    build: bool,
) -> ListedPackages {
    let declared = applied(rules, declare(&source.files, source.overrides.packages.as_ref()));
    let skill = source.id.name.clone();
    let outcome = match builder {
        _ if !declared.wants_environment() && !declared.is_refused() => Ok((State::NotDeclared, None)),
        Err(error) => Err(error.clone()),
        Ok(builder) if build => {
            let name = skill.clone();
            let print = move |line: &str| terminal::note(&format!("packages of {name}: {line}"));
            builder
                .environment(&declared, &print)
                .await
                .map(|built| (State::Ready, Some(built)))
        }
        Ok(builder) => builder.present(&declared).await.map(|built| match built {
            Some(built) => (State::Ready, Some(built)),
            None => (State::Resolving, None),
        }),
    };
    let (state, error, built) = match outcome {
        Ok((state, built)) => (state, None, built),
        Err(error) => (error.state, Some(error), None),
    };
    ListedPackages {
        skill,
        declared,
        state,
        error,
        built,
    }
}

fn print_text(shown: &ListedPackages) {
    let state = match shown.state {
        State::Resolving => "not built yet; knack dev and knack skill run build it, or --build".to_owned(),
        state => state.to_string(),
    };
    terminal::line(&format!("{}: {state} ({})", shown.skill, shown.declared.shown_source()));
    if let Some(error) = &shown.error {
        terminal::line(&format!("     {}", error.text));
    }
    for finding in shown.declared.findings.iter().filter(|finding| !finding.is_error()) {
        terminal::line(&format!("     {finding}"));
    }
    if let Some(built) = &shown.built {
        let about = &built.about;
        for (name, version) in about.packages.iter().chain(&about.node) {
            terminal::line(&format!("     {name} {version}"));
        }
        terminal::line(&format!(
            "     {} MB in {} files, Python {}, {}",
            about.bytes / 1_000_000,
            about.files,
            about.python,
            built.environment.root.display()
        ));
    } else {
        for requirement in &shown.declared.python {
            terminal::line(&format!("     {requirement}"));
        }
        for name in shown.declared.node_names() {
            terminal::line(&format!("     {name}"));
        }
    }
}

fn to_json(shown: &ListedPackages) -> Value {
    let about = shown.built.as_ref().map(|built| &built.about);
    json!({
        "skill": shown.skill, "state": if shown.state == State::Resolving { "NotBuilt" } else { shown.state.as_str() },
        "source": shown.declared.shown_source(), "reason": shown.error.as_ref().map(|error| &error.text),
        "requirements": shown.declared.python.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "node": Some(shown.declared.node_names()).filter(|names| !names.is_empty()),
        "findings": shown.declared.findings.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "environment": about,
    })
}

/// Removes unused environments. Those that a running knack uses stay.
pub async fn prune(args: PruneArgs) -> anyhow::Result<ExitCode> {
    let root = default_store()?;
    if !root.exists() {
        terminal::line("no environments");
        return Ok(ExitCode::SUCCESS);
    }
    // Removing gives no other user access.
    let store = Store::open(&root, CodeUser::SameUser)?;
    let unused = Duration::from_secs(args.unused_for.saturating_mul(24 * 60 * 60));
    let pruned = tokio::task::spawn_blocking(move || store.prune(unused)).await??;
    for one in &pruned {
        match one.freed {
            Some(bytes) => terminal::line(&format!("{}: removed, {} MB", one.key, bytes / 1_000_000)),
            None => terminal::line(&format!("{}: kept, a running knack uses it", one.key)),
        }
    }
    let removed = pruned.iter().filter(|one| one.freed.is_some()).count();
    terminal::line(&format!("{} removed", counted(removed, "environment")));
    Ok(ExitCode::SUCCESS)
}
