//! `knack skill export`: the files of skills in manifests or archives as folders.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;
use knack_gateway::catalog::SkillSource;
use knack_skill::tree::check_path;

use super::find_sources::manifest_fields;
use super::terminal;
use crate::dev::{Search, discover, repeated_name};

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
    check(&args.directory, &found.skills)?;
    if !found.skills.is_empty() {
        std::fs::create_dir_all(&args.directory).with_context(|| args.directory.display().to_string())?;
        write_folders(&args.directory, &found.skills)?;
    }
    let failed = found.errors().next().is_some();
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Refuses, before anything is written, what would not be written as it is.
fn check(directory: &Path, skills: &[SkillSource]) -> anyhow::Result<()> {
    if let Some(text) = repeated_name(skills) {
        bail!("{text}; nothing was written");
    }
    for skill in skills {
        let name = &skill.id.name;
        // A path may come from a manifest of anybody.
        for path in skill.files.keys() {
            check_path(path).map_err(|why| anyhow::anyhow!("{}: {name}: file {path:?}: {why}", skill.origin))?;
        }
        let folder = directory.join(name);
        if folder.symlink_metadata().is_ok() {
            bail!(
                "{}: {} exists; nothing was written, name another folder",
                skill.origin,
                folder.display()
            );
        }
    }
    Ok(())
}

/// Writes all of them into a temporary folder beside their places, and moves each as a whole. An error before the first is moved
/// leaves nothing.
fn write_folders(directory: &Path, skills: &[SkillSource]) -> anyhow::Result<()> {
    let made = tempfile::Builder::new().prefix(".knack-export-").tempdir_in(directory);
    let made = made.with_context(|| directory.display().to_string())?;
    for skill in skills {
        write(&made.path().join(&skill.id.name), skill)
            .with_context(|| format!("{}: {}: nothing was written", skill.origin, skill.id.name))?;
    }
    for skill in skills {
        let name = &skill.id.name;
        let folder = directory.join(name);
        std::fs::rename(made.path().join(name), &folder).with_context(|| folder.display().to_string())?;
        terminal::line(&folder.display().to_string());
        let beside = manifest_fields(skill);
        if !beside.is_empty() {
            terminal::note(&format!(
                "{}: {name}: a folder cannot hold {}, which stay in the manifest",
                skill.origin,
                beside.join(", ")
            ));
        }
    }
    Ok(())
}

fn write(folder: &Path, skill: &SkillSource) -> anyhow::Result<()> {
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
