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

use crate::declaration::{Declaration, SPEC_FIELD, Source};
use crate::finding::{Finding, FindingKind};
use crate::frontmatter::FrontmatterPackages;
use crate::imports::{self, Import, MAX_SCRIPTS};
use crate::lock::LOCK_FILE;
use crate::node::{self, NodePackages};
use crate::provider::GivenPackages;
use crate::requirement::Requirement;
use crate::requirements_txt::{self, MAX_FINDINGS, help_of};
use crate::version_clause::RequiredPython;
use crate::{MAX_PACKAGES, declared_lock, other_locks, script, standard};

/// Files of pip requirements that are read.
const REQUIREMENTS: [&str; 2] = ["requirements.txt", "scripts/requirements.txt"];

/// The help for a skill that asks for the standard environment and lists packages.
const ONE_OF_BOTH: &str = "set one of the two; packages that are listed can be those of the standard environment too";

/// Reads the packages that a skill declares: in its files, or in a manifest, whose list replaces them. No input panics.
pub fn declare(files: &BTreeMap<String, SkillFile>, spec: Option<&AskedPackages>) -> Declaration {
    let mut declared = stated(files, spec);
    declared.imports = imports_of(files);
    if declared.source == Source::Nothing && !declared.is_refused() {
        infer(&mut declared);
    }
    declared
}

/// The packages that a skill states, without the imports of its scripts: no Python is parsed.
pub fn stated(files: &BTreeMap<String, SkillFile>, spec: Option<&AskedPackages>) -> Declaration {
    let front = FrontmatterPackages::of(files);
    let mut declared = stated_of_python(files, spec, front.as_ref());
    match node::declared(files, (spec, front.as_ref()), &mut declared.findings) {
        Some(NodePackages::Locked(node)) => declared.node = Some(node),
        Some(NodePackages::Open(open)) => declared.open_node = Some(open),
        None => {}
    }
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
        (!clauses.is_empty()).then(|| RequiredPython {
            file: (*file).to_owned(),
            clauses,
        })
    });
    let requires_python = requires_python.collect();
    let settings = Settings::of(&blocks);
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
        open_node: None,
        requires_python,
        environments: Vec::new(),
        exclude_newer: None,
        imports: BTreeMap::new(),
        findings,
    };
    if declared.python.len() > MAX_PACKAGES {
        let text = format!("more than {MAX_PACKAGES} requirements");
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
    let of_scripts = declared_lock::add(files, &mut declared);
    if matches!(declared.source, Source::Scripts(_)) {
        declared.exclude_newer = settings.exclude_newer;
        // The locks of scripts were made with their settings.
        if of_scripts.is_empty() {
            declared.findings.extend(settings.ignored);
        }
    }
    let is_alone = declared.source == Source::Nothing && !declared.is_refused();
    // Beside the standard environment neither lock counts, which is reported of both.
    let has_other = declared.source != Source::Standard && files.contains_key(LOCK_FILE);
    declared
        .findings
        .extend(other_locks::findings(files, is_alone, has_other, &of_scripts));
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

/// What the blocks of scripts say besides their requirements.
struct Settings {
    /// The earliest moment, since a skill has one environment.
    exclude_newer: Option<String>,
    ignored: Vec<Finding>,
}

impl Settings {
    fn of(blocks: &[Block<'_>]) -> Self {
        let all = || blocks.iter().filter_map(|(_, block)| block.as_ref().ok());
        let ignored = all().flat_map(|metadata| &metadata.ignored);
        Self {
            exclude_newer: all().filter_map(|metadata| metadata.exclude_newer.clone()).min(),
            ignored: ignored.take(MAX_FINDINGS).cloned().collect(),
        }
    }
}

/// The requirements of all scripts' blocks. Of more than a skill may have, and of what is wrong with them, the first ones: a folder has
/// room for hundreds of thousands.
fn union(blocks: Vec<Block<'_>>, findings: &mut Vec<Finding>) -> (Source, Vec<Requirement>) {
    let mut from: Vec<String> = Vec::new();
    let mut union: Vec<(Requirement, &str)> = Vec::new();
    for (file, block) in blocks {
        from.push(file.to_owned());
        let metadata = match block {
            Ok(metadata) => metadata,
            Err(refused) => {
                let room = MAX_FINDINGS.saturating_sub(findings.len());
                findings.extend(refused.into_iter().take(room));
                continue;
            }
        };
        for requirement in metadata.dependencies {
            if union.len() > MAX_PACKAGES || findings.len() >= MAX_FINDINGS {
                break;
            }
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

/// The standard environment, if a script imports one of its packages.
fn infer(declared: &mut Declaration) {
    let Some(lock) = standard::lock() else { return };
    let foreign = declared
        .imports
        .values()
        .flatten()
        .filter(|import| !import.is_standard());
    let given: GivenPackages<'_> = lock.packages().iter().map(|(name, _)| name.as_str()).collect();
    let mut needs = foreign.flat_map(Import::needs);
    if needs.any(|need| need.provider(&given).is_some()) {
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
