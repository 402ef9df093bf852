//! `knack skill diff`: what differs for a model between two versions of a skill.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;
use knack_gateway::catalog::SkillSource;
use knack_registry::{Difference, ModelView};
use knack_skill::problem::Profile;
use knack_trust::{CaArgs, Roots};

use super::find_sources::find_sources;
use super::import_url;
use super::run::{choose, choose_one};
use super::terminal;
use crate::dev::discover_all;

/// The exit code of an error with `--exit-code`, as of `diff`.
const NOT_COMPARED: u8 = 2;

/// Arguments of `knack skill diff`.
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// The old version: folder, manifest file, archive or http(s) address, as for `knack skill import`
    before: String,
    /// The new version
    after: String,
    /// Name of the skill, or namespace/name, if one of them holds several
    #[arg(long, value_name = "NAME")]
    skill: Option<String>,
    /// Exit with 1 if anything differs, and with 2 if the versions cannot be compared
    #[arg(long)]
    exit_code: bool,
    #[command(flatten)]
    ca: CaArgs,
}

/// Prints the texts that a model gets as a unified diff, the files that differ, and the tokens of both.
pub async fn diff(args: DiffArgs) -> anyhow::Result<ExitCode> {
    let compared = compare(&args).await;
    if !args.exit_code {
        return compared.map(|_| ExitCode::SUCCESS);
    }
    Ok(match compared {
        Ok(differs) => ExitCode::from(u8::from(differs)),
        Err(error) => {
            terminal::error(&format!("{error:#}"));
            ExitCode::from(NOT_COMPARED)
        }
    })
}

/// Prints what differs. Returns whether anything does.
async fn compare(args: &DiffArgs) -> anyhow::Result<bool> {
    let roots = args.ca.roots()?;
    let before = read(&args.before, args.skill.as_ref(), &roots).await?;
    let after = read(&args.after, args.skill.as_ref(), &roots).await?;
    let text = Difference::between(&before, &after).to_string();
    terminal::raw(text.as_bytes());
    Ok(!text.is_empty())
}

/// The one skill of a path or an address.
async fn read(shown: &str, wanted: Option<&String>, roots: &Roots) -> anyhow::Result<ModelView> {
    let mut skills = match import_url::address(shown) {
        Some(url) => {
            // An index has no namespaces.
            let name = wanted.map(|word| word.rsplit('/').next().unwrap_or(word).to_owned());
            let found = import_url::fetch(&url?, name.as_slice(), None, roots).await?;
            found.into_iter().map(|found| found.skill).collect()
        }
        None => on_disk(shown, roots).await?,
    };
    // The one skill of a side is meant whatever its namespace is.
    if let Some(word) = wanted.filter(|_| skills.len() > 1) {
        skills = choose(skills, word).chosen;
    }
    match &skills[..] {
        [skill] => seen(skill).with_context(|| shown.to_owned()),
        [] => {
            bail!("{shown}: no skill found; name a folder with a SKILL.md, a manifest file, an archive or an address")
        }
        several => bail!("{shown}: {}", choose_one(several)),
    }
}

/// The skills of a path; archives that its manifests name are fetched.
async fn on_disk(shown: &str, roots: &Roots) -> anyhow::Result<Vec<SkillSource>> {
    let found = find_sources(vec![PathBuf::from(shown)], discover_all).await?;
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

/// What a model gets of a skill.
pub(super) fn seen(source: &SkillSource) -> anyhow::Result<ModelView> {
    let judged = source.load(Profile::Load);
    let Some(skill) = judged.skill else {
        let problems: Vec<String> = judged.problems.iter().map(ToString::to_string).collect();
        bail!("it would not be served: {}", problems.join("; "));
    };
    Ok(ModelView::of(skill)?)
}
