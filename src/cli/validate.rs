//! `knack skill validate`: the same judgement as everywhere, for files.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use knack_gateway::catalog::{ReportLevel, SkillSource, SourceReport};
use knack_packages::given::{applied, broken};
use knack_packages::programs::{missing, named};
use knack_packages::{Finding, Source, declare};
use knack_skill::catalog::Clash;
use knack_skill::config::{SkillConfig, entries_for, plain_secrets};
use knack_skill::model::Skill;
use knack_skill::problem::{Problem, Profile};
use serde_json::{Value, json};

use super::{Output, programs, terminal};
use crate::counted::counted;
use crate::dev::{DiscoveredSources, Search, config_values, discover, package_rules, place_of_first, repeated};

/// Arguments of `knack skill validate`.
#[derive(Debug, Args)]
pub struct ValidateArgs {
    /// Skill folders, manifest files, archives, or folders that hold skills or manifests
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Check all requirements of the dialect's specification, not only those for serving the skill
    #[arg(long)]
    strict: bool,
    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// Checks every skill found. Exit code 1 if any has an error.
pub async fn validate(args: ValidateArgs) -> anyhow::Result<ExitCode> {
    let paths = args.paths.clone();
    let mut found = tokio::task::spawn_blocking(move || discover(&Search::of(paths))).await?;
    if found.skills.is_empty() && found.reports.is_empty() && found.runtimes.is_empty() {
        let (paths, cure) = (list(&args.paths), "name a folder with a SKILL.md or a manifest file");
        if args.output == Output::Text {
            bail!("no skill found in {paths}; {cure}");
        }
        found
            .reports
            .push(SourceReport::error(paths, format!("no skill found; {cure}")));
    }
    let again = repeated(&found.skills, |skill| &skill.id);
    let (again, named_again): (Vec<usize>, Vec<SourceReport>) = again
        .into_iter()
        .filter_map(|(index, first)| {
            let skill = found.skills.get(index)?;
            let text = format!(
                "skill {} is already defined in {}; rename one",
                skill.id,
                place_of_first(first, skill)
            );
            Some((index, SourceReport::error(skill.origin.clone(), text)))
        })
        .unzip();
    found.reports.extend(named_again);
    let over: Vec<SourceReport> = found.over_ceiling().chain(broken_rules(&found)).collect();
    found.reports.extend(over);
    let profile = if args.strict { Profile::Strict } else { Profile::Load };
    let config = config_values(&found.runtimes);
    let judge = |source| judge(source, profile, &config);
    let mut judged: Vec<SkillReport> = found.skills.iter().map(judge).collect();
    let failed = judged.iter().filter(|skill| !skill.valid).count() + found.errors().count();
    // Their errors are among the reports.
    for index in again {
        if let Some(skill) = judged.get_mut(index) {
            skill.valid = false;
        }
    }
    match args.output {
        Output::Text => print_text(&found, &judged, failed),
        Output::Json => print_json(&found, &judged, failed),
    }
    Ok(if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Warnings about packages that the runtime beside a skill does not allow, or an error about rules that cannot be read.
fn broken_rules(found: &DiscoveredSources) -> Vec<SourceReport> {
    let rules = match package_rules(&found.runtimes) {
        Ok(rules) => rules,
        Err(error) => {
            let text = error.to_string();
            let (origin, text) = text.split_once(": ").unwrap_or(("SkillRuntime", &text));
            return vec![SourceReport::error(origin, text)];
        }
    };
    let broken = found.skills.iter().filter_map(|source| {
        let declared = declare(&source.files, source.overrides.packages.as_ref());
        let declared = applied(&rules, declared);
        // Where versions depend on the Python of the sandbox, the sandbox decides.
        let broken = broken(&rules, &declared, None)?;
        let text = format!("skill {}: {broken}", source.id.name);
        Some(SourceReport::warning(source.origin.clone(), text))
    });
    broken.collect()
}

struct SkillReport {
    name: String,
    origin: String,
    valid: bool,
    problems: Vec<Problem>,
    packages: Vec<Finding>,
    /// Problems with the configuration that a runtime beside it gives.
    config: Vec<String>,
    source: Source,
    summary: Option<Value>,
}

fn judge(source: &SkillSource, profile: Profile, config: &[SkillConfig]) -> SkillReport {
    let loaded = source.load(profile);
    let declared = declare(&source.files, source.overrides.packages.as_ref());
    let mut packages = knack_packages::findings(&source.files, source.overrides.packages.as_ref(), &declared);
    packages.extend(missing(&named(&source.files), &programs::state));
    let summary = loaded.skill.as_ref().map(|skill| {
        json!({
            "title": skill.title, "description": skill.description, "version": skill.version, "dialect": format!("{:?}", skill.dialect),
            "activation": format!("{:?}", skill.activation), "files": skill.files.len(), "digest": skill.digest,
            "tools": skill.tools.iter().map(|tool| &tool.name).collect::<Vec<_>>(), "inputs": skill.inputs.iter().map(|input| &input.name).collect::<Vec<_>>(),
            "packages": {
                "source": declared.shown_source(), "names": declared.names(),
                "node": Some(declared.node_names()).filter(|names| !names.is_empty()),
            },
            "tokens": {"listing": (skill.id.name.len() + skill.description.len()).div_ceil(4), "body": skill.body.len().div_ceil(4)},
        })
    });
    let config = loaded
        .skill
        .as_ref()
        .and_then(|skill| secret_in_plain_text(skill, config));
    SkillReport {
        config: config.into_iter().collect(),
        name: source.id.to_string(),
        origin: source.origin.clone(),
        valid: loaded.skill.is_some()
            && !loaded.problems.iter().any(Problem::is_error)
            && !packages.iter().any(Finding::is_error),
        problems: loaded.problems,
        packages,
        source: declared.source,
        summary,
    }
}

/// A warning about values of the configuration that everybody reads who may read the runtime.
fn secret_in_plain_text(skill: &Skill, config: &[SkillConfig]) -> Option<String> {
    let entries = entries_for(config, &skill.id);
    let tools = skill
        .tools
        .iter()
        .map(|tool| (tool.name.as_str(), tool.config.as_slice()));
    let names: Vec<String> = plain_secrets(&tools, &entries).into_iter().map(str::to_owned).collect();
    let skill = skill.id.clone();
    (!names.is_empty()).then(|| Clash::ConfigPlain { skill, names }.to_string())
}

fn print_text(found: &DiscoveredSources, judged: &[SkillReport], failed: usize) {
    for report in &found.reports {
        terminal::line(&report.to_string());
    }
    for skill in judged {
        terminal::line(&format!(
            "{} {} ({})",
            if skill.valid { "ok  " } else { "FAIL" },
            skill.name,
            skill.origin
        ));
        for problem in &skill.problems {
            terminal::line(&format!("     {problem}"));
        }
        for finding in &skill.packages {
            terminal::line(&format!("     {finding}"));
        }
        for warning in &skill.config {
            terminal::line(&format!("     warning: {warning}"));
        }
        if skill.source == Source::Inferred {
            terminal::line(&format!("     packages: {}", skill.source.shown()));
        }
    }
    let runtimes = match found.runtimes.len() {
        0 => String::new(),
        count => format!(", {}", counted(count, "SkillRuntime")),
    };
    terminal::line(&format!(
        "{}{runtimes}, {failed} with errors",
        counted(judged.len(), "skill")
    ));
}

fn print_json(found: &DiscoveredSources, judged: &[SkillReport], failed: usize) {
    let report = |report: &SourceReport| json!({"level": if report.level == ReportLevel::Error { "error" } else { "warning" }, "origin": report.origin, "message": report.text});
    let skills: Vec<Value> = judged
        .iter()
        .map(|skill| {
            json!({
                "skill": skill.name, "origin": skill.origin, "valid": skill.valid, "summary": skill.summary,
                "problems": skill.problems.iter().map(problem).chain(skill.packages.iter().map(finding)).chain(skill.config.iter().map(|text| config(text))).collect::<Vec<_>>(),
            })
        })
        .collect();
    let document =
        json!({"skills": skills, "reports": found.reports.iter().map(report).collect::<Vec<_>>(), "failed": failed});
    terminal::line(&format!("{document:#}"));
}

fn problem(problem: &Problem) -> Value {
    json!({
        "severity": if problem.is_error() { "error" } else { "warning" }, "kind": problem.kind.as_str(), "file": problem.file, "line": problem.line,
        "field": problem.field, "message": problem.message, "help": problem.help,
    })
}

fn finding(finding: &Finding) -> Value {
    json!({
        "severity": if finding.is_error() { "error" } else { "warning" }, "kind": finding.kind.as_str(), "file": finding.file,
        "line": (finding.line > 0).then_some(finding.line), "field": "", "message": finding.text, "help": finding.help,
    })
}

fn config(warning: &str) -> Value {
    json!({
        "severity": "warning", "kind": "config-plain", "file": "", "line": null, "field": "spec.skillSelector.skills[].config",
        "message": warning, "help": "",
    })
}

fn list(paths: &[PathBuf]) -> String {
    paths
        .iter()
        .map(|path| path.display().to_string())
        .collect::<Vec<_>>()
        .join(", ")
}
