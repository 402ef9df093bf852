//! `knack skill lock`: versions of what a skill declares, chosen once, with hashes.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use knack_execution::interpreter::Reach;
use knack_packages::lock::LOCK_FILE;
use knack_packages::{Declaration, Finding, Source, declare};

use super::discovered::discovered;
use super::terminal;
use crate::dev::discover;
use crate::packages::{Base, BuildLimits, Uv, lock_for_all_platforms};

/// Arguments of `knack skill lock`.
#[derive(Debug, Args)]
pub struct LockArgs {
    /// The skill's folder
    path: PathBuf,
}

/// Writes the lock beside the skill. Every platform finds its files in it; a package without wheels is an error.
pub async fn lock(args: LockArgs) -> anyhow::Result<ExitCode> {
    let declared = read(&args).await?;
    terminal::note(&format!("choosing versions for {}", declared.names().join(", ")));
    let uv = Uv::find()?;
    let base = Base::of_host(Reach::SameUser).await?;
    let lock = lock_for_all_platforms(&uv, &base, &declared, &BuildLimits::default()).await?;
    let file = args.path.join(LOCK_FILE);
    let text = format!(
        "# Written by knack skill lock from {}. Do not edit.\n{}",
        declared.source.shown(),
        lock.text()
    );
    tokio::fs::write(&file, text)
        .await
        .with_context(|| file.display().to_string())?;
    terminal::line(&format!("{}: {} packages", file.display(), lock.packages().len()));
    Ok(ExitCode::SUCCESS)
}

/// What the skill declares without its old lock.
async fn read(args: &LockArgs) -> anyhow::Result<Declaration> {
    if !args.path.is_dir() {
        bail!(
            "{}: not a folder; name the one that holds the SKILL.md",
            args.path.display()
        );
    }
    let found = discovered(vec![args.path.clone()], discover).await?;
    let [source] = found.skills.as_slice() else {
        bail!(
            "{}: not the folder of one skill; name the one that holds the SKILL.md",
            args.path.display()
        );
    };
    let mut files = source.files.clone();
    files.remove(LOCK_FILE);
    let declared = declare(&files, source.overrides.packages.as_deref());
    let refused: Vec<String> = declared
        .findings
        .iter()
        .filter(|finding| finding.is_error())
        .map(Finding::to_string)
        .collect();
    if !refused.is_empty() {
        bail!("{}", refused.join("\n"));
    }
    match declared.source {
        Source::Inferred => bail!(
            "{}: nothing is declared, and the standard environment that its imports ask for has a lock of its own; \
             declare packages in requirements.txt or in the frontmatter first",
            args.path.display()
        ),
        _ if declared.python.is_empty() => bail!("{}: no Python packages are declared", args.path.display()),
        _ => Ok(declared),
    }
}
