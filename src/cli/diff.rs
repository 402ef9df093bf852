//! `knack skill diff`: what differs for a model between two versions of a skill.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use clap::Args;
use knack_gateway::catalog::SkillSource;
use knack_skill::autoscore::AutoContext;
use knack_skill::call::{LoadRecord, reload};
use knack_skill::catalog::{Catalog, CatalogSettings, ModelCode, Node};
use knack_skill::model::{ActivationMode, Skill};
use knack_skill::plan::{Plan, PlanRequest, RunCode, ToolChoice, plan};
use knack_skill::problem::Profile;
use knack_skill::risk::Risk;
use knack_skill::texts::tokens;
use knack_trust::{CaArgs, Roots};
use knack_vocabulary::defaults;
use similar::TextDiff;

use super::discovered::discovered;
use super::import_url;
use super::terminal;
use crate::dev::discover_all;
use crate::sources::Files;

/// Arguments of `knack skill diff`.
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// The old version: folder, manifest file, archive or http(s) address, as for `knack skill import`
    before: String,
    /// The new version
    after: String,
    /// Which skill, where one of them holds several
    #[arg(long, value_name = "NAME")]
    skill: Option<String>,
    /// Exit with 1 if anything differs
    #[arg(long)]
    exit_code: bool,
    #[command(flatten)]
    ca: CaArgs,
}

/// Prints the texts that a model gets as a unified diff, the files that differ, and the tokens of both.
pub async fn diff(args: DiffArgs) -> anyhow::Result<ExitCode> {
    let roots = args.ca.roots()?;
    let before = read(&args.before, args.skill.as_ref(), &roots).await?;
    let after = read(&args.after, args.skill.as_ref(), &roots).await?;
    let text = compare(&before, &after);
    terminal::raw(text.as_bytes());
    Ok(if args.exit_code && !text.is_empty() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// The one skill of a path or an address.
async fn read(shown: &str, wanted: Option<&String>, roots: &Roots) -> anyhow::Result<Version> {
    let mut skills = match import_url::address(shown) {
        Some(url) => {
            let found = import_url::fetch(&url?, wanted.map_or(&[], std::slice::from_ref), None, roots).await?;
            found.into_iter().map(|found| found.skill).collect()
        }
        None => on_disk(shown, roots).await?,
    };
    skills.retain(|skill| wanted.is_none_or(|name| skill.id.name == *name));
    match &skills[..] {
        [skill] => Version::of(skill).with_context(|| shown.to_owned()),
        [] => {
            bail!("{shown}: no skill found; name a folder with a SKILL.md, a manifest file, an archive or an address")
        }
        several => bail!("{shown}: {} skills; name one of them by --skill", several.len()),
    }
}

/// The skills of a path; archives that its manifests name are fetched.
async fn on_disk(shown: &str, roots: &Roots) -> anyhow::Result<Vec<SkillSource>> {
    let found = discovered(vec![PathBuf::from(shown)], discover_all).await?;
    let mut skills = found.skills;
    for (origin, manifest, archive) in found.archived {
        skills.push(
            import_url::pinned(&origin, &manifest, &archive, roots)
                .await
                .context(origin)?,
        );
    }
    Ok(skills)
}

/// A version of a skill, as it reaches a model.
struct Version {
    files: Files,
    /// When it reaches the model.
    activation: ActivationMode,
    /// The system text that every request carries for it: a line of the listing, or its whole text.
    system: String,
    /// The tools that every request carries for it.
    tools: String,
    /// Tokens that requests spend on them, which is less than for the text above: they go out without blanks.
    tool_tokens: usize,
    /// The answer of `load_skill`; empty if it never reaches a model.
    loaded: String,
}

impl Version {
    fn of(source: &SkillSource) -> anyhow::Result<Self> {
        let judged = source.load(Profile::Load);
        let Some(skill) = judged.skill else {
            let problems: Vec<String> = judged.problems.iter().map(ToString::to_string).collect();
            bail!("it would not be served: {}", problems.join("; "));
        };
        let skill = Arc::new(skill);
        let catalog = Catalog::compile(vec![Arc::clone(&skill)], settings());
        let plan = plan(&request(), &catalog)?;
        Ok(Self {
            files: source.files.clone(),
            activation: skill.activation,
            system: plan.system.to_string(),
            tools: tools(&plan),
            tool_tokens: plan.added_tokens.saturating_sub(tokens(plan.system.len())),
            loaded: catalog
                .get(&skill.id)
                .map(|_| reload(&record(&skill), &plan, &catalog))
                .unwrap_or_default(),
        })
    }
}

/// A runtime that says nothing of its own.
fn settings() -> CatalogSettings {
    CatalogSettings {
        revision: String::new(),
        max_activation: ActivationMode::Always,
        model_code: ModelCode::Allow,
        max_risk: Risk::Critical,
        node: Node::Absent,
        max_listing_tokens: defaults::MAX_LISTING_TOKENS,
        models: Vec::new(),
        min_max_tokens: defaults::MIN_MAX_TOKENS,
        pins: Vec::new(),
        config: knack_skill::catalog::ConfigValues::Here(Vec::new()),
    }
}

/// A request that names no skill.
fn request() -> PlanRequest<'static> {
    PlanRequest {
        provider: "openai",
        model: "",
        user_texts: &[],
        auto: &AutoContext::default,
        client_tools: &[],
        tool_choice: ToolChoice::Free,
        container: &[],
        run_code: RunCode::WithFiles,
        header: None,
        max_tokens: None,
    }
}

fn record(skill: &Skill) -> LoadRecord {
    LoadRecord {
        skill: format!("{}/{}", skill.id.namespace, skill.id.name),
        digest: skill.digest.clone(),
        path: None,
        inputs: BTreeMap::new(),
    }
}

fn tools(plan: &Plan) -> String {
    let text =
        |tool: &knack_skill::plan::PlannedTool| format!("{}\n{}\n{:#}\n", tool.name, tool.description, tool.schema);
    plan.tools.iter().map(|tool| text(tool)).collect()
}

/// The differences; empty: none.
fn compare(before: &Version, after: &Version) -> String {
    let mut out = String::new();
    if before.activation != after.activation {
        out.push_str(&format!(
            "activation: {:?} -> {:?}\n",
            before.activation, after.activation
        ));
    }
    let of = |text: &str| tokens(text.len());
    for (what, old, new, spent) in [
        (
            "in every request",
            &before.system,
            &after.system,
            [of(&before.system), of(&after.system)],
        ),
        (
            "tools in every request",
            &before.tools,
            &after.tools,
            [before.tool_tokens, after.tool_tokens],
        ),
        (
            "when it is loaded",
            &before.loaded,
            &after.loaded,
            [of(&before.loaded), of(&after.loaded)],
        ),
    ] {
        if old != new {
            out.push_str(&section(what, old, new, spent));
        }
    }
    for (path, change) in changed(&before.files, &after.files) {
        out.push_str(&format!("file {path}: {change}\n"));
    }
    out
}

fn section(what: &str, old: &str, new: &str, [before, after]: [usize; 2]) -> String {
    let heading = format!("{what}: {before} -> {after} tokens\n");
    let diff = TextDiff::from_lines(old, new);
    let shown = diff
        .unified_diff()
        .context_radius(3)
        .missing_newline_hint(false)
        .to_string();
    format!("{heading}{}\n", shown.trim_end_matches('\n'))
}

fn changed<'f>(before: &'f Files, after: &'f Files) -> BTreeMap<&'f str, String> {
    let mut changes = BTreeMap::new();
    for path in before.keys().chain(after.keys()) {
        let change = match (before.get(path), after.get(path)) {
            (Some(old), Some(new)) if old == new => continue,
            (Some(old), Some(new)) if old.bytes == new.bytes => {
                let mode = if new.executable { "executable" } else { "not executable" };
                format!("now {mode}")
            }
            (Some(old), Some(new)) => format!("{} -> {} bytes", old.bytes.len(), new.bytes.len()),
            (None, Some(new)) => format!("added, {} bytes", new.bytes.len()),
            (Some(_), None) => "removed".to_owned(),
            (None, None) => continue,
        };
        changes.insert(path.as_str(), change);
    }
    changes
}
