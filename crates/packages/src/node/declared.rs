//! The packages of Node that a skill declares, and their lock.

use std::collections::BTreeMap;

use knack_skill::model::{AskedPackages, SkillFile};
use serde_json::Value;

use super::dependency::Dependency;
use super::lock::{NODE_LOCK_FILE, NodeLock};
use super::package_json::{self, PACKAGE_JSON, help_of};
use crate::MAX_PACKAGES;
use crate::finding::{Finding, FindingKind};
use crate::frontmatter::FrontmatterPackages;

/// The packages of Node of a skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeDeclaration {
    /// The place of the declaration in messages.
    pub source: String,
    /// The declared names, sorted.
    pub names: Vec<String>,
    /// The packages that are installed; at least one.
    pub lock: NodeLock,
}

/// The declared packages, before a lock is made of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRequirements {
    /// The place of the declaration in messages.
    pub source: String,
    /// Names with ranges.
    pub dependencies: Vec<Dependency>,
    /// `overrides` of package.json.
    pub overrides: Option<Value>,
}

/// The field of a Skill manifest.
pub(crate) const NODE_SPEC_FIELD: &str = "spec.packages.node";

/// The declarations that replace package.json: a manifest's list and the frontmatter.
type Overriding<'a> = (Option<&'a AskedPackages>, Option<&'a FrontmatterPackages<'a>>);

/// The declared packages: of the manifest, else of the frontmatter, else of package.json. `None`: none. Errors: entries that
/// cannot be used.
pub fn requirements(
    files: &BTreeMap<String, SkillFile>,
    spec: Option<&AskedPackages>,
) -> Result<Option<NodeRequirements>, Vec<Finding>> {
    let requirements = requirements_of(files, (spec, FrontmatterPackages::of(files).as_ref()))?;
    Ok(requirements.filter(|requirements| !requirements.dependencies.is_empty()))
}

/// As [`requirements`]; a list without names is `Some` without dependencies.
fn requirements_of(
    files: &BTreeMap<String, SkillFile>,
    (spec, front): Overriding<'_>,
) -> Result<Option<NodeRequirements>, Vec<Finding>> {
    let mut findings = Vec::new();
    let listed = match spec.and_then(|asked| asked.node.as_ref()) {
        Some(texts) => Some((NODE_SPEC_FIELD.to_owned(), spec_dependencies(texts, &mut findings))),
        None => front.and_then(|front| {
            let dependencies = front_dependencies(front, &mut findings)?;
            Some((format!("packages.node in {}", front.name), dependencies))
        }),
    };
    if !findings.is_empty() {
        return Err(findings);
    }
    if let Some((source, mut dependencies)) = listed {
        dependencies.sort();
        dependencies.dedup();
        return Ok(Some(NodeRequirements {
            source,
            dependencies,
            overrides: None,
        }));
    }
    let Some(file) = files.get(PACKAGE_JSON) else {
        return Ok(None);
    };
    let read = package_json::read(&file.bytes)?;
    let requirements = NodeRequirements {
        source: PACKAGE_JSON.to_owned(),
        dependencies: read.dependencies,
        overrides: read.overrides,
    };
    // package.json may be there for other reasons.
    Ok(Some(requirements).filter(|requirements| !requirements.dependencies.is_empty()))
}

/// The list of a manifest.
fn spec_dependencies(texts: &[String], findings: &mut Vec<Finding>) -> Vec<Dependency> {
    if texts.len() > MAX_PACKAGES {
        findings.push(too_many(texts.len(), NODE_SPEC_FIELD, 0));
        return Vec::new();
    }
    let mut read = Vec::new();
    for (index, text) in texts.iter().enumerate() {
        match Dependency::parse(text) {
            Ok(dependency) => read.push(dependency),
            Err((kind, why)) => {
                let field = format!("{NODE_SPEC_FIELD}[{index}]");
                findings.push(Finding::new(kind, &field, 0, why, help_of(kind)));
            }
        }
    }
    read
}

fn too_many(count: usize, source: &str, line: usize) -> Finding {
    let text = format!("{count} packages, more than {MAX_PACKAGES}");
    Finding::new(
        FindingKind::TooMany,
        source,
        line,
        text,
        "declare what the scripts import",
    )
}

/// `packages.node` of the frontmatter; `None`: it is not there.
fn front_dependencies(front: &FrontmatterPackages<'_>, findings: &mut Vec<Finding>) -> Option<Vec<Dependency>> {
    let texts = front.list("node", findings)?;
    if texts.len() > MAX_PACKAGES {
        findings.push(too_many(texts.len(), front.name, front.line("packages.node")));
        return Some(Vec::new());
    }
    Some(front.read(texts, Dependency::parse, help_of, findings))
}

/// What a skill has of Node.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum NodePackages {
    /// The packages of its lock.
    Locked(NodeDeclaration),
    /// Declared ones, whose versions are not chosen.
    Open(NodeRequirements),
}

/// The packages that are installed for a skill; `None`: none.
pub(crate) fn declared(
    files: &BTreeMap<String, SkillFile>,
    over: Overriding<'_>,
    findings: &mut Vec<Finding>,
) -> Option<NodePackages> {
    let read = requirements_of(files, over);
    if let Ok(Some(requirements)) = &read
        && requirements.dependencies.is_empty()
    {
        return None;
    }
    let Some(file) = files.get(NODE_LOCK_FILE) else {
        return without_lock(read, findings);
    };
    let requirements = match read {
        Ok(requirements) => requirements,
        Err(found) => {
            findings.extend(found);
            return None;
        }
    };
    let lock = match NodeLock::read(&file.bytes) {
        Ok(lock) => lock,
        Err(found) => {
            findings.extend(found);
            return None;
        }
    };
    let stale = requirements.iter().flat_map(|requirements| &requirements.dependencies);
    let stale: Vec<Finding> = stale.filter_map(|dependency| stale_in(&lock, dependency)).collect();
    if !stale.is_empty() {
        findings.extend(stale);
        return None;
    }
    let (source, mut names) = match requirements {
        Some(requirements) => (
            requirements.source,
            requirements
                .dependencies
                .into_iter()
                .map(|dependency| dependency.name)
                .collect(),
        ),
        None => (
            NODE_LOCK_FILE.to_owned(),
            lock.root().keys().cloned().collect::<Vec<_>>(),
        ),
    };
    names.retain(|name| lock.top(name).is_some());
    names.dedup();
    (!lock.packages().is_empty()).then_some(NodePackages::Locked(NodeDeclaration { source, names, lock }))
}

/// Why a lock does not fit a dependency.
fn stale_in(lock: &NodeLock, dependency: &Dependency) -> Option<Finding> {
    let Dependency { name, range } = dependency;
    let made_for = lock.root().get(name);
    let text = match made_for {
        _ if lock.top(name).is_none() => format!("{name} is declared but not in the lock"),
        // A lock lists its requirements, unless a person has written it.
        None if lock.root().is_empty() => return None,
        None => format!("{name} is declared, but the lock was not generated for it"),
        Some(made_for) if range != "*" && made_for.trim() != range => {
            format!("{name} is declared as {range}, but the lock was generated for {made_for:?}")
        }
        Some(_) => return None,
    };
    let help = "regenerate the lock with knack skill lock";
    Some(Finding::new(FindingKind::Lock, NODE_LOCK_FILE, 0, text, help))
}

/// The file of a source.
fn file_of(source: &str) -> &str {
    source.strip_prefix("packages.node in ").unwrap_or(source)
}

/// What is declared where there is no lock. A package.json that cannot be used may be there for other reasons, so it is no error.
fn without_lock(
    read: Result<Option<NodeRequirements>, Vec<Finding>>,
    findings: &mut Vec<Finding>,
) -> Option<NodePackages> {
    match read {
        Ok(None) => None,
        Ok(Some(requirements)) => {
            findings.push(Finding::new(
                FindingKind::NotInstalled,
                file_of(&requirements.source),
                0,
                format!(
                    "packages of Node are declared without {NODE_LOCK_FILE}: nothing is installed, unless npm has chosen versions for \
                     knack skill packages --build on this laptop"
                ),
                "generate it with knack skill lock",
            ));
            Some(NodePackages::Open(requirements))
        }
        Err(found) => {
            let of_package_json = |mut finding: Finding| {
                if finding.file == PACKAGE_JSON {
                    finding.kind = FindingKind::NotInstalled;
                }
                finding
            };
            findings.extend(found.into_iter().map(of_package_json));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixture::files;

    fn locked(found: Option<NodePackages>) -> Option<NodeDeclaration> {
        match found {
            Some(NodePackages::Locked(found)) => Some(found),
            _ => None,
        }
    }

    fn declared(files: &BTreeMap<String, SkillFile>, findings: &mut Vec<Finding>) -> Option<NodeDeclaration> {
        locked(super::declared(
            files,
            (None, FrontmatterPackages::of(files).as_ref()),
            findings,
        ))
    }

    fn lock(root: &Value, names: &[&str]) -> String {
        let mut packages = json!({"": {"dependencies": root}});
        for name in names {
            packages[format!("node_modules/{name}")] =
                json!({"version": "1.0.0", "integrity": format!("sha512-{}==", "a".repeat(86))});
        }
        json!({"lockfileVersion": 3, "packages": packages}).to_string()
    }

    const FRONT: &str = "---\nname: x\npackages:\n  node: [\"a@^1\", \"@s/b\"]\n---\n";

    #[test]
    fn the_first_declaration_counts_and_a_lock_alone_is_one() {
        let json = "{\"dependencies\": {\"c\": \"^1\"}}";
        let front = lock(&json!({"a": "^1", "@s/b": "2"}), &["a", "@s/b", "deep"]);
        let package = lock(&json!({"c": "^1"}), &["c", "deep"]);
        for (list, source, names) in [
            (
                &[
                    ("SKILL.md", FRONT),
                    (PACKAGE_JSON, json),
                    (NODE_LOCK_FILE, front.as_str()),
                ][..],
                "packages.node in SKILL.md",
                &["@s/b", "a"][..],
            ),
            (
                &[("SKILL.md", "x"), (PACKAGE_JSON, json), (NODE_LOCK_FILE, &package)],
                PACKAGE_JSON,
                &["c"],
            ),
            (&[(NODE_LOCK_FILE, &package)], NODE_LOCK_FILE, &["c"]),
            (
                &[(PACKAGE_JSON, "{}"), (NODE_LOCK_FILE, &package)],
                NODE_LOCK_FILE,
                &["c"],
            ),
        ] {
            let mut findings = Vec::new();
            let found = declared(&files(list), &mut findings);
            assert_eq!(findings, [], "{list:?}");
            let found = found.unwrap();
            assert_eq!(
                (found.source.as_str(), found.names.as_slice()),
                (
                    source,
                    &names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()[..]
                )
            );
        }
    }

    /// In the place of what the files declare; the lock must be made for it.
    #[test]
    fn the_list_of_a_manifest_counts_alone() {
        let c = lock(&json!({"c": "^1"}), &["c", "deep"]);
        let json = "{\"dependencies\": {\"x\": \"^1\"}}";
        let list = [("SKILL.md", FRONT), (PACKAGE_JSON, json), (NODE_LOCK_FILE, c.as_str())];
        for (listed, list, names, expected) in [
            (&["c@^1"][..], &list[..], Some(&["c"][..]), None),
            (&[], &list, None, None),
            (
                &["a@^1", "c@^1"],
                &list,
                None,
                Some(
                    "package-lock.json: a is declared but not in the lock (regenerate the lock with knack skill lock)",
                ),
            ),
            (
                &["c@^2"],
                &list,
                None,
                Some("package-lock.json: c is declared as ^2, but the lock was generated for \"^1\""),
            ),
            (
                &["c@^1"],
                &list[..2],
                None,
                Some(
                    "spec.packages.node: packages of Node are declared without package-lock.json: nothing is installed, unless npm has chosen versions for knack skill packages --build on this laptop (generate it with knack skill lock)",
                ),
            ),
            (
                &["c", "d@file:../d"],
                &list,
                None,
                Some("spec.packages.node[1]: d comes from"),
            ),
        ] {
            let spec = AskedPackages {
                node: Some(listed.iter().map(|text| (*text).to_owned()).collect()),
                ..AskedPackages::default()
            };
            let (files, mut findings) = (files(list), Vec::new());
            let found = locked(super::declared(
                &files,
                (Some(&spec), FrontmatterPackages::of(&files).as_ref()),
                &mut findings,
            ));
            let source = found.as_ref().map(|found| found.source.as_str());
            assert_eq!(source, names.map(|_| NODE_SPEC_FIELD), "{listed:?}");
            let found: Option<Vec<&str>> = found
                .as_ref()
                .map(|found| found.names.iter().map(String::as_str).collect());
            assert_eq!(found.as_deref(), names, "{listed:?}");
            let actual = findings.first().map(ToString::to_string).unwrap_or_default();
            assert!(
                actual.starts_with(expected.unwrap_or_default()) && actual.is_empty() == expected.is_none(),
                "{listed:?}: {actual}"
            );
        }
        let none = AskedPackages::default();
        assert_eq!(
            requirements(&files(&list), Some(&none)).unwrap().unwrap().dependencies[0].name,
            "@s/b"
        );
        let empty = [
            ("SKILL.md", "---\npackages: {node: []}\n---\n"),
            (NODE_LOCK_FILE, c.as_str()),
        ];
        assert_eq!(declared(&files(&empty), &mut Vec::new()), None);
    }

    #[test]
    fn without_a_lock_versions_are_open_and_only_a_wrong_list_is_refused() {
        for (list, names, is_error) in [
            (&[("SKILL.md", FRONT)][..], &["@s/b", "a"][..], false),
            (&[(PACKAGE_JSON, "{\"dependencies\": {\"c\": \"^1\"}}")], &["c"], false),
            (
                &[(PACKAGE_JSON, "{\"dependencies\": {\"c\": \"file:../c\"}}")],
                &[],
                false,
            ),
            (&[(PACKAGE_JSON, "{")], &[], false),
            (&[("SKILL.md", "---\npackages: {node: x}\n---\n")], &[], true),
        ] {
            let (files, mut findings) = (files(list), Vec::new());
            let found = super::declared(&files, (None, FrontmatterPackages::of(&files).as_ref()), &mut findings);
            let found: Vec<String> = match found {
                Some(NodePackages::Open(found)) => found.dependencies.into_iter().map(|one| one.name).collect(),
                other => {
                    assert_eq!(other, None, "{list:?}");
                    Vec::new()
                }
            };
            assert_eq!(found, names, "{list:?}");
            assert_eq!(findings.len(), 1, "{list:?}");
            assert_eq!(findings[0].is_error(), is_error, "{list:?}");
        }
        for list in [&[(PACKAGE_JSON, "{}")][..], &[("SKILL.md", "x")]] {
            let mut findings = Vec::new();
            assert_eq!(declared(&files(list), &mut findings), None);
            assert_eq!(findings, []);
        }
    }

    #[test]
    fn a_lock_that_does_not_fit_what_is_declared_is_refused() {
        let json = |range: &str| format!("{{\"dependencies\": {{\"c\": {range:?}}}}}");
        for (package, lock, part) in [
            (
                json("^1"),
                lock(&json!({"d": "1"}), &["d"]),
                "c is declared but not in the lock",
            ),
            (
                json("^2"),
                lock(&json!({"c": "^1"}), &["c"]),
                "c is declared as ^2, but the lock was generated for \"^1\"",
            ),
            (
                json("^1"),
                lock(&json!({"d": "1"}), &["c", "d"]),
                "the lock was not generated for it",
            ),
            (
                json("git+ssh://x"),
                lock(&json!({}), &["c"]),
                "dependencies: c comes from",
            ),
            ("{".to_owned(), lock(&json!({}), &["c"]), "not valid JSON"),
            (json("^1"), "{".to_owned(), "not valid JSON"),
        ] {
            let mut findings = Vec::new();
            let found = declared(
                &files(&[(PACKAGE_JSON, &package), (NODE_LOCK_FILE, &lock)]),
                &mut findings,
            );
            assert_eq!(found, None);
            assert!(
                findings[0].is_error() && findings[0].text.contains(part),
                "{part}: {findings:?}"
            );
        }
        // A lock of nothing but tools for development gives nothing.
        let mut findings = Vec::new();
        let none = declared(&files(&[(NODE_LOCK_FILE, &lock(&json!({}), &[]))]), &mut findings);
        assert_eq!((none, findings), (None, Vec::new()));
    }
}
