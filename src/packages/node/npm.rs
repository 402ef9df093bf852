//! Versions chosen by npm, for `knack skill lock` and for skills without a lock that a person names.
//!
//! npm is not confined as runs are, so it gets neither the person's folder, with settings and keys, nor a way to other sources than the
//! index.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use knack_packages::State;
use knack_packages::node::{NODE_LOCK_FILE, NodeLock, NodeRequirements};
use knack_trust::Roots;
use knack_vocabulary::PROXIES;
use serde_json::{Map, Value, json};
use tokio::process::Command;

use super::index::{DEFAULT, NPM_INDEX_VARIABLE, NPMRC_VARIABLE, NpmIndex};
use crate::packages::child::{self, Bound, ProgramOutput};
use crate::packages::work_folder::WorkFolder;
use crate::packages::{BuildError, BuildLimits, Store};

/// A file of authorities that Node trusts besides its own; `--ca-file` takes its place.
const EXTRA_CERTIFICATES: &str = "NODE_EXTRA_CA_CERTS";

/// The variables that npm inherits besides [`PROXIES`]: the search path and languages. The index and its credentials are given by [`environment`].
const INHERITED: [&str; 4] = ["PATH", "LANG", "LC_ALL", EXTRA_CERTIFICATES];

/// What keeps git, which an old npm may start, from asking anyone anything.
const NO_GIT: [(&str, &str); 4] = [
    ("GIT_ALLOW_PROTOCOL", "none"),
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_SSH_COMMAND", "false"),
    ("GIT_TERMINAL_PROMPT", "0"),
];

/// Ends the search for a project, and for its settings, at the folder with a `package.json`: npm would go on to one above that counts the
/// folder among its workspaces, whoever owns it.
const NO_PROJECT: &str = "--workspaces=false";

/// A lock and nothing else: no package is installed, nothing of one runs, and none comes from elsewhere than the index. An npm that does
/// not know a setting warns of it.
const ARGUMENTS: [&str; 12] = [
    "install",
    "--package-lock-only",
    "--ignore-scripts",
    "--omit=dev",
    "--no-audit",
    "--no-fund",
    "--no-update-notifier",
    "--allow-git=none",
    "--allow-remote=none",
    "--allow-file=none",
    "--allow-directory=none",
    NO_PROJECT,
];

/// The oldest npm whose settings are known to close every source but the index.
const CONFINED_SINCE: (u32, u32, u32) = (11, 19, 1);

/// The lock of what a skill asks for, as npm writes it, where nobody asked for npm: it must know every setting that is given to it.
///
/// Errors: as [`lock_of_npm`], and npm is too old.
pub(in crate::packages) async fn chosen_by_npm(
    requirements: &NodeRequirements,
    store: &Store,
    limits: &BuildLimits,
    index: &NpmIndex,
) -> Result<String, BuildError> {
    let folder = project_of(requirements, store)?;
    let address = Some(index.address());
    let version_of = ["--version", NO_PROJECT].map(OsString::from);
    let ended = run(&version_of, folder.path(), address, None, limits).await?;
    if !ended.is_success {
        return Err(BuildError::of_npm(&ended.stderr));
    }
    if version(&ended.stdout).is_none_or(|version| version < CONFINED_SINCE) {
        let (major, minor, patch) = CONFINED_SINCE;
        let text = format!(
            "npm {} cannot be kept from other sources than the index, which needs npm {major}.{minor}.{patch}; write package-lock.json \
             with knack skill lock, or get a newer npm",
            ended.stdout.trim()
        );
        return Err(BuildError::new(State::PackagesOff, text));
    }
    let (text, _) = lock_in(folder.path(), limits, index.roots(), address).await?;
    Ok(text)
}

/// The lock of what a skill asks for, as npm writes it below the store, and the number of its packages. It trusts these authorities too.
///
/// Errors: there is no npm, it fails, or Knack would not install what it chose.
pub async fn lock_of_npm(
    requirements: &NodeRequirements,
    store: &Store,
    limits: &BuildLimits,
    roots: &Roots,
) -> Result<(String, usize), BuildError> {
    let folder = project_of(requirements, store)?;
    lock_in(folder.path(), limits, roots, None).await
}

/// The lock that npm writes in the folder of a project, and the number of its packages; `index` is asked in place of the one that the
/// environment names.
async fn lock_in(
    folder: &Path,
    limits: &BuildLimits,
    roots: &Roots,
    index: Option<&str>,
) -> Result<(String, usize), BuildError> {
    let disk = |error: std::io::Error| BuildError::of_disk("the store", &error);
    let authorities = roots.pem().map(|text| {
        let file = folder.join("authorities.pem");
        std::fs::write(&file, text).map(|()| file)
    });
    let authorities = authorities.transpose().map_err(disk)?;
    let ended = run(&arguments(folder), folder, index, authorities, limits).await?;
    if !ended.is_success {
        let mut error = BuildError::of_npm(&ended.stderr);
        // EALLOWGIT, EALLOWREMOTE: a package depends on what is not of the index.
        if ended.stderr.contains("code EALLOW") {
            error.state = State::Refused;
        }
        return Err(error);
    }
    let text = std::fs::read_to_string(folder.join(NODE_LOCK_FILE)).map_err(disk)?;
    let lock = NodeLock::read(text.as_bytes()).map_err(|findings| {
        let problems: Vec<String> = findings.iter().map(ToString::to_string).collect();
        BuildError::new(State::Refused, problems.join("\n"))
    })?;
    let count = lock.packages().len();
    Ok((text, count))
}

/// A folder with what a skill asks for, as the project of npm: no other one is found from there.
fn project_of(requirements: &NodeRequirements, store: &Store) -> Result<WorkFolder, BuildError> {
    let folder = WorkFolder::below(store)?;
    let text = package_json(requirements).to_string();
    let written = std::fs::write(folder.path().join("package.json"), text);
    written.map_err(|error| BuildError::of_disk("the store", &error))?;
    Ok(folder)
}

/// Runs npm in the folder of a project.
async fn run(
    arguments: &[OsString],
    folder: &Path,
    index: Option<&str>,
    authorities: Option<PathBuf>,
    limits: &BuildLimits,
) -> Result<ProgramOutput, BuildError> {
    let mut command = Command::new(find_npm()?);
    command
        .args(arguments)
        .current_dir(folder)
        .env_clear()
        .envs(environment(std::env::vars_os(), folder, index, authorities));
    let bound = Bound {
        folder,
        bytes: limits.bytes,
        files: limits.files,
    };
    child::run(command, "npm", State::PackagesOff, limits.time, bound).await
}

/// Everybody on the machine can read these, so nothing secret is among them.
fn arguments(folder: &Path) -> Vec<OsString> {
    let mut all: Vec<OsString> = ARGUMENTS.iter().map(OsString::from).collect();
    all.extend(["--cache".into(), folder.join("cache").into_os_string()]);
    all
}

/// The variables of npm: of those of this process the ones that are passed on, an empty home below `folder`, and the index with its
/// credentials.
fn environment(
    own: impl IntoIterator<Item = (OsString, OsString)>,
    folder: &Path,
    index: Option<&str>,
    authorities: Option<PathBuf>,
) -> Vec<(OsString, OsString)> {
    let (mut all, mut first, mut second, mut npmrc) = (Vec::new(), None, None, None);
    for (name, value) in own.into_iter().filter(|(_, value)| !value.is_empty()) {
        if name == NPM_INDEX_VARIABLE {
            first = Some(value);
        } else if name == "npm_config_registry" {
            second = Some(value);
        } else if name == NPMRC_VARIABLE {
            npmrc = Some(value);
        } else if INHERITED.iter().chain(&PROXIES).any(|known| name == *known) {
            all.push((name, value));
        }
    }
    let named = index.map(OsString::from).or(first).or(second);
    all.push((NPM_INDEX_VARIABLE.into(), named.unwrap_or_else(|| DEFAULT.into())));
    // npm reads a path from its own folder.
    let npmrc = npmrc.map(|file| std::path::absolute(&file).map_or(file, PathBuf::into_os_string));
    all.extend(npmrc.map(|file| ("NPM_CONFIG_USERCONFIG".into(), file)));
    for (name, file) in [("HOME", "home"), ("NPM_CONFIG_GLOBALCONFIG", "no-npmrc")] {
        all.push((name.into(), folder.join(file).into_os_string()));
    }
    all.extend(NO_GIT.map(|(name, value)| (name.into(), value.into())));
    if let Some(file) = authorities {
        // It adds those of one file to its own.
        all.retain(|(name, _)| name != EXTRA_CERTIFICATES);
        all.push((EXTRA_CERTIFICATES.into(), file.into_os_string()));
    }
    all
}

/// `11.19.1`; what follows the three numbers does not count.
fn version(text: &str) -> Option<(u32, u32, u32)> {
    let mut parts = text
        .trim()
        .split(|letter: char| !letter.is_ascii_digit())
        .map(str::parse::<u32>);
    let mut next = || parts.next()?.ok();
    Some((next()?, next()?, next()?))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn environment_of(own: &[(&str, &str)], index: Option<&str>) -> Vec<(String, String)> {
        let own = own
            .iter()
            .map(|(name, value)| (OsString::from(*name), OsString::from(*value)));
        let all = environment(own, Path::new("/work"), index, None);
        let text = |text: OsString| text.into_string().unwrap();
        all.into_iter().map(|(name, value)| (text(name), text(value))).collect()
    }

    #[test]
    fn npm_gets_the_index_and_nothing_else_of_the_person() {
        let own = [
            ("PATH", "/usr/bin"),
            ("HOME", "/home/me"),
            ("XDG_CONFIG_HOME", "/home/me/.config"),
            ("SSH_AUTH_SOCK", "/home/me/agent"),
            ("NPM_CONFIG_USERCONFIG", "/home/me/.npmrc"),
            ("npm_config_allow_git", "all"),
            ("GIT_SSH_COMMAND", "ssh"),
            ("HTTPS_PROXY", "http://proxy"),
            ("NPM_CONFIG_REGISTRY", "https://one.example"),
            ("npm_config_registry", "https://two.example"),
        ];
        let found = environment_of(&own, Some("https://me:secret@three.example/"));
        let expected = [
            ("PATH", "/usr/bin"),
            ("HTTPS_PROXY", "http://proxy"),
            ("NPM_CONFIG_REGISTRY", "https://me:secret@three.example/"),
            ("HOME", "/work/home"),
            ("NPM_CONFIG_GLOBALCONFIG", "/work/no-npmrc"),
            ("GIT_ALLOW_PROTOCOL", "none"),
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_SSH_COMMAND", "false"),
            ("GIT_TERMINAL_PROMPT", "0"),
        ];
        assert_eq!(found, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn the_index_and_the_file_of_credentials_are_those_that_fetch_packages() {
        let value = |own: &[(&str, &str)], wanted: &str| {
            let found = environment_of(own, None);
            let mut values = found.into_iter().filter(|(name, _)| name == wanted);
            let value = values.next().map(|(_, value)| value);
            assert!(values.next().is_none());
            value
        };
        for (own, index) in [
            (&[][..], DEFAULT),
            (&[("NPM_CONFIG_REGISTRY", ""), ("npm_config_registry", "b")], "b"),
            (&[("npm_config_registry", "b"), ("NPM_CONFIG_REGISTRY", "a")], "a"),
        ] {
            assert_eq!(value(own, "NPM_CONFIG_REGISTRY").as_deref(), Some(index));
        }
        let file = value(&[("KNACK_NPMRC", "/etc/npmrc-of-knack")], "NPM_CONFIG_USERCONFIG");
        assert_eq!(file.as_deref(), Some("/etc/npmrc-of-knack"));
        let file = value(&[("KNACK_NPMRC", "here")], "NPM_CONFIG_USERCONFIG").unwrap();
        assert!(Path::new(&file).is_absolute() && file.ends_with("/here"));
        assert_eq!(value(&[("KNACK_NPMRC", "")], "NPM_CONFIG_USERCONFIG"), None);
    }

    /// `/proc/PID/cmdline` is readable for everybody.
    #[test]
    fn the_arguments_name_no_index_and_close_other_sources() {
        let all = arguments(Path::new("/work"));
        assert!(!all.iter().any(|word| word.to_string_lossy().contains("registry")));
        for source in ["git", "remote", "file", "directory"] {
            assert!(
                all.contains(&OsString::from(format!("--allow-{source}=none"))),
                "{all:?}"
            );
        }
    }

    #[test]
    fn an_npm_that_does_not_know_the_settings_is_too_old() {
        for (text, is_confined) in [
            ("11.19.1\n", true),
            ("12.0.0-pre.1", true),
            ("11.20.0", true),
            ("11.19.0", false),
            ("10.8.2", false),
            ("", false),
            ("npm", false),
            ("11", false),
        ] {
            let found = version(text).is_some_and(|version| version >= CONFINED_SINCE);
            assert_eq!(found, is_confined, "{text}");
        }
    }
}
