//! Versions chosen by npm, for `knack skill lock` and for skills without a lock.

use std::path::PathBuf;

use knack_packages::State;
use knack_packages::node::{NODE_LOCK_FILE, NodeLock, NodeRequirements};
use knack_trust::Roots;
use serde_json::{Map, Value, json};
use tokio::process::Command;

use crate::packages::child::{self, Bound};
use crate::packages::{BuildError, BuildLimits};

/// A file of authorities that Node trusts besides its own; `--ca-file` takes its place.
const EXTRA_CERTIFICATES: &str = "NODE_EXTRA_CA_CERTS";

/// The variables that npm inherits: the search path, the person's own settings of it, and the proxy.
const INHERITED: [&str; 16] = [
    "HOME",
    "PATH",
    "LANG",
    "LC_ALL",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "NPM_CONFIG_REGISTRY",
    "npm_config_registry",
    "NPM_CONFIG_USERCONFIG",
    EXTRA_CERTIFICATES,
];

/// A lock and nothing else: no package is installed, and nothing of one runs.
const ARGUMENTS: [&str; 7] = [
    "install",
    "--package-lock-only",
    "--ignore-scripts",
    "--omit=dev",
    "--no-audit",
    "--no-fund",
    "--no-update-notifier",
];

/// The lock of what a skill asks for, as npm writes it, and the number of its packages. It trusts these authorities too; `index` is
/// asked in place of the one of npm's settings.
///
/// Errors: there is no npm, it fails, or Knack would not install what it chose.
pub async fn lock_of_npm(
    requirements: &NodeRequirements,
    limits: &BuildLimits,
    roots: &Roots,
    index: Option<&str>,
) -> Result<(String, usize), BuildError> {
    let npm = find_npm()?;
    let folder = tempfile::tempdir().map_err(|error| BuildError::of_disk("a temporary folder", &error))?;
    let disk = |error: std::io::Error| BuildError::of_disk("a temporary folder", &error);
    std::fs::write(
        folder.path().join("package.json"),
        package_json(requirements).to_string(),
    )
    .map_err(disk)?;
    let authorities = roots.pem().map(|text| {
        let file = folder.path().join("authorities.pem");
        std::fs::write(&file, text).map(|()| file)
    });
    let authorities = authorities.transpose().map_err(disk)?;
    let mut command = Command::new(npm);
    let inherited = std::env::vars_os().filter(|(name, _)| INHERITED.iter().any(|known| name == *known));
    command
        .args(ARGUMENTS)
        .arg("--cache")
        .arg(folder.path().join("cache"))
        .args(index.map(|index| format!("--registry={index}")))
        .current_dir(folder.path())
        .env_clear()
        .envs(inherited)
        // It adds those of one file to its own.
        .envs(authorities.map(|file| (EXTRA_CERTIFICATES, file)));
    let bound = Bound {
        folder: folder.path(),
        bytes: limits.bytes,
        files: limits.files,
    };
    let ended = child::run(command, "npm", State::PackagesOff, limits.time, bound).await?;
    if !ended.is_success {
        return Err(BuildError::of_npm(&ended.stderr));
    }
    let text = std::fs::read_to_string(folder.path().join(NODE_LOCK_FILE)).map_err(disk)?;
    let lock = NodeLock::read(text.as_bytes()).map_err(|findings| {
        let problems: Vec<String> = findings.iter().map(ToString::to_string).collect();
        BuildError::new(State::Refused, problems.join("\n"))
    })?;
    let count = lock.packages().len();
    Ok((text, count))
}

/// What a skill asks for, as a file for npm.
pub(in crate::packages) fn package_json(requirements: &NodeRequirements) -> Value {
    let dependencies: Map<String, Value> = requirements
        .dependencies
        .iter()
        .map(|dependency| (dependency.name.clone(), json!(dependency.range)))
        .collect();
    let mut whole = json!({"name": "skill", "private": true, "dependencies": dependencies});
    if let Some(overrides) = &requirements.overrides {
        whole["overrides"] = overrides.clone();
    }
    whole
}

/// The program that chooses versions.
pub fn find_npm() -> Result<PathBuf, BuildError> {
    child::on_path("npm").ok_or_else(|| {
        let text = "npm is not on PATH; get it with Node (https://nodejs.org), or write package-lock.json elsewhere \
                    with: npm install --package-lock-only --ignore-scripts --omit=dev";
        BuildError::new(State::PackagesOff, text)
    })
}
