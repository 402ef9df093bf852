//! `knack crds`: the custom resource definitions, as checked in under `crds/`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use knack_api::schema::definition_files;

use super::terminal;

/// Arguments of `knack crds`.
#[derive(Debug, Args)]
pub struct CrdsArgs {
    /// Write skills.yaml and skillruntimes.yaml into this folder instead of printing them
    #[arg(long)]
    directory: Option<PathBuf>,
}

/// Prints or writes the definitions.
pub fn crds(args: &CrdsArgs) -> anyhow::Result<ExitCode> {
    for (name, text) in definition_files()? {
        match &args.directory {
            Some(directory) => {
                let path = directory.join(name);
                std::fs::write(&path, text).with_context(|| path.display().to_string())?;
            }
            None => terminal::line(&format!("---\n{text}")),
        }
    }
    Ok(ExitCode::SUCCESS)
}
