//! The packages of a skill: which declaration counts, and what it says.

use std::collections::BTreeMap;

use crate::finding::Finding;
use crate::imports::Import;
use crate::lock::{LOCK_FILE, Lock};
use crate::marker::Marker;
use crate::node::{NODE_SPEC_FIELD, NodeDeclaration, NodeRequirements};
use crate::provider::GivenPackages;
use crate::pylock::PYTHON_LOCK_FILE;
use crate::requirement::Requirement;
use crate::rules::Versions;
use crate::standard;
use crate::version_clause::RequiredPython;

/// Most markers of a lock in a message.
const MAX_TOLD: usize = 4;

/// The standard environment in messages.
const STANDARD_SHOWN: &str = "standard environment";

/// The field of a Skill manifest.
pub(crate) const SPEC_FIELD: &str = "spec.packages.python";

/// The declaration that counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Source {
    /// `spec.packages` of the manifest.
    Spec,
    /// `packages` in the frontmatter.
    Frontmatter,
    /// A file of requirements.
    Requirements(String),
    /// Blocks of these scripts.
    Scripts(Vec<String>),
    /// This lock alone.
    Lock(&'static str),
    /// The standard environment, by `spec.packages.standard` of the manifest or `packages.standard` in the frontmatter.
    Standard,
    /// The standard environment, for the imports of the scripts.
    Inferred,
    /// The standard environment, which the runtime gives to skills that declare nothing.
    OfRuntime,
    /// Nothing.
    #[default]
    Nothing,
}

impl Source {
    /// The source in messages.
    pub fn shown(&self) -> String {
        match self {
            Self::Spec => SPEC_FIELD.to_owned(),
            Self::Frontmatter => "packages in SKILL.md".to_owned(),
            Self::Requirements(file) => file.clone(),
            Self::Scripts(files) => format!("script blocks of {}", files.join(", ")),
            Self::Lock(file) => (*file).to_owned(),
            Self::Standard => STANDARD_SHOWN.to_owned(),
            Self::OfRuntime => format!("{STANDARD_SHOWN}, by the runtime"),
            Self::Inferred => "inferred from imports: the standard environment".to_owned(),
            Self::Nothing => "nothing declared".to_owned(),
        }
    }
}

/// The packages that a skill declares.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Declaration {
    /// The declaration that counts.
    pub source: Source,
    /// Requirements of Python packages; empty where only a lock or nothing is there.
    pub python: Vec<Requirement>,
    /// The skill's own lock, or that of the standard environment.
    pub lock: Option<Lock>,
    /// Packages of Node, by their lock.
    pub node: Option<NodeDeclaration>,
    /// Packages of Node without a lock.
    pub open_node: Option<NodeRequirements>,
    /// Versions of Python that files ask for.
    pub requires_python: Vec<RequiredPython>,
    /// Interpreters that `pylock.toml` is for (`environments`): at least one marker holds. Empty: for all.
    pub environments: Vec<Marker>,
    /// The moment after which no file that came to the index may be chosen, as blocks of scripts ask for it: UTC, as rules have it.
    pub exclude_newer: Option<String>,
    /// Imports of the skill's scripts, by file.
    pub imports: BTreeMap<String, Vec<Import>>,
    /// Declarations that are refused or have no effect.
    pub findings: Vec<Finding>,
}

impl Declaration {
    /// Whether the skill needs an environment.
    pub fn wants_environment(&self) -> bool {
        self.source != Source::Nothing || self.declares_node()
    }

    /// Whether the author declared packages: inferred packages may be missing, declared ones may not.
    pub fn is_declared(&self) -> bool {
        self.declares_python() || self.declares_node()
    }

    const fn declares_node(&self) -> bool {
        self.node.is_some() || self.open_node.is_some()
    }

    /// Whether there is anything to install: the packages of a lock, whatever is declared beside it.
    pub fn has_packages(&self) -> bool {
        let of_python = match &self.lock {
            Some(lock) => {
                let is_locked = lock.pins().iter().any(|pin| pin.may_apply(None));
                is_locked || self.left_to_python().next().is_some()
            }
            None => !self.python.is_empty(),
        };
        of_python || self.has_node_packages()
    }

    /// Whether a requirement may count for a Python of a version (`3.11.2`) on a machine (`x86_64`).
    pub fn may_require(&self, version: &str, machine: &str) -> bool {
        let mut all = self.python.iter();
        all.any(|requirement| requirement.may_count(version, machine))
    }

    /// The requirements that the lock lacks and that count under some Pythons alone: only with the interpreter is it known
    /// whether the lock is complete.
    pub(crate) fn left_to_python(&self) -> impl Iterator<Item = &Requirement> {
        let lock = self.lock.as_ref();
        let lacks = move |requirement: &&Requirement| lock.is_some_and(|lock| !lock.has(&requirement.name));
        let all = self.python.iter().filter(lacks);
        all.filter(|requirement| requirement.applies().is_none())
    }

    /// Whether packages of Node are among them.
    pub fn has_node_packages(&self) -> bool {
        let node = self.node.as_ref();
        self.open_node.is_some() || node.is_some_and(|node| !node.lock.packages().is_empty())
    }

    /// Names of packages of Node in messages: the declared ones.
    pub fn node_names(&self) -> Vec<String> {
        let open = self.open_node.iter().flat_map(|open| &open.dependencies);
        let locked = self.node.iter().flat_map(|node| &node.names).cloned();
        locked.chain(open.map(|one| one.name.clone())).collect()
    }

    /// The place of the declaration in messages.
    pub fn shown_source(&self) -> String {
        let of_lock = self.node.as_ref().map(|node| &node.source);
        match of_lock.or(self.open_node.as_ref().map(|open| &open.source)) {
            None => self.source.shown(),
            Some(node) if self.source == Source::Nothing => node.clone(),
            // A list of the manifest says that none of Python are wanted.
            Some(node) if self.source == Source::Spec && node == NODE_SPEC_FIELD && self.python.is_empty() => {
                node.clone()
            }
            // The frontmatter says it of both.
            Some(node) if self.source == Source::Frontmatter && node.starts_with("packages.node") => {
                self.source.shown()
            }
            Some(node) => format!("{}; {node}", self.source.shown()),
        }
    }

    /// Whether packages of Python are declared by the author.
    pub fn declares_python(&self) -> bool {
        !matches!(self.source, Source::Nothing | Source::Inferred | Source::OfRuntime)
    }

    /// Why a Python of a version (`3.11.2`) on a machine (`x86_64`) cannot run the scripts; `None` if it can.
    pub fn python_refused(&self, version: &str, machine: &str) -> Option<String> {
        let mut required = self.requires_python.iter();
        if let Some(RequiredPython { file, clauses }) = required.find(|required| !required.allows(version)) {
            let wanted: Vec<String> = clauses.iter().map(ToString::to_string).collect();
            let wanted = wanted.join(",");
            return Some(format!("{file} requires Python {wanted}, and {version} is here"));
        }
        let mut open = self.left_to_python();
        if let Some(missing) = open.find(|requirement| requirement.may_count(version, machine)) {
            return Some(format!(
                "{missing} is declared but not in the lock, and Python {version} on {machine} is here; regenerate the lock with \
                 knack skill lock under this Python"
            ));
        }
        let all = &self.environments;
        if all.is_empty() || all.iter().any(|marker| marker.may_hold(version, machine)) {
            return None;
        }
        let messages: Vec<String> = all.iter().take(MAX_TOLD).map(ToString::to_string).collect();
        let more = if all.len() > MAX_TOLD { "; …" } else { "" };
        Some(format!(
            "environments of {PYTHON_LOCK_FILE} ({}{more}) has none for Python {version} on {machine}, which is here; lock the \
             packages for it too, or write {LOCK_FILE} with knack skill lock",
            messages.join("; ")
        ))
    }

    /// Whether nothing is built because something is refused.
    pub fn is_refused(&self) -> bool {
        self.findings.iter().any(Finding::is_error)
    }

    /// The input of [`crate::rules::Rules`]. `None`: nothing is declared, or it is refused anyway.
    pub fn versions(&self) -> Option<Versions<'_>> {
        match &self.lock {
            _ if self.is_refused() => None,
            Some(lock) => Some(Versions::Locked(lock.pins())),
            None if self.python.is_empty() => None,
            None => Some(Versions::Open(&self.python)),
        }
    }

    /// Names of Python packages in messages: the required ones, else those of the lock, sorted.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = match (&self.source, &self.lock) {
            (Source::Standard | Source::Inferred | Source::OfRuntime, _) => {
                standard::names().map(str::to_owned).collect()
            }
            (Source::Lock(_), Some(lock)) => lock.packages().iter().map(|(name, _)| name.clone()).collect(),
            _ => self.python.iter().map(|requirement| requirement.name.clone()).collect(),
        };
        names.sort();
        names.dedup();
        names
    }

    /// The Python packages that scripts have: those that are required, and those of the lock.
    pub(crate) fn given(&self) -> GivenPackages<'_> {
        let required = self.python.iter().map(|requirement| requirement.name.as_str());
        let locked = self.lock.iter().flat_map(Lock::packages);
        required.chain(locked.map(|(name, _)| name.as_str())).collect()
    }

    /// The requirements as a file, in one form: equal declarations have equal texts.
    pub fn requirements_text(&self) -> String {
        text_of(self.python.iter())
    }

    /// What decides, besides the requirements and a runtime's rules, which versions are chosen: equal declarations have equal texts.
    pub fn choice_text(&self) -> Option<String> {
        let moment = self.exclude_newer.as_ref().filter(|_| self.lock.is_none());
        moment.map(|moment| format!("exclude-newer {moment}\n"))
    }

    /// The requirements that are left to the interpreter, as a text.
    pub(crate) fn left_to_python_text(&self) -> String {
        text_of(self.left_to_python())
    }
}

fn text_of<'r>(requirements: impl Iterator<Item = &'r Requirement>) -> String {
    let mut lines: Vec<String> = requirements.map(ToString::to_string).collect();
    lines.sort();
    lines.dedup();
    lines.iter().map(|line| format!("{line}\n")).collect()
}
