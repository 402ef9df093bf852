//! The packages that a skill declares, from the first declaration of this list that is present.
//!
//! ```text
//! requirements.lock, pylock.toml ─ wins over the versions of what is declared
//! package-lock.json ─ fixes packages of Node, which are declared beside those of Python (`node`)
//! `spec.packages` (a list, or the standard environment) ▶ frontmatter `packages` ▶ requirements.txt, scripts/requirements.txt ▶ script blocks (PEP 723) ▶ the standard environment, by imports
//! ```
//!
//! Only that declaration counts: a skill that declares packages gets exactly those.

use std::collections::BTreeMap;

use knack_skill::model::{AskedPackages, SkillFile};
use serde_json::Value;

use crate::finding::{Finding, FindingKind};
use crate::frontmatter::FrontmatterPackages;
use crate::imports::{self, Import, MAX_SCRIPTS};
use crate::lock::{LOCK_FILE, Lock};
use crate::marker::{Marker, allows};
use crate::node::{self, NODE_SPEC_FIELD, NodeDeclaration};
use crate::pylock::{self, PYTHON_LOCK_FILE};
use crate::requirement::Requirement;
use crate::requirements_txt::{self, help_of};
use crate::rules::Versions;
use crate::{MAX_PACKAGES, other_locks, script, standard, version};

/// Files of pip requirements that are read.
const REQUIREMENTS: [&str; 2] = ["requirements.txt", "scripts/requirements.txt"];

/// Files with locks, the first of which counts.
const LOCKS: [&str; 2] = [LOCK_FILE, PYTHON_LOCK_FILE];

/// Most markers of a lock in a message.
const MAX_TOLD: usize = 4;

/// The standard environment in messages.
const STANDARD_SHOWN: &str = "standard environment";

/// The field of a Skill manifest.
const SPEC_FIELD: &str = "spec.packages.python";

/// The help for a skill that asks for the standard environment and lists packages.
const ONE_OF_BOTH: &str = "set one of the two; packages that are listed can be those of the standard environment too";

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
    /// Versions of Python that scripts ask for, by file: operator and version.
    pub requires_python: Vec<(String, Vec<(String, String)>)>,
    /// Interpreters that `pylock.toml` is for (`environments`): at least one marker holds. Empty: for all.
    pub environments: Vec<Marker>,
    /// Imports of the skill's scripts, by file.
    pub imports: BTreeMap<String, Vec<Import>>,
    /// Declarations that are refused or have no effect.
    pub findings: Vec<Finding>,
}

impl Declaration {
    /// Whether the skill needs an environment.
    pub fn wants_environment(&self) -> bool {
        self.source != Source::Nothing || self.node.is_some()
    }

    /// Whether the author declared packages: inferred packages may be missing, declared ones may not.
    pub fn is_declared(&self) -> bool {
        self.declares_python() || self.node.is_some()
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
        node.is_some_and(|node| !node.lock.packages().is_empty())
    }

    /// The place of the declaration in messages.
    pub fn shown_source(&self) -> String {
        match &self.node {
            None => self.source.shown(),
            Some(node) if self.source == Source::Nothing => node.source.clone(),
            // A list of the manifest says that none of Python are wanted.
            Some(node) if self.source == Source::Spec && node.source == NODE_SPEC_FIELD && self.python.is_empty() => {
                node.source.clone()
            }
            // The frontmatter says it of both.
            Some(node) if self.source == Source::Frontmatter && node.source.starts_with("packages.node") => {
                self.source.shown()
            }
            Some(node) => format!("{}; {}", self.source.shown(), node.source),
        }
    }

    /// Whether packages of Python are declared by the author.
    pub fn declares_python(&self) -> bool {
        !matches!(self.source, Source::Nothing | Source::Inferred | Source::OfRuntime)
    }

    /// Why a Python of a version (`3.11.2`) on a machine (`x86_64`) cannot run the scripts; `None` if it can.
    pub fn python_refused(&self, version: &str, machine: &str) -> Option<String> {
        if let Some((file, clauses)) = self
            .requires_python
            .iter()
            .find(|(_, clauses)| !allows(clauses, version))
        {
            let wanted: Vec<String> = clauses
                .iter()
                .map(|(operator, wanted)| format!("{operator}{wanted}"))
                .collect();
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
        let told: Vec<String> = all.iter().take(MAX_TOLD).map(ToString::to_string).collect();
        let more = if all.len() > MAX_TOLD { "; …" } else { "" };
        Some(format!(
            "environments of {PYTHON_LOCK_FILE} ({}{more}) has none for Python {version} on {machine}, which is here; lock the \
             packages for it too, or write {LOCK_FILE} with knack skill lock",
            told.join("; ")
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

    /// The requirements as a file, in one form: equal declarations have equal texts.
    pub fn requirements_text(&self) -> String {
        text_of(self.python.iter())
    }

    /// The same of those that are left to the interpreter.
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

/// Reads the packages that a skill declares: in its files, or in a manifest, whose list replaces them. No input panics.
pub fn declare(files: &BTreeMap<String, SkillFile>, spec: Option<&AskedPackages>) -> Declaration {
    let mut declared = stated(files, spec);
    declared.imports = imports_of(files);
    if declared.source == Source::Nothing && !declared.is_refused() {
        infer(&mut declared);
    }
    declared
}

/// The same without the imports of scripts, so nothing is inferred: no Python is parsed.
pub fn stated(files: &BTreeMap<String, SkillFile>, spec: Option<&AskedPackages>) -> Declaration {
    let front = FrontmatterPackages::of(files);
    let mut declared = stated_of_python(files, spec, front.as_ref());
    declared.node = node::declared(files, (spec, front.as_ref()), &mut declared.findings);
    declared
}

fn stated_of_python(
    files: &BTreeMap<String, SkillFile>,
    spec: Option<&AskedPackages>,
    front: Option<&FrontmatterPackages<'_>>,
) -> Declaration {
    let mut findings = Vec::new();
    let blocks = scripts(files);
    let requires_python = blocks.iter().filter_map(|(file, block)| {
        let clauses = block.as_ref().ok()?.requires_python.clone();
        (!clauses.is_empty()).then(|| ((*file).to_owned(), clauses))
    });
    let requires_python = requires_python.collect();
    let (source, python) = match spec {
        Some(asked) if asked.standard && asked.python.is_empty() => (Source::Standard, Vec::new()),
        Some(asked) => (Source::Spec, of_spec(asked, &mut findings)),
        None => requirements(files, front, blocks, &mut findings),
    };
    let mut declared = Declaration {
        source,
        python,
        lock: None,
        node: None,
        requires_python,
        environments: Vec::new(),
        imports: BTreeMap::new(),
        findings,
    };
    if declared.python.len() > MAX_PACKAGES {
        let text = format!("{} requirements, more than {MAX_PACKAGES}", declared.python.len());
        let source = declared.source.shown();
        declared.findings.push(Finding::new(
            FindingKind::TooMany,
            &source,
            0,
            text,
            "declare what the scripts import",
        ));
        declared.python.clear();
    }
    add_lock(files, &mut declared);
    let is_alone = declared.source == Source::Nothing && !declared.is_refused();
    // Beside the standard environment neither lock counts, which is reported of both.
    let has_other = declared.source != Source::Standard && files.contains_key(LOCK_FILE);
    declared
        .findings
        .extend(other_locks::findings(files, is_alone, has_other));
    declared
}

fn requirements(
    files: &BTreeMap<String, SkillFile>,
    front: Option<&FrontmatterPackages<'_>>,
    blocks: Vec<Block<'_>>,
    findings: &mut Vec<Finding>,
) -> (Source, Vec<Requirement>) {
    if let Some(front) = front {
        return frontmatter(front, findings);
    }
    let is_there = |file: &&str| files.contains_key(*file);
    if let Some(file) = REQUIREMENTS.into_iter().find(is_there) {
        let read = requirements_txt::read(file, &files[file].bytes);
        findings.extend(read.findings);
        let listed: Vec<Requirement> = read.lines.into_iter().map(|line| line.requirement).collect();
        // A file of comments declares that there are no packages.
        return (Source::Requirements(file.to_owned()), listed);
    }
    union(blocks, findings)
}

/// The list of a manifest.
fn of_spec(asked: &AskedPackages, findings: &mut Vec<Finding>) -> Vec<Requirement> {
    let mut read = Vec::new();
    if asked.standard {
        let (field, text) = (
            "spec.packages.standard",
            "it cannot be combined with a list in spec.packages.python",
        );
        findings.push(Finding::new(FindingKind::Metadata, field, 0, text, ONE_OF_BOTH));
    }
    for (index, text) in asked.python.iter().enumerate() {
        match Requirement::parse(text) {
            Ok(requirement) => read.push(requirement),
            Err((kind, why)) => {
                let field = format!("{SPEC_FIELD}[{index}]");
                findings.push(Finding::new(kind, &field, 0, why, help_of(kind)));
            }
        }
    }
    read
}

/// `packages.python` of the frontmatter: a skill that declares only packages of Node gets none of Python.
fn frontmatter(front: &FrontmatterPackages<'_>, findings: &mut Vec<Finding>) -> (Source, Vec<Requirement>) {
    let Some(members) = front.packages.as_object() else {
        findings.push(front.wrong("packages", "it must be a mapping"));
        return (Source::Frontmatter, Vec::new());
    };
    for key in members
        .keys()
        .filter(|key| !["python", "node", "standard"].contains(&key.as_str()))
    {
        findings.push(front.wrong("packages", &format!("unknown key {}", crate::finding::shown(key))));
    }
    let texts = front.list("python", findings).unwrap_or_default();
    match members.get("standard") {
        None | Some(Value::Null | Value::Bool(false)) => {}
        Some(Value::Bool(true)) if texts.is_empty() => return (Source::Standard, Vec::new()),
        Some(Value::Bool(true)) => {
            let text = "it cannot be combined with a list in packages.python";
            findings.push(front.wrong("packages.standard", text));
        }
        Some(_) => findings.push(front.wrong("packages.standard", "it must be true or false")),
    }
    (
        Source::Frontmatter,
        front.read(texts, Requirement::parse, help_of, findings),
    )
}

/// The block of a script, with the name of its file.
type Block<'a> = (&'a str, Result<script::Metadata, Vec<Finding>>);

fn scripts(files: &BTreeMap<String, SkillFile>) -> Vec<Block<'_>> {
    let blocks = python_files(files).map(|(file, text)| Some((file, script::read(file, text)?)));
    blocks.flatten().collect()
}

/// The requirements of all scripts' blocks.
fn union(blocks: Vec<Block<'_>>, findings: &mut Vec<Finding>) -> (Source, Vec<Requirement>) {
    let mut from: Vec<String> = Vec::new();
    let mut union: Vec<(Requirement, &str)> = Vec::new();
    for (file, block) in blocks {
        from.push(file.to_owned());
        let metadata = match block {
            Ok(metadata) => metadata,
            Err(refused) => {
                findings.extend(refused);
                continue;
            }
        };
        for requirement in metadata.dependencies {
            if let Some((other, elsewhere)) = union.iter().find(|(other, _)| exclude_each_other(other, &requirement)) {
                let text =
                    format!("{requirement} here and {other} in {elsewhere} conflict; a skill has one environment");
                findings.push(Finding::new(FindingKind::Conflict, file, 0, text, "make the two equal"));
            } else if !union.iter().any(|(other, _)| *other == requirement) {
                union.push((requirement, file));
            }
        }
    }
    if from.is_empty() {
        return (Source::Nothing, Vec::new());
    }
    (
        Source::Scripts(from),
        union.into_iter().map(|(requirement, _)| requirement).collect(),
    )
}

/// Two exact versions of one package. Other conflicts show when versions are chosen.
fn exclude_each_other(one: &Requirement, other: &Requirement) -> bool {
    let versions = one.pinned().zip(other.pinned());
    one.name == other.name && one.marker == other.marker && versions.is_some_and(|(one, other)| one != other)
}

fn add_lock(files: &BTreeMap<String, SkillFile>, declared: &mut Declaration) {
    let mut there = LOCKS.into_iter().filter_map(|name| Some((name, files.get(name)?)));
    if declared.source == Source::Standard {
        declared.lock = standard::lock().cloned();
        for (name, _) in there {
            let text = "it has no effect: the standard environment has a lock of its own";
            let help = "declare the packages instead of packages.standard, or remove the lock";
            declared
                .findings
                .push(Finding::new(FindingKind::NotInstalled, name, 0, text, help));
        }
        return;
    }
    let Some((name, file)) = there.next() else {
        return add_own_hashes(files, declared);
    };
    let lock = match read_lock(name, &file.bytes, declared) {
        Ok(lock) => lock,
        Err(refused) => return declared.findings.extend(refused),
    };
    for requirement in declared
        .python
        .iter()
        .filter(|requirement| requirement.applies() == Some(true) && !lock.has(&requirement.name))
    {
        let text = format!("{} is declared but not in the lock", requirement.name);
        let help = match name {
            PYTHON_LOCK_FILE => {
                "regenerate it with the tool that wrote it, or write requirements.lock with knack skill lock"
            }
            _ => "regenerate the lock with knack skill lock",
        };
        declared
            .findings
            .push(Finding::new(FindingKind::Lock, name, 0, text, help));
    }
    if declared.source == Source::Nothing {
        declared.source = Source::Lock(name);
    }
    declared.findings.extend(not_met(name, &lock, &declared.python));
    declared.lock = Some(lock);
}

/// Requirements that allow none of the versions that a lock has for them in a sandbox. What is installed is in the lock.
fn not_met(file: &str, lock: &Lock, requirements: &[Requirement]) -> Vec<Finding> {
    let wanted = requirements.iter().filter(|requirement| requirement.may_apply(None));
    let findings = wanted.filter_map(|requirement| {
        let pins = lock.pins().iter();
        let pins = pins.filter(|pin| pin.name == requirement.name && pin.may_apply(None));
        let versions: Vec<&str> = pins.filter_map(Requirement::pinned).collect();
        let is_refused = |version: &&str| version::allows(&requirement.clauses, version) == Some(false);
        if versions.is_empty() || !versions.iter().all(is_refused) {
            return None;
        }
        let text = format!(
            "{requirement} is declared, and the lock has {}, which is installed",
            versions.join(", ")
        );
        let help = "regenerate the lock with knack skill lock, or change the declaration";
        Some(Finding::new(FindingKind::NotInstalled, file, 0, text, help))
    });
    findings.take(requirements_txt::MAX_FINDINGS).collect()
}

/// A file of requirements that fixes every version with its hashes, as pip's hash-checking mode needs it, is its own lock.
fn add_own_hashes(files: &BTreeMap<String, SkillFile>, declared: &mut Declaration) {
    let Source::Requirements(file) = &declared.source else {
        return;
    };
    let Some(bytes) = files.get(file).map(|file| &file.bytes) else {
        return;
    };
    let read = requirements_txt::read(file, bytes);
    if read.lines.iter().all(|line| line.hashes.is_empty()) {
        return;
    }
    let is_fixed = |line: &&requirements_txt::Line| !line.hashes.is_empty() && line.requirement.pinned().is_some();
    let open: Vec<_> = read.lines.iter().filter(|line| !is_fixed(line)).collect();
    let Some(first) = open.first() else {
        if read.findings.is_empty() {
            declared.lock = Some(Lock::of(&read.lines));
        }
        return;
    };
    let text = format!(
        "hashes are not checked: {} of {} requirements, the first of them {}, have no exact version with a hash",
        open.len(),
        read.lines.len(),
        first.requirement.name
    );
    let help = "give every requirement an exact version and a hash, or write requirements.lock with knack skill lock";
    let finding = Finding::new(FindingKind::NotInstalled, file, first.number, text, help);
    declared.findings.push(finding);
}

fn read_lock(name: &str, bytes: &[u8], declared: &mut Declaration) -> Result<Lock, Vec<Finding>> {
    if name == LOCK_FILE {
        let counts = |requirement: &Requirement| requirement.applies() == Some(true);
        return match declared.source {
            Source::Nothing => Lock::read(name, bytes),
            _ if declared.python.iter().any(counts) => Lock::read(name, bytes),
            _ => Lock::read_or_empty(name, bytes),
        };
    }
    let read = pylock::read(bytes)?;
    if !read.head.requires_python.is_empty() {
        declared
            .requires_python
            .push((name.to_owned(), read.head.requires_python));
    }
    declared.environments = read.head.environments;
    Ok(read.lock)
}

/// The standard environment, if a script imports one of its packages.
fn infer(declared: &mut Declaration) {
    let Some(lock) = standard::lock() else { return };
    let foreign = declared
        .imports
        .values()
        .flatten()
        .filter(|import| !import.is_standard());
    if foreign.into_iter().any(|import| lock.has(&import.package())) {
        declared.source = Source::Inferred;
        declared.lock = Some(lock.clone());
    }
}

/// Python files that are read, in the order of their names.
pub(crate) fn python_files(files: &BTreeMap<String, SkillFile>) -> impl Iterator<Item = (&str, &str)> {
    let scripts = files.iter().filter(|(path, _)| is_python(path));
    let texts = scripts.filter_map(|(path, file)| Some((path.as_str(), std::str::from_utf8(&file.bytes).ok()?)));
    texts.take(MAX_SCRIPTS)
}

/// By the name's ending as Python compares it: case-sensitive.
pub(crate) fn is_python(path: &str) -> bool {
    path.strip_suffix(".py").is_some_and(|stem| !stem.is_empty())
}

fn imports_of(files: &BTreeMap<String, SkillFile>) -> BTreeMap<String, Vec<Import>> {
    let all = python_files(files).map(|(file, text)| (file.to_owned(), imports::of_source(text)));
    all.filter(|(_, found)| !found.is_empty()).collect()
}

#[cfg(test)]
#[path = "declare_tests.rs"]
mod tests;
