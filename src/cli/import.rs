//! `knack skill import`: a skill folder, an archive or what is behind an address as manifests for a cluster.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;
use knack_api::skill::ArchiveSource;
use knack_gateway::catalog::SkillSource;
use knack_skill::problem::{Problem, Profile};
use knack_trust::CaArgs;

use super::explicit_flags::ExplicitFlags;
use super::find_sources::find_sources;
use super::import_url::{self, FetchedSkill};
use super::skill_manifest::{archived, objects, yaml};
use super::skills_api::bearer;
use super::{terminal, whole_file};
use crate::counted::counted;
use crate::dev::{discover, discover_text, repeated_name};

/// Arguments of `knack skill import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    #[command(flatten)]
    typed: ExplicitFlags,
    /// Skill folder, folder with several, archive (.zip, .tar.gz, .tgz, .tar), or http(s) address: of an archive, of a
    /// SKILL.md, of an index of skills, or, ending with `/`, of a site that has /.well-known/agent-skills/index.json
    source: String,
    /// Import only these skills from the index of a site
    #[arg(long, value_name = "NAME")]
    skill: Vec<String>,
    /// Environment variable that holds a key; it is sent to the host of the address only, for skills that belong to it
    #[arg(long, value_name = "NAME")]
    key_env: Option<String>,
    #[command(flatten)]
    ca: CaArgs,
    /// Write the address and digest of an archive instead of its files; the cluster fetches it
    #[arg(long)]
    pin: bool,
    /// Namespace of the objects; without it, kubectl chooses the namespace
    #[arg(short, long)]
    namespace: Option<String>,
    /// File to write; standard output when absent
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Prints a Skill for each skill found, with its files inside or in a ConfigMap beside it, or with the address of its
/// archive. Nothing is written if one of them is invalid or does not fit.
pub async fn import(args: ImportArgs) -> anyhow::Result<ExitCode> {
    let found = if let Some(url) = import_url::address(&args.source) {
        let url = url?;
        let variable = args.key_env.as_ref();
        let key = variable.map(|variable| bearer(variable, &url)).transpose()?;
        Some(import_url::fetch(&url, &args.skill, key, &args.ca.roots()?).await?)
    } else {
        args.typed.refuse(
            &["--pin", "--skill", "--key-env", "--ca-file", "--ca-pem"],
            &format!("has an effect only with an http(s) URL, not with {}", args.source),
        )?;
        on_disk(&args.source).await?
    };
    let Some(found) = found else {
        return Ok(ExitCode::FAILURE);
    };
    if let Some(text) = repeated_name(found.iter().map(|found| &found.skill)) {
        bail!("{text}");
    }
    let mut documents = Vec::new();
    for FetchedSkill { skill, archive } in &found {
        if !is_valid(skill, Profile::Load) {
            return Ok(ExitCode::FAILURE);
        }
        if args.pin && archive.is_none() {
            bail!(
                "{}: --pin: this is a SKILL.md and no archive, and a manifest can name archives alone; leave --pin out",
                skill.origin
            );
        }
        let archive = archive.as_ref().filter(|_| args.pin);
        if archive.is_some_and(|archive| archive.url.contains('?')) {
            terminal::note(&format!(
                "{}: the address has a query, which is written into the manifest",
                skill.origin
            ));
        }
        documents.push(manifest(skill, args.namespace.as_deref(), archive).with_context(|| skill.origin.clone())?);
    }
    let text = documents.join("---\n");
    match &args.output {
        None => terminal::raw(text.as_bytes()),
        Some(path) => {
            whole_file::write(path, text.as_bytes())
                .await
                .with_context(|| format!("--output {}", path.display()))?;
            terminal::note(&format!("{}: {}", path.display(), counted(found.len(), "skill")));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The skills of a folder or an archive; `None`: the problem was printed.
async fn on_disk(source: &str) -> anyhow::Result<Option<Vec<FetchedSkill>>> {
    let found = find_sources(vec![PathBuf::from(source)], discover).await?;
    if found.errors().next().is_some() {
        return Ok(None);
    }
    if found.skills.is_empty() {
        bail!("no skill found in {source}; name a folder or an archive with a SKILL.md");
    }
    if let Some(skill) = found.skills.iter().find(|skill| skill.labels.is_some()) {
        bail!(
            "{}: this is a manifest already; knack skill export writes its files as a folder",
            skill.origin
        );
    }
    let found = found
        .skills
        .into_iter()
        .map(|skill| FetchedSkill { skill, archive: None });
    Ok(Some(found.collect()))
}

/// Whether a skill is valid under a profile on its target, where Python is not read. Prints its problems.
pub(super) fn is_valid(source: &SkillSource, profile: Profile) -> bool {
    let there = SkillSource {
        functions: None,
        ..source.clone()
    };
    let loaded = there.load(profile);
    for problem in &loaded.problems {
        let level = if problem.is_error() { "error" } else { "warning" };
        terminal::note(&format!("{level}: {}: {problem}", source.origin));
    }
    loaded.skill.is_some() && !loaded.problems.iter().any(Problem::is_error)
}

/// The manifests of a skill. Those that hold its files were read back, and gave them again.
fn manifest(source: &SkillSource, namespace: Option<&str>, archive: Option<&ArchiveSource>) -> anyhow::Result<String> {
    if let Some(archive) = archive {
        let object = archived(&source.id.name, namespace, archive);
        return yaml(&source.origin, &[object]).map_err(anyhow::Error::msg);
    }
    let objects = objects(&source.id.name, namespace, &source.files).map_err(anyhow::Error::msg)?;
    let text = yaml(&source.origin, &objects).map_err(anyhow::Error::msg)?;
    let again = discover_text(&source.origin, &text);
    if let Some(report) = again.reports.first() {
        bail!("{}", report.text);
    }
    if again.skills.first().map(|skill| &skill.files) != Some(&source.files) {
        bail!("a manifest cannot hold its files unchanged; publish it as an archive (spec.source.archive)");
    }
    Ok(text)
}
