//! `knack inject`: the sidecar in manifests, as the cluster's own injection would put it into their pods.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use knack_api::yaml_problem;
use knack_injection::{Parameters, inject_manifest};
use serde_json::Value;

use super::terminal;

/// Largest input, bytes: several hundred objects of the largest size that an API server takes.
const INPUT_MAX_BYTES: u64 = 64 << 20;

/// What is said of a pod that names no pull secrets but the sidecar's.
const PULL_SECRETS: &str = "its imagePullSecrets are the sidecar's alone, so Kubernetes does not add those of its ServiceAccount: \
     name these too if images of the application need them";

/// Arguments of `knack inject`.
#[derive(Debug, Args)]
pub struct InjectArgs {
    /// Manifest file, YAML or JSON, with one document or several; `-` for standard input; may be given several times
    #[arg(short = 'f', long = "filename", value_name = "FILE", required = true)]
    filenames: Vec<PathBuf>,
    /// File with the parameters of the injection, from the chart's ConfigMap knack-injection [default: the parameters of an
    /// installation without changes in the namespace knack-system]
    #[arg(long, value_name = "FILE")]
    parameters: Option<PathBuf>,
}

/// Prints every document, those with pods with the sidecar; says on standard error what was done to each pod.
pub fn inject(args: &InjectArgs) -> anyhow::Result<ExitCode> {
    let parameters = match &args.parameters {
        Some(path) => {
            let text = read(path).context("--parameters")?;
            Parameters::parse(&text).with_context(|| format!("--parameters {}", path.display()))?
        }
        None => Parameters::defaults()?,
    };
    let mut found = 0;
    let mut documents = Vec::new();
    for path in &args.filenames {
        let text = read(path)?;
        for (index, text) in knack_api::documents(&text).into_iter().enumerate() {
            let read = serde_saphyr::from_str_with_options(text, as_kubectl());
            let mut document: Value = read.map_err(|error| {
                let problem = yaml_problem(&error);
                anyhow!(
                    "{}: document {}: not valid YAML, lines counted within it: {problem}",
                    path.display(),
                    index + 1
                )
            })?;
            if document.is_null() {
                continue;
            }
            for injected in inject_manifest(&mut document, &parameters) {
                found += 1;
                let (object, outcome) = (injected.object, injected.outcome);
                terminal::note(&format!("{}: {object}: {outcome}", path.display()));
                if injected.hides_pull_secrets {
                    terminal::note(&format!("{}: {object}: {PULL_SECRETS}", path.display()));
                }
            }
            documents.push(document);
        }
    }
    for document in &documents {
        terminal::raw(format!("---\n{}", serde_saphyr::to_string(document)?).as_bytes());
    }
    if found == 0 {
        terminal::note("no pod found: a Pod, or an object with a pod template (Deployment, Job, CronJob and others)");
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads what kubectl reads: YAML 1.1, in which `0400` is 256.
fn as_kubectl() -> serde_saphyr::Options {
    serde_saphyr::options! { legacy_octal_numbers: true }
}

/// A file's text, or that of standard input.
fn read(path: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let read = if path == Path::new("-") {
        std::io::stdin()
            .lock()
            .take(INPUT_MAX_BYTES + 1)
            .read_to_string(&mut text)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(INPUT_MAX_BYTES + 1).read_to_string(&mut text))
    };
    let bytes = read.with_context(|| path.display().to_string())?;
    if bytes as u64 > INPUT_MAX_BYTES {
        bail!("{}: larger than {} MiB", path.display(), INPUT_MAX_BYTES >> 20);
    }
    Ok(text)
}
