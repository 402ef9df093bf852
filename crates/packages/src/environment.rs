//! Environments of a cluster: requests to builders, and their statuses.
//!
//! ```text
//! Declaration ─▶ Input ─▶ digest (status of a Skill) ─▶ key of a Request, with base image and constraints
//!                   └──────────────── Request ─────────▶ builder ─▶ EnvironmentStatus, by key ─▶ controller and hub
//! ```

use std::collections::BTreeMap;
use std::fmt;

use knack_skill::digest::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::declaration::{Declaration, Source};
use crate::finding::{Finding, FindingKind};
use crate::lock::Lock;
use crate::marker::Marker;
use crate::moment;
use crate::node::{NODE_LOCK_FILE, NodeDeclaration, NodeLock};
use crate::pylock::PYTHON_LOCK_FILE;
use crate::requirements_txt;
use crate::rules::Rules;
use crate::state::State;
use crate::version_clause::RequiredPython;

/// Version of the builders' output for a request; a change rebuilds every environment.
const FORMAT: u32 = 1;

/// Hex digits of a key: 128 bits distinguish environments, and names of objects stay short.
const KEY_DIGITS: usize = 32;

/// The parts of a declaration that decide its environment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// Requirements, sorted, a line each.
    requirements: String,
    /// The lock in its one form, where there is one.
    lock: Option<String>,
    /// Versions of Python that files ask for.
    python: Vec<RequiredPython>,
    /// The lock of packages of Node in its one form, where there is one. Absent without: an older builder, which does not know the
    /// field, can read such a request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    /// Markers of interpreters that the lock is for. Absent without, as `node`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    environments: Vec<String>,
    /// The moment until which the index counts, where versions are chosen. Absent without, as `node`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    exclude_newer: Option<String>,
}

impl Input {
    /// The input of a declaration that is not refused.
    pub fn of(declared: &Declaration) -> Self {
        Self {
            // A lock wins over the requirements that it was made from. Those that it lacks are for the builder to judge, which
            // knows the interpreter.
            requirements: match declared.lock {
                Some(_) => declared.left_to_python_text(),
                None => declared.requirements_text(),
            },
            lock: declared.lock.as_ref().map(|lock| lock.text().to_owned()),
            python: declared.requires_python.clone(),
            node: declared.node.as_ref().map(|node| node.lock.file_text()),
            environments: declared.environments.iter().map(ToString::to_string).collect(),
            exclude_newer: declared.exclude_newer.clone().filter(|_| declared.lock.is_none()),
        }
    }

    /// Whether locks fix every version, so that constraints choose none.
    pub const fn is_locked(&self) -> bool {
        self.lock.is_some() || (self.requirements.is_empty() && self.node.is_some())
    }

    /// SHA-256 in hex: equal inputs have equal digests.
    pub fn digest(&self) -> String {
        let mut parts = vec![self.requirements.as_str(), self.lock.as_deref().unwrap_or_default()];
        for RequiredPython { file, clauses } in &self.python {
            parts.push(file.as_str());
            parts.extend(
                clauses
                    .iter()
                    .flat_map(|clause| [clause.operator.as_str(), clause.version.as_str()]),
            );
        }
        // Input without this part has the digest that older versions gave it.
        if let Some(node) = &self.node {
            parts.extend([NODE_LOCK_FILE, node.as_str()]);
        }
        if !self.environments.is_empty() {
            parts.push(PYTHON_LOCK_FILE);
            parts.extend(self.environments.iter().map(String::as_str));
        }
        if let Some(moment) = &self.exclude_newer {
            parts.extend(["exclude-newer", moment.as_str()]);
        }
        hash(&parts)
    }

    /// The declaration that a builder installs. Errors: the input was not made by [`Input::of`].
    pub fn declaration(&self) -> Result<Declaration, Vec<Finding>> {
        let read = requirements_txt::read("requirements", self.requirements.as_bytes());
        if !read.findings.is_empty() {
            return Err(read.findings);
        }
        let lock = match &self.lock {
            Some(text) if text.is_empty() => Some(Lock::empty()),
            Some(text) => Some(Lock::read("lock", text.as_bytes())?),
            None => None,
        };
        let node = self
            .node
            .as_ref()
            .map(|text| NodeLock::read(text.as_bytes()))
            .transpose()?;
        Ok(Declaration {
            source: Source::Requirements("requirements".to_owned()),
            python: read.lines.into_iter().map(|line| line.requirement).collect(),
            lock,
            node: node.map(|lock| NodeDeclaration {
                source: NODE_LOCK_FILE.to_owned(),
                // The text is for a message; the skill's own declaration has the source.
                names: Vec::new(),
                lock,
            }),
            // Without a lock nothing is requested.
            open_node: None,
            requires_python: self.python.clone(),
            environments: self.environments()?,
            exclude_newer: self.exclude_newer()?,
            imports: BTreeMap::new(),
            findings: Vec::new(),
        })
    }

    fn environments(&self) -> Result<Vec<Marker>, Vec<Finding>> {
        let read = self.environments.iter().map(|text| Marker::parse(text));
        read.collect::<Result<_, _>>()
            .map_err(|why| unreadable("environments", why))
    }

    fn exclude_newer(&self) -> Result<Option<String>, Vec<Finding>> {
        let read = self.exclude_newer.as_deref().map(moment::read);
        read.transpose().map_err(|why| unreadable("excludeNewer", why))
    }
}

/// A part of an input that this process cannot read: another version wrote it.
fn unreadable(part: &str, why: String) -> Vec<Finding> {
    vec![Finding::new(FindingKind::Lock, part, 0, why, "build it again")]
}

/// A request to a builder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The declared packages.
    pub input: Input,
    /// Constraints of the runtime, as in its manifest.
    pub constraints: Vec<String>,
    /// The last day whose files may be chosen, as in its manifest. Absent without, as parts of the input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclude_newer: Option<String>,
    /// The image that the environment is added to, by digest.
    pub base: String,
}

impl Request {
    /// What may be chosen. Errors: it cannot be read.
    pub fn rules(&self) -> Result<Rules, String> {
        Rules::read(&self.constraints, false)?.excluding_newer(self.exclude_newer.as_deref())
    }

    /// The key. Errors: the constraints cannot be read.
    pub fn key(&self) -> Result<EnvironmentKey, String> {
        let rules = self.rules()?;
        let lock = self.input.lock.as_deref().filter(|text| !text.is_empty());
        let lock = lock.and_then(|text| Lock::read("lock", text.as_bytes()).ok());
        let is_fixed = self.input.is_locked() && !lock.is_some_and(|lock| rules.exclude_any(lock.pins()));
        Ok(EnvironmentKey::of(&self.input.digest(), is_fixed, &rules, &self.base))
    }
}

/// The key of an environment of a cluster: 32 hex digits. Equal for two skills with equal locks at runtimes of one image. One that is
/// made of a label or an argument is unchecked, and names no environment if it has another form.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EnvironmentKey(String);

impl EnvironmentKey {
    /// The key over the declared packages, the base image and, unless locks fix all versions and the runtime excludes none of them
    /// (`is_fixed`), what the runtime allows.
    pub fn of(digest: &str, is_fixed: bool, rules: &Rules, base: &str) -> Self {
        let constraints = if is_fixed { String::new() } else { rules.choice_text() };
        let mut key = hash(&[&FORMAT.to_string(), digest, &constraints, base]);
        key.truncate(KEY_DIGITS);
        Self(key)
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is one that [`EnvironmentKey::of`] could have made.
    fn is_plausible(&self) -> bool {
        self.0.len() == KEY_DIGITS && self.0.bytes().all(|byte| byte.is_ascii_hexdigit())
    }
}

impl From<&str> for EnvironmentKey {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Display for EnvironmentKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

fn hash(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hex(&hash.finalize())
}

/// The state of an environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvironmentStatus {
    /// The state.
    pub state: State,
    /// The reason, and what to do; for people.
    pub message: String,
    /// The environment, once it is built.
    pub environment: Option<EnvironmentImage>,
    /// Whether some of the packages are left out, as the message explains.
    pub is_partial: bool,
    /// When the state was reached, seconds since the Unix epoch.
    pub since: i64,
    /// When it was last asked for, in the same unit; rounded, so that it changes seldom.
    pub used: i64,
}

/// An environment in an image.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EnvironmentImage {
    /// The image, by digest.
    pub image: String,
    /// Its folder there: a virtual environment.
    pub home: String,
}

impl EnvironmentImage {
    /// Whether a container may be started with it: a digest, and a folder of its own.
    pub fn is_plausible(&self) -> bool {
        let digest = self.image.rsplit_once("@sha256:").map(|(_, digest)| digest);
        digest.is_some_and(|digest| digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()))
            && self.home.starts_with('/')
            && !self.home.split('/').any(|part| part == "..")
            && !self.home.contains([':', '\0', '\n'])
    }
}

/// A status as written in the ConfigMap.
#[derive(Serialize, Deserialize)]
struct StatusLine {
    state: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    message: String,
    #[serde(default, flatten, skip_serializing_if = "Option::is_none")]
    environment: Option<EnvironmentImage>,
    #[serde(default, rename = "partial", skip_serializing_if = "is_false")]
    is_partial: bool,
    #[serde(default)]
    since: i64,
    #[serde(default)]
    used: i64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it over so")]
const fn is_false(value: &bool) -> bool {
    !*value
}

/// The statuses of an installation, by key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EnvironmentStatuses(pub BTreeMap<EnvironmentKey, EnvironmentStatus>);

impl EnvironmentStatuses {
    /// Reads the statuses of another process; lines that cannot be read are skipped.
    pub fn read<'a>(lines: impl IntoIterator<Item = (&'a String, &'a String)>) -> Self {
        let read = |text: &str| {
            let written: StatusLine = serde_json::from_str(text).ok()?;
            let state = State::of_word(&written.state)?;
            let environment = written.environment.filter(EnvironmentImage::is_plausible);
            // A ready status needs an environment that a container can be started with.
            (state != State::Ready || environment.is_some()).then_some(EnvironmentStatus {
                state,
                message: written.message,
                environment,
                is_partial: written.is_partial,
                since: written.since,
                used: written.used,
            })
        };
        let lines = lines
            .into_iter()
            .map(|(key, text)| (EnvironmentKey::from(key.as_str()), text));
        let known = lines.filter(|(key, _)| key.is_plausible());
        Self(known.filter_map(|(key, text)| Some((key, read(text)?))).collect())
    }

    /// The statuses as lines, one for each key.
    pub fn lines(&self) -> BTreeMap<String, String> {
        let write = |status: &EnvironmentStatus| {
            let written = StatusLine {
                state: status.state.to_string(),
                message: status.message.clone(),
                environment: status.environment.clone(),
                is_partial: status.is_partial,
                since: status.since,
                used: status.used,
            };
            // Serializing strings and numbers does not fail.
            serde_json::to_string(&written).unwrap_or_default()
        };
        self.0
            .iter()
            .map(|(key, status)| (key.to_string(), write(status)))
            .collect()
    }

    /// The status of a key.
    pub fn get(&self, key: &EnvironmentKey) -> Option<&EnvironmentStatus> {
        self.0.get(key)
    }
}

#[cfg(test)]
#[path = "environment_tests.rs"]
mod tests;
