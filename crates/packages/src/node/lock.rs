//! `package-lock.json`: the location, the version and the hash of each package.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::MAX_NODE_PACKAGES;
use super::location::{is_name, name_of};
use crate::finding::{Finding, FindingKind, shown};
use crate::requirements_txt::text_of;

/// The file that npm and `knack skill lock` write.
pub const NODE_LOCK_FILE: &str = "package-lock.json";

/// Most findings of one lock.
const MAX_FINDINGS: usize = 20;

/// Letters of a SHA-512 in base64.
const SHA512_LETTERS: usize = 88;

/// The system of every run.
const SYSTEM: &str = "linux";

const HELP: &str = "regenerate the lock with knack skill lock";

/// A package that is installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodePackage {
    /// `node_modules/a/node_modules/@s/b`: relative, and checked.
    pub location: String,
    /// Its name at the index.
    pub name: String,
    /// The package's version.
    pub version: String,
    /// Its file below the address of an index: `@s/b/-/b-1.0.0.tgz`.
    pub file: String,
    /// SHA-512 of that file in base64.
    pub sha512: String,
    /// Architectures that it is for, in npm's words; empty: all.
    pub cpu: Vec<String>,
    /// C libraries that it is for: `glibc`, `musl`; empty: all.
    pub libc: Vec<String>,
    /// Whether it is left out where it does not fit.
    pub optional: bool,
}

/// A lock that was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeLock {
    /// Sorted by location: a nested package follows its parent.
    packages: Vec<NodePackage>,
    /// The requirements that it was made for: names with ranges.
    root: BTreeMap<String, String>,
}

impl NodeLock {
    /// Reads a lock. Errors: entries that would not be installed as written, each by name.
    pub fn read(bytes: &[u8]) -> Result<Self, Vec<Finding>> {
        let wrong = |text: String| vec![finding(text)];
        let text = text_of(NODE_LOCK_FILE, bytes).map_err(|found| vec![found])?;
        let value: Value =
            serde_json::from_str(text).map_err(|error| wrong(format!("the file is not valid JSON: {error}")))?;
        match value.get("lockfileVersion").and_then(Value::as_u64) {
            Some(2 | 3) => {}
            Some(other) => {
                return Err(wrong(format!(
                    "lockfileVersion: {other} is not supported; supported are 2 and 3"
                )));
            }
            None => return Err(wrong("lockfileVersion: must be a number".to_owned())),
        }
        let Some(Value::Object(members)) = value.get("packages") else {
            return Err(wrong("packages: must be a mapping".to_owned()));
        };
        let mut read = Reader::default();
        for (location, entry) in members {
            match entry {
                Value::Object(entry) if location.is_empty() => read.root(entry),
                Value::Object(entry) => read.entry(location, entry),
                _ => read.refuse(location, "it must be a mapping"),
            }
        }
        read.finish()
    }

    /// The packages, sorted by location.
    pub fn packages(&self) -> &[NodePackage] {
        &self.packages
    }

    /// The requirements that it was made for: names with ranges.
    pub(super) const fn root(&self) -> &BTreeMap<String, String> {
        &self.root
    }

    /// The package that `require(name)` gives to the skill's own files.
    pub fn top(&self, name: &str) -> Option<&NodePackage> {
        let location = format!("node_modules/{name}");
        let at = self
            .packages
            .binary_search_by(|package| package.location.as_str().cmp(&location));
        at.ok().map(|at| &self.packages[at])
    }

    /// A lock file of exactly these packages, for another process: [`NodeLock::read`] returns them, by the same rules.
    pub fn file_text(&self) -> String {
        let mut packages = Map::new();
        for package in &self.packages {
            let NodePackage {
                location,
                name,
                version,
                file,
                sha512,
                cpu,
                libc,
                optional,
            } = package;
            let entry = json!({
                "name": name, "version": version, "resolved": format!("{NO_HOST}/{file}"),
                "integrity": format!("sha512-{sha512}"), "cpu": cpu, "libc": libc, "optional": optional,
            });
            packages.insert(location.clone(), entry);
        }
        json!({"lockfileVersion": 3, "packages": packages}).to_string()
    }

    /// The part that decides an environment: equal for locks that install the same.
    pub fn text(&self) -> String {
        let lines = self.packages.iter().map(|package| {
            let NodePackage {
                location,
                name,
                version,
                file,
                sha512,
                cpu,
                libc,
                optional,
            } = package;
            let (cpu, libc) = (cpu.join(","), libc.join(","));
            // None of them contains a blank or a line end.
            format!("{location} {name} {version} {file} sha512-{sha512} cpu={cpu} libc={libc} optional={optional}\n")
        });
        lines.collect()
    }
}

/// The placeholder for the host of an index in [`NodeLock::file_text`]; it is never contacted.
const NO_HOST: &str = "https://index.invalid";

fn finding(text: impl Into<String>) -> Finding {
    Finding::new(FindingKind::Lock, NODE_LOCK_FILE, 0, text, HELP)
}

/// The state of the reader.
#[derive(Default)]
struct Reader {
    packages: Vec<NodePackage>,
    root: BTreeMap<String, String>,
    /// Locations that are left out, with everything below them.
    left_out: BTreeSet<String>,
    findings: Vec<Finding>,
}

impl Reader {
    fn refuse(&mut self, location: &str, why: &str) {
        if self.findings.len() < MAX_FINDINGS {
            let shown_location = shown(location);
            self.findings
                .push(finding(format!("packages[{shown_location}]: {why}")));
        }
    }

    /// The entry of the skill itself, which has the requirements.
    fn root(&mut self, entry: &Map<String, Value>) {
        if entry.get("workspaces").is_some_and(|listed| !listed.is_null()) {
            self.refuse("", "workspaces are not installed");
        }
        for member in ["dependencies", "optionalDependencies"] {
            let listed = entry.get(member).and_then(Value::as_object);
            let texts = listed
                .into_iter()
                .flatten()
                .filter_map(|(name, range)| Some((name.clone(), range.as_str()?.to_owned())));
            self.root.extend(texts);
        }
    }

    fn entry(&mut self, location: &str, entry: &Map<String, Value>) {
        let is = |member: &str| entry.get(member) == Some(&Value::Bool(true));
        // Bundled in another package's file, or not needed by anything that runs.
        if is("dev") || is("extraneous") || is("inBundle") {
            return;
        }
        let optional = is("optional") || is("devOptional");
        let fits = allows(&texts(entry, "os"), SYSTEM);
        if optional && (!fits || is("hasInstallScript")) {
            self.left_out.insert(location.to_owned());
            return;
        }
        if !fits {
            return self.refuse(location, "it is for another operating system than Linux");
        }
        match package(location, entry, optional) {
            Ok(package) => self.packages.push(package),
            Err(why) => self.refuse(location, &why),
        }
    }

    fn finish(mut self) -> Result<NodeLock, Vec<Finding>> {
        let left_out = std::mem::take(&mut self.left_out);
        let is_left_out = |location: &str| {
            let mut above = location;
            while let Some(at) = above.rfind("/node_modules/") {
                above = &above[..at];
                if left_out.contains(above) {
                    return true;
                }
            }
            false
        };
        self.packages.retain(|package| !is_left_out(&package.location));
        self.packages.sort_by(|one, other| one.location.cmp(&other.location));
        if self.packages.len() > MAX_NODE_PACKAGES {
            let text = format!("{} packages, more than {MAX_NODE_PACKAGES}", self.packages.len());
            let help = "declare fewer packages, or split the skill";
            self.findings
                .push(Finding::new(FindingKind::TooMany, NODE_LOCK_FILE, 0, text, help));
        }
        if self.findings.is_empty() {
            Ok(NodeLock {
                packages: self.packages,
                root: self.root,
            })
        } else {
            Err(self.findings)
        }
    }
}

/// An entry that is installed. Errors: why it is not.
fn package(location: &str, entry: &Map<String, Value>, optional: bool) -> Result<NodePackage, String> {
    let text = |member: &str| entry.get(member).and_then(Value::as_str);
    let Some(at) = name_of(location) else {
        return Err("the location is not a path of package names below node_modules".to_owned());
    };
    if entry.get("link") == Some(&Value::Bool(true)) {
        return Err("it is a link to a folder; packages are installed only from the index".to_owned());
    }
    if entry.get("hasInstallScript") == Some(&Value::Bool(true)) {
        return Err(format!(
            "{at} needs an install script, which Knack never runs; use a package without one"
        ));
    }
    let name = text("name").unwrap_or(at);
    if !is_name(name) {
        return Err(format!("{} is not a package name", shown(name)));
    }
    let version = text("version").ok_or("it has no version")?;
    let is_version = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'+');
    if version.is_empty() || version.len() > 128 || !version.bytes().all(is_version) {
        return Err(format!("{} is not a version", shown(version)));
    }
    Ok(NodePackage {
        location: location.to_owned(),
        name: name.to_owned(),
        version: version.to_owned(),
        file: file(name, version, text("resolved"))?,
        sha512: sha512(text("integrity"))?,
        cpu: texts(entry, "cpu"),
        libc: texts(entry, "libc"),
        optional,
    })
}

/// The path of the package's file below an index. The host of `resolved` is not asked: a skill does not choose indexes.
fn file(name: &str, version: &str, resolved: Option<&str>) -> Result<String, String> {
    let unscoped = name.rsplit('/').next().unwrap_or(name);
    let Some(resolved) = resolved else {
        return Ok(format!("{name}/-/{unscoped}-{version}.tgz"));
    };
    if !resolved.starts_with("https://") && !resolved.starts_with("http://") {
        return Err(format!(
            "resolved: it comes from {}, but packages are installed only from the index, not from version control or files",
            shown(resolved)
        ));
    }
    let path = resolved.split(['?', '#']).next().unwrap_or(resolved);
    let last = path.rsplit_once("/-/").map(|(_, last)| last);
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~' | b'+');
    let is_plain = |last: &&str| {
        last.len() <= 255
            && last.strip_suffix(".tgz").is_some()
            && !last.starts_with('.')
            && last.bytes().all(is_letter)
    };
    Ok(match last.filter(is_plain) {
        Some(last) => format!("{name}/-/{last}"),
        None => format!("{name}/-/{unscoped}-{version}.tgz"),
    })
}

/// The SHA-512 among the hashes of an entry.
fn sha512(integrity: Option<&str>) -> Result<String, String> {
    let integrity = integrity.ok_or("it has no integrity")?;
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let is_hash =
        |hash: &&str| hash.len() == SHA512_LETTERS && hash.ends_with("==") && hash[..86].bytes().all(is_letter);
    let mut hashes = integrity
        .split_ascii_whitespace()
        .filter_map(|hash| hash.strip_prefix("sha512-"))
        .map(|hash| hash.split('?').next().unwrap_or(hash));
    let found = hashes.find(is_hash);
    found
        .map(str::to_owned)
        .ok_or_else(|| "integrity: must contain a sha512 hash".to_owned())
}

/// A list of words, or one word.
fn texts(entry: &Map<String, Value>, member: &str) -> Vec<String> {
    let is_word = |text: &str| {
        let letters = text.strip_prefix('!').unwrap_or(text);
        !letters.is_empty()
            && letters.len() <= 32
            && letters.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    let listed = match entry.get(member) {
        Some(Value::Array(items)) => items.iter().filter_map(Value::as_str).collect(),
        Some(Value::String(text)) => vec![text.as_str()],
        _ => Vec::new(),
    };
    listed
        .into_iter()
        .filter(|text| is_word(text))
        .map(str::to_owned)
        .collect()
}

/// Whether a list of npm (`["linux", "!win32"]`) has a word; an empty one has all.
fn allows(list: &[String], word: &str) -> bool {
    let is_refused = list.iter().any(|item| item.strip_prefix('!') == Some(word));
    let (mut positive, mut named) = (false, false);
    for item in list.iter().filter(|item| !item.starts_with('!')) {
        positive = true;
        named |= item == word || item == "any";
    }
    !is_refused && (!positive || named)
}

impl NodePackage {
    /// Whether it is for an architecture (`x64`) with a C library (`glibc`).
    pub fn fits(&self, cpu: &str, libc: &str) -> bool {
        allows(&self.cpu, cpu) && allows(&self.libc, libc)
    }
}

#[cfg(test)]
#[path = "lock_tests.rs"]
mod tests;
