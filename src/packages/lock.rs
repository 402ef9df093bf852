//! Versions chosen for requirements.

use std::ffi::OsString;
use std::path::Path;

use knack_packages::{Declaration, Lock, MAX_PACKAGES, Rules, Source, State};

use super::build_error::BuildError;
use super::child::Bound;
use super::limits::BuildLimits;
use super::python::BaseInterpreter;
use super::store::Store;
use super::uv::Uv;
use super::work_folder::WorkFolder;

/// The file that `uv` reads.
const INPUT: &str = "requirements.in";

/// The runtime's constraints, beside it.
const CONSTRAINTS: &str = "constraints.txt";

/// The target of the chosen versions.
#[derive(Debug, Clone, Copy)]
pub(super) struct LockTarget<'a> {
    pub(super) declared: &'a Declaration,
    /// Constraints, a line each.
    pub(super) constraints: &'a str,
    /// No file that came to the index later.
    pub(super) exclude_newer: Option<&'a str>,
    /// For every platform, and this and later versions of Python.
    pub(super) universal: bool,
}

/// A lock for every platform and for this and later versions of Python, as `knack skill lock` writes it, within a runtime's
/// constraints. It is chosen below the store.
pub async fn lock_for_all_platforms(
    uv: &Uv,
    base: &BaseInterpreter,
    store: &Store,
    declared: &Declaration,
    rules: &Rules,
    limits: &BuildLimits,
    log: &(dyn Fn(&str) + Sync),
) -> Result<Lock, BuildError> {
    let folder = WorkFolder::below(store)?;
    let (constraints, exclude_newer) = (
        rules.constraints_text(),
        rules.exclude_newer(declared.exclude_newer.as_deref()),
    );
    let wanted = LockTarget {
        declared,
        constraints: &constraints,
        exclude_newer: exclude_newer.as_deref(),
        universal: true,
    };
    choose(uv, base, wanted, folder.path(), limits, log).await
}

/// Chooses versions; `folder` is empty and stays below the limits. `log` gets a line for each extra that there is not.
pub(super) async fn choose(
    uv: &Uv,
    base: &BaseInterpreter,
    wanted: LockTarget<'_>,
    folder: &Path,
    limits: &BuildLimits,
    log: &(dyn Fn(&str) + Sync),
) -> Result<Lock, BuildError> {
    let input = folder.join(INPUT);
    std::fs::write(&input, wanted.declared.requirements_text())
        .and_then(|()| std::fs::write(folder.join(CONSTRAINTS), wanted.constraints))
        .map_err(|error| BuildError::of_disk("requirements", &error))?;
    let words = [
        "pip",
        "compile",
        "--generate-hashes",
        "--only-binary",
        ":all:",
        "--no-header",
        "--no-annotate",
        "--no-sources",
        INPUT,
    ];
    let mut arguments: Vec<OsString> = words.iter().map(OsString::from).collect();
    if !wanted.constraints.is_empty() {
        arguments.extend(["--constraints".into(), CONSTRAINTS.into()]);
    }
    arguments.extend(
        wanted
            .exclude_newer
            .map(|until| format!("--exclude-newer={until}").into()),
    );
    arguments.extend(wanted.universal.then(|| "--universal".into()));
    arguments.extend(["--python".into(), base.executable.clone().into_os_string()]);
    arguments.extend(["--cache-dir".into(), folder.join("uv").into_os_string()]);
    let bound = Bound {
        folder,
        bytes: limits.bytes,
        files: limits.files,
    };
    let chosen = uv.run(&arguments, folder, limits.time, bound).await;
    let chosen = chosen.map_err(|error| with_scripts(error, &wanted.declared.source))?;
    missing_extras(&chosen.stderr).for_each(log);
    // It is empty where all markers exclude this Python.
    let lock = Lock::read_or_empty("the lock of uv", chosen.stdout.as_bytes()).map_err(|findings| {
        let first = findings.first().map(ToString::to_string).unwrap_or_default();
        BuildError::new(State::Failed, format!("uv made a lock that cannot be used: {first}"))
    })?;
    check_size(&lock, limits)?;
    Ok(lock)
}

/// The warnings of `uv` about extras that a package does not have: of these it installs nothing.
fn missing_extras(said: &str) -> impl Iterator<Item = &str> {
    let lines = said.lines().filter(|line| line.starts_with("warning:"));
    lines
        .filter(|line| line.contains("does not have an extra"))
        .take(MAX_PACKAGES)
}

/// A conflict between the requirements of scripts, with the scripts: the installer knows of one list.
fn with_scripts(mut error: BuildError, source: &Source) -> BuildError {
    if let Source::Scripts(files) = source
        && files.len() > 1
        && error.state == State::Conflict
    {
        // First: statuses of a cluster are short.
        error.text = format!("declared in {}: {}", files.join(", "), error.text);
    }
    error
}

/// As many packages as an environment may have.
pub(super) fn check_size(lock: &Lock, limits: &BuildLimits) -> Result<(), BuildError> {
    let count = lock.packages().len();
    if count <= limits.packages {
        return Ok(());
    }
    let text = format!(
        "{count} packages, more than {}; declare fewer, or split the skill",
        limits.packages
    );
    Err(BuildError::new(State::TooLarge, text))
}
