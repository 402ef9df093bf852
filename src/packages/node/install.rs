//! Installs the packages of a lock below a folder, each at the path that the lock gives.

use std::path::{Path, PathBuf};

use futures::StreamExt as _;
use knack_packages::State;
use knack_packages::node::{NodeLock, NodePackage};

use super::index::{NpmIndex, of};
use super::unpack::{UnpackBudget, unpack};
use crate::packages::layout;
use crate::packages::{BuildError, BuildLimits};
use crate::sources::{Cause, SourceError};

/// Files that are fetched at the same time: an index answers each in tens of milliseconds.
const AT_ONCE: usize = 8;

/// Where packages are for: an architecture and a C library, in npm's words.
#[derive(Debug, Clone, Copy)]
pub(in crate::packages) struct Machine<'a> {
    cpu: &'a str,
    libc: &'static str,
}

impl<'a> Machine<'a> {
    /// The machine in npm's words, from those of Python: `x86_64`, `glibc 2.36`.
    pub(in crate::packages) fn of(architecture: &'a str, libc: &str) -> Self {
        Self {
            cpu: match architecture {
                "x86_64" => "x64",
                "aarch64" => "arm64",
                other => other,
            },
            // Python knows no name of musl.
            libc: if libc.starts_with("glibc") { "glibc" } else { "musl" },
        }
    }
}

/// Installs what a lock says below `prefix`, with `scratch` for files that are fetched. Names and versions of what is there
/// then, sorted.
pub(in crate::packages) async fn install(
    index: &NpmIndex,
    lock: &NodeLock,
    machine: Machine<'_>,
    (scratch, prefix): (&Path, &Path),
    limits: &BuildLimits,
) -> Result<Vec<(String, String)>, BuildError> {
    let wanted = fitting(lock.packages(), machine)?;
    let mut names: Vec<(String, String)> = wanted
        .iter()
        .map(|package| (package.name.clone(), package.version.clone()))
        .collect();
    names.sort();
    names.dedup();
    tokio::fs::create_dir_all(scratch)
        .await
        .map_err(|error| BuildError::of_disk("the store", &error))?;
    let all = install_all(index, wanted, scratch, prefix, limits);
    match tokio::time::timeout(limits.time, all).await {
        Ok(done) => done.map(|()| names),
        Err(_) => Err(BuildError::new(
            State::TimedOut,
            format!("packages of Node were not installed within {} s", limits.time.as_secs()),
        )),
    }
}

/// The packages for this machine. Errors: a required package is not for it.
fn fitting<'a>(packages: &'a [NodePackage], machine: Machine<'_>) -> Result<Vec<&'a NodePackage>, BuildError> {
    let mut left_out: Vec<String> = Vec::new();
    let mut wanted = Vec::new();
    for package in packages {
        let is_below = |above: &String| package.location.starts_with(above);
        if left_out.iter().any(is_below) {
            continue;
        }
        if package.fits(machine.cpu, machine.libc) {
            wanted.push(package);
        } else if package.optional {
            left_out.push(format!("{}/", package.location));
        } else {
            let why = format!("it does not support {} with {}", machine.cpu, machine.libc);
            return Err(of(package, State::NoWheel, &why));
        }
    }
    Ok(wanted)
}

/// Fetches ahead, and unpacks one after the other: a nested package comes after its parent.
async fn install_all(
    index: &NpmIndex,
    wanted: Vec<&NodePackage>,
    scratch: &Path,
    prefix: &Path,
    limits: &BuildLimits,
) -> Result<(), BuildError> {
    let mut fetches = Vec::new();
    for (number, package) in wanted.into_iter().enumerate() {
        let file = scratch.join(format!("{number}.tgz"));
        fetches.push(fetch(index.clone(), package.clone(), file));
    }
    let mut fetched = futures::stream::iter(fetches).buffered(AT_ONCE);
    let mut budget = UnpackBudget {
        bytes: limits.bytes,
        files: limits.files,
    };
    while let Some(next) = fetched.next().await {
        let (package, file) = next?;
        let to = prefix.join(&package.location);
        let done = tokio::task::spawn_blocking(move || place(&file, &to, budget)).await;
        let done = done.map_err(|_| BuildError::new(State::Failed, "the process is shutting down"))?;
        budget = done.map_err(|error| {
            let state = match error.cause {
                Cause::TooLarge => State::TooLarge,
                Cause::Unavailable => State::Failed,
                _ => State::Refused,
            };
            of(&package, state, &error.message)
        })?;
    }
    Ok(())
}

async fn fetch(index: NpmIndex, package: NodePackage, file: PathBuf) -> Result<(NodePackage, PathBuf), BuildError> {
    index.fetch(&package, &file).await.map(|()| (package, file))
}

/// Unpacks a file and removes it. Blocks.
fn place(file: &Path, to: &Path, mut budget: UnpackBudget) -> Result<UnpackBudget, SourceError> {
    let disk = |error: std::io::Error| SourceError::new(Cause::Unavailable, format!("the store: {error}"));
    // Another package may have brought something of that name with it; the lock counts.
    layout::remove(to).map_err(disk)?;
    unpack(file, to, &mut budget)?;
    std::fs::remove_file(file).map_err(disk)?;
    Ok(budget)
}
