//! `knack skill export`: the files of skills in manifests or archives as folders.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;
use knack_gateway::catalog::SkillSource;
use knack_skill::SpecOverrides;
use knack_skill::tree::check_path;

use super::terminal;
use crate::dev::{Search, discover};

/// Arguments of `knack skill export`.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// Manifest file, archive or folder with skills
    source: PathBuf,
    /// Folder in which a folder is created for each skill
    #[arg(default_value = ".")]
    directory: PathBuf,
}

/// Writes a folder for each skill found. A folder that exists is never written into.
pub async fn export(args: ExportArgs) -> anyhow::Result<ExitCode> {
    tokio::task::spawn_blocking(move || write_all(&args)).await?
}

fn write_all(args: &ExportArgs) -> anyhow::Result<ExitCode> {
    let found = discover(&Search::of(vec![args.source.clone()]));
    for report in &found.reports {
        terminal::note(&report.to_string());
    }
    if found.skills.is_empty() && found.errors().next().is_none() {
        bail!("no skill found in {}", args.source.display());
    }
    for skill in &found.skills {
        let folder = args.directory.join(&skill.id.name);
        write(&folder, skill).with_context(|| format!("{}: {}", skill.origin, skill.id.name))?;
        terminal::line(&folder.display().to_string());
        if skill.overrides != SpecOverrides::default() {
            terminal::note(&format!(
                "{}: {}: the fields of its spec other than source stay in the manifest; a folder cannot hold them",
                skill.origin, skill.id.name
            ));
        }
    }
    let failed = found.errors().next().is_some();
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn write(folder: &Path, skill: &SkillSource) -> anyhow::Result<()> {
    // Before anything is written: a path may come from an untrusted manifest.
    for path in skill.files.keys() {
        check_path(path).map_err(|why| anyhow::anyhow!("file {path:?}: {why}"))?;
    }
    if folder.exists() {
        bail!("{} exists; nothing was written, name another folder", folder.display());
    }
    for (path, file) in &skill.files {
        let path = folder.join(path);
        let parent = path.parent().unwrap_or(folder);
        std::fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
        std::fs::write(&path, &*file.bytes).with_context(|| path.display().to_string())?;
        if file.executable {
            make_executable(&path).with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}

#[cfg(unix)]
fn make_executable(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
}

#[cfg(not(unix))]
fn make_executable(_: &Path) -> std::io::Result<()> {
    Ok(())
}
