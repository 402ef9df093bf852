//! Locks of scripts, as `uv lock --script` writes them beside a script, in version 1 of the format.
//!
//! ```text
//! [manifest] requirements ─▶ [[package]] dependencies ─▶ …    each edge may have a marker; a package may be in several versions,
//!                                                             each under the markers of its fork (resolution-markers)
//! ```
//!
//! What is reached is installed, under the markers of the ways to it. Versions, markers and the hashes of wheels count, as of every lock.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use knack_skill::model::SkillFile;
use toml::{Table, Value};

use crate::finding::{Finding, FindingKind, shown};
use crate::lock::Lock;
use crate::pylock;
use crate::requirement::version_clauses;
use crate::requirements_txt::text_of;

/// The version of the format that is read.
const VERSION: i64 = 1;

/// Most ways to one package that differ in their markers. Few packages have two.
const MAX_WAYS: usize = 32;

/// The locks of a skill's scripts.
#[derive(Debug)]
pub(crate) struct ScriptLocks {
    pub(crate) lock: Lock,
    /// `requires-python`, by file: operator and version.
    pub(crate) requires_python: Vec<(String, Vec<(String, String)>)>,
}

/// Markers that hold together.
type Way = BTreeSet<String>;

/// A package in one version: its table, and the ways to it. Without a marker: one way that is empty.
type Versions = BTreeMap<String, (Table, BTreeSet<Way>)>;

/// The locks of a skill whose requirements are in blocks of scripts, where every such script has one, with their names. `None`: not
/// all have one, so requirements would be missing.
pub(crate) fn of_scripts(
    files: &BTreeMap<String, SkillFile>,
    scripts: &[String],
) -> Option<(Vec<String>, Result<ScriptLocks, Vec<Finding>>)> {
    let names: Vec<String> = scripts.iter().map(|script| format!("{script}.lock")).collect();
    let all: Option<Vec<&SkillFile>> = names.iter().map(|name| files.get(name)).collect();
    let named: Vec<(&str, &SkillFile)> = names.iter().map(String::as_str).zip(all?).collect();
    let read = union(&named).map_err(|found| vec![found]);
    Some((names, read))
}

fn wrong(file: &str, text: String) -> Finding {
    let script = file.strip_suffix(".lock").unwrap_or(file);
    let help = format!(
        "lock the script again with uv lock --script {script}, or write requirements.lock with knack skill lock"
    );
    Finding::new(FindingKind::Lock, file, 0, text, help)
}

fn union(named: &[(&str, &SkillFile)]) -> Result<ScriptLocks, Finding> {
    let mut whole: BTreeMap<String, (&str, Versions)> = BTreeMap::new();
    let mut requires_python = Vec::new();
    for (file, content) in named {
        let read = read(file, &content.bytes)?;
        requires_python.extend((!read.requires_python.is_empty()).then(|| ((*file).to_owned(), read.requires_python)));
        for (name, versions) in read.packages {
            let Some((elsewhere, known)) = whole.get_mut(&name) else {
                whole.insert(name, (file, versions));
                continue;
            };
            if !known.keys().eq(versions.keys()) {
                let list = |versions: &Versions| versions.keys().cloned().collect::<Vec<_>>().join(", ");
                let text = format!(
                    "{name} {} here and {} in {elsewhere} conflict; a skill has one environment",
                    list(&versions),
                    list(known)
                );
                return Err(Finding::new(
                    FindingKind::Conflict,
                    file,
                    0,
                    text,
                    "lock the same version for both",
                ));
            }
            for ((table, ways), (other, others)) in known.values_mut().zip(versions.into_values()) {
                for way in others {
                    absorb(ways, way);
                }
                add_wheels(table, &other);
            }
        }
    }
    let mut lines = Vec::new();
    for (file, versions) in whole.values() {
        for (table, ways) in versions.values() {
            lines.extend(line(table, ways).map_err(|why| wrong(file, why))?);
        }
    }
    if lines.len() > crate::MAX_PACKAGES {
        let text = format!("{} packages, more than {}", lines.len(), crate::MAX_PACKAGES);
        let file = named.first().map_or("", |(file, _)| file);
        return Err(Finding::new(
            FindingKind::TooMany,
            file,
            0,
            text,
            "declare what the scripts import",
        ));
    }
    let lock = Lock::of(&lines);
    Ok(ScriptLocks { lock, requires_python })
}

/// Wheels of the same version that only the other lock lists.
fn add_wheels(table: &mut Table, other: &Table) {
    let more = other
        .get("wheels")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    if let Some(wheels) = table.get_mut("wheels").and_then(Value::as_array_mut) {
        wheels.extend(more);
    }
}

struct Read {
    packages: BTreeMap<String, Versions>,
    requires_python: Vec<(String, String)>,
}

fn read(file: &str, bytes: &[u8]) -> Result<Read, Finding> {
    let text = text_of(file, bytes)?;
    let table: Table =
        toml::from_str(text).map_err(|error| wrong(file, format!("it is not valid TOML: {}", error.message())))?;
    match table.get("version").map(Value::as_integer) {
        Some(Some(VERSION)) => {}
        Some(Some(other)) => {
            let text = format!("it has version {other} of uv's format, and only version {VERSION} is read");
            return Err(wrong(file, text));
        }
        _ => return Err(wrong(file, "it is no lock of uv: it has no version".to_owned())),
    }
    let requires_python = table.get("requires-python").and_then(Value::as_str).unwrap_or_default();
    let requires_python =
        version_clauses(requires_python).map_err(|why| wrong(file, format!("requires-python: {why}")))?;
    let graph = Graph::of(&table).map_err(|why| wrong(file, why))?;
    let ways = graph.ways(&table).map_err(|why| wrong(file, why))?;
    let mut packages: BTreeMap<String, Versions> = BTreeMap::new();
    for ((index, extra), ways) in ways {
        if extra.is_some() {
            continue;
        }
        let package = graph.packages[index];
        let entry = (package.table.clone(), ways);
        let versions = packages.entry(package.name.to_owned()).or_default();
        versions.insert(package.version.to_owned(), entry);
    }
    Ok(Read {
        packages,
        requires_python,
    })
}

/// A package, or one of its extras.
type Node<'t> = (usize, Option<&'t str>);

#[derive(Clone, Copy)]
struct Package<'t> {
    name: &'t str,
    version: &'t str,
    table: &'t Table,
}

struct Graph<'t> {
    packages: Vec<Package<'t>>,
}

impl<'t> Graph<'t> {
    fn of(table: &'t Table) -> Result<Self, String> {
        let listed = tables(table, "package")?;
        let packages = listed.into_iter().map(|package| {
            let name = text_at(package, "name").ok_or("a package has no name")?;
            let version = text_at(package, "version").ok_or_else(|| format!("{} has no version", shown(name)))?;
            Ok(Package {
                name,
                version,
                table: package,
            })
        });
        let packages = packages.collect::<Result<_, String>>()?;
        Ok(Self { packages })
    }

    /// The ways to each package that is reached.
    fn ways(&self, table: &'t Table) -> Result<BTreeMap<Node<'t>, BTreeSet<Way>>, String> {
        let mut all: BTreeMap<Node<'t>, BTreeSet<Way>> = BTreeMap::new();
        let mut open: VecDeque<(Node<'t>, Way)> = VecDeque::new();
        let requirements = match table.get("manifest") {
            Some(Value::Table(manifest)) => tables(manifest, "requirements")?,
            _ => Vec::new(),
        };
        for requirement in requirements {
            open.extend(self.targets(requirement, &Way::new())?);
        }
        while let Some((node, way)) = open.pop_front() {
            let ways = all.entry(node).or_default();
            if !absorb(ways, way.clone()) {
                continue;
            }
            let (index, extra) = node;
            let package = self.packages[index];
            if ways.len() > MAX_WAYS {
                return Err(format!("{}: its markers combine in too many ways", shown(package.name)));
            }
            let dependencies = match extra {
                None => tables(package.table, "dependencies")?,
                Some(extra) => match package.table.get("optional-dependencies") {
                    Some(Value::Table(extras)) => tables(extras, extra)?,
                    _ => Vec::new(),
                },
            };
            for dependency in dependencies {
                open.extend(self.targets(dependency, &way)?);
            }
        }
        Ok(all)
    }

    /// What a dependency leads to, under the markers of the way so far and its own.
    fn targets(&self, dependency: &'t Table, way: &Way) -> Result<Vec<(Node<'t>, Way)>, String> {
        let name = text_at(dependency, "name").ok_or("a dependency has no name")?;
        let version = text_at(dependency, "version");
        let mut way = way.clone();
        way.extend(text_at(dependency, "marker").map(str::to_owned));
        // Requirements have `extras`, dependencies of packages `extra`.
        let mut extras = texts(dependency, "extras")?;
        extras.extend(texts(dependency, "extra")?);
        let is_meant =
            |package: &Package<'_>| package.name == name && version.is_none_or(|version| version == package.version);
        let found: Vec<usize> = (0..self.packages.len())
            .filter(|index| is_meant(&self.packages[*index]))
            .collect();
        if found.is_empty() {
            return Err(format!("{} is a dependency and not among its packages", shown(name)));
        }
        let mut targets = Vec::new();
        for index in &found {
            // Of several versions each is for its fork; where the dependency names one, its own marker says when.
            let forks = if found.len() > 1 {
                texts(self.packages[*index].table, "resolution-markers")?
            } else {
                Vec::new()
            };
            let ways: Vec<Way> = if forks.is_empty() {
                vec![way.clone()]
            } else {
                let of_fork = |fork: &&str| way.iter().cloned().chain([(*fork).to_owned()]).collect();
                forks.iter().map(of_fork).collect()
            };
            for way in ways {
                targets.push(((*index, None), way.clone()));
                targets.extend(extras.iter().map(|extra| ((*index, Some(*extra)), way.clone())));
            }
        }
        Ok(targets)
    }
}

/// Adds a way unless one with fewer markers is there, which makes it superfluous; `false`: it is.
fn absorb(ways: &mut BTreeSet<Way>, way: Way) -> bool {
    if ways.iter().any(|known| known.is_subset(&way)) {
        return false;
    }
    ways.retain(|known| !way.is_subset(known));
    ways.insert(way)
}

/// One package as a line of a lock; `None`: it is for other systems.
fn line(package: &Table, ways: &BTreeSet<Way>) -> Result<Option<crate::requirements_txt::Line>, String> {
    let mut entry = Table::new();
    for key in ["name", "version", "sdist"] {
        entry.extend(package.get(key).map(|value| (key.to_owned(), value.clone())));
    }
    if ways.iter().all(|way| !way.is_empty()) {
        let all = |way: &Way| {
            let parts: Vec<String> = way.iter().map(|marker| format!("({marker})")).collect();
            parts.join(" and ")
        };
        let either: Vec<String> = ways.iter().map(|way| format!("({})", all(way))).collect();
        entry.insert("marker".to_owned(), either.join(" or ").into());
    }
    let wheels = tables(package, "wheels")?.into_iter().map(|wheel| {
        let mut hashes = Table::new();
        if let Some((algorithm, hash)) = text_at(wheel, "hash").and_then(|hash| hash.split_once(':')) {
            hashes.insert(algorithm.to_owned(), hash.into());
        }
        let mut written = Table::new();
        written.extend(
            ["url", "path"]
                .iter()
                .filter_map(|key| Some(((*key).to_owned(), wheel.get(*key)?.clone()))),
        );
        written.insert("hashes".to_owned(), hashes.into());
        Value::Table(written)
    });
    let wheels: Vec<Value> = wheels.collect();
    if !wheels.is_empty() {
        entry.insert("wheels".to_owned(), wheels.into());
    }
    let source = package.get("source").and_then(Value::as_table);
    let kind = source
        .and_then(|source| source.keys().next())
        .map_or("", String::as_str);
    let read = pylock::line(0, &Value::Table(entry), &[])?;
    if read.is_some() && kind != "registry" {
        let name = text_at(package, "name").unwrap_or_default();
        return Err(format!(
            "{} comes from {}; packages are installed from the index, as wheels",
            shown(name),
            shown(kind)
        ));
    }
    Ok(read)
}

fn text_at<'t>(table: &'t Table, key: &str) -> Option<&'t str> {
    table.get(key).and_then(Value::as_str)
}

/// A list of tables, which may be absent.
fn tables<'t>(table: &'t Table, key: &str) -> Result<Vec<&'t Table>, String> {
    let Some(value) = table.get(key) else {
        return Ok(Vec::new());
    };
    let listed: Option<Vec<&Table>> = value
        .as_array()
        .and_then(|all| all.iter().map(Value::as_table).collect());
    listed.ok_or_else(|| format!("{key} must be a list of tables"))
}

/// A list of texts, which may be absent.
fn texts<'t>(table: &'t Table, key: &str) -> Result<Vec<&'t str>, String> {
    let Some(value) = table.get(key) else {
        return Ok(Vec::new());
    };
    let listed: Option<Vec<&str>> = value.as_array().and_then(|all| all.iter().map(Value::as_str).collect());
    listed.ok_or_else(|| format!("{key} must be a list of texts"))
}

#[cfg(test)]
mod tests {
    use crate::declare::declare;
    use crate::fixture::files;

    const SCRIPT: &str = "# /// script\n# dependencies = [\"a>=1\", \"b[x]\"]\n# ///\n";

    fn package(name: &str, version: &str, rest: &str) -> String {
        let hash = "a".repeat(64);
        format!(
            "[[package]]\nname = \"{name}\"\nversion = \"{version}\"\nsource = {{ registry = \"https://i.example/simple\" }}\n\
             wheels = [{{ url = \"https://i.example/{name}-{version}-py3-none-any.whl\", hash = \"sha256:{hash}\", size = 1 }}]\n{rest}\n"
        )
    }

    fn lock(requirements: &str, packages: &[String]) -> String {
        let packages = packages.concat();
        format!(
            "version = 1\nrevision = 3\nrequires-python = \">=3.9\"\n\n[manifest]\nrequirements = [{requirements}]\n\n{packages}"
        )
    }

    fn shown_lock(text: &str) -> Result<Vec<String>, String> {
        let declared = declare(&files(&[("scripts/t.py", SCRIPT), ("scripts/t.py.lock", text)]), None);
        match declared.findings.first() {
            Some(finding) => Err(finding.to_string()),
            None => Ok(declared.lock.unwrap().pins().iter().map(ToString::to_string).collect()),
        }
    }

    #[test]
    fn what_the_script_asks_for_is_installed_in_the_versions_of_its_lock() {
        let text = lock(
            "{ name = \"a\", specifier = \">=1\" }, { name = \"b\", extras = [\"x\"] }",
            &[
                package(
                    "a",
                    "1.2",
                    "dependencies = [{ name = \"c\" }, { name = \"win\", marker = \"sys_platform == 'win32'\" }, \
                     { name = \"old\", marker = \"python_full_version < '3.11'\" }]",
                ),
                package(
                    "b",
                    "2",
                    "dependencies = [{ name = \"a\" }]\n[package.optional-dependencies]\nx = [{ name = \"d\", version = \"3\" }]\n\
                     y = [{ name = \"unasked\" }]",
                ),
                package("c", "1", "dependencies = [{ name = \"a\" }]"),
                package("d", "2", "resolution-markers = [\"python_full_version < '3.10'\"]"),
                package("d", "3", "resolution-markers = [\"python_full_version >= '3.10'\"]"),
                package("old", "1", ""),
                package("unasked", "1", ""),
                package("win", "1", ""),
            ],
        );
        let shown = shown_lock(&text).unwrap();
        let names: Vec<&str> = shown.iter().map(|line| line.split(' ').next().unwrap()).collect();
        assert_eq!(names, ["a==1.2", "b==2", "c==1", "d==3", "old==1"], "{shown:?}");
        assert!(
            shown[4].contains("python_full_version <") && shown[4].contains("3.11"),
            "{shown:?}"
        );
        // Without a version every fork is meant, each under its markers.
        let forked = text.replace("{ name = \"d\", version = \"3\" }", "{ name = \"d\" }");
        let shown = shown_lock(&forked).unwrap();
        assert_eq!(
            shown.iter().filter(|line| line.starts_with("d==")).count(),
            2,
            "{shown:?}"
        );
        assert!(
            shown
                .iter()
                .filter(|line| line.starts_with("d=="))
                .all(|line| line.contains(';')),
            "{shown:?}"
        );
    }

    #[test]
    fn a_lock_that_cannot_be_followed_is_refused_with_the_reason() {
        let a = package("a", "1.2", "");
        let b = package("b", "2", "");
        let asks = "{ name = \"a\" }, { name = \"b\" }";
        let good = lock(asks, &[a.clone(), b.clone()]);
        assert_eq!(shown_lock(&good).unwrap(), ["a==1.2", "b==2"]);
        for (text, part) in [
            (
                good.replace("version = 1\n", "version = 2\n"),
                "scripts/t.py.lock: it has version 2 of uv's format",
            ),
            (String::new(), "it is no lock of uv"),
            ("[".to_owned(), "not valid TOML"),
            (good.replace("registry =", "git ="), "\"a\" comes from \"git\""),
            (good.replace("wheels", "no-wheels"), "has no wheels"),
            (
                good.replace("\", size", "\", other").replace("hash =", "mash ="),
                "no hash of SHA-256",
            ),
            (
                lock("{ name = \"a\" }", &[a.clone()]),
                "b is declared but not in the lock (lock the script again",
            ),
            (lock(asks, &[a]), "\"b\" is a dependency and not among its packages"),
        ] {
            let said = shown_lock(&text).unwrap_err();
            assert!(said.contains(part), "{part}: {said}");
        }
    }

    #[test]
    fn locks_of_several_scripts_are_one_where_they_agree_and_none_where_one_is_missing() {
        let asks = "{ name = \"a\" }, { name = \"b\" }";
        let one = lock(asks, &[package("a", "1.2", ""), package("b", "2", "")]);
        let other = one.replace("1.2", "1.3");
        let of = |list: &[(&str, &str)]| declare(&files(list), None);
        let same = of(&[
            ("s.py", SCRIPT),
            ("s.py.lock", &one),
            ("t.py", SCRIPT),
            ("t.py.lock", &one),
        ]);
        assert_eq!((same.findings.len(), same.lock.unwrap().packages().len()), (0, 2));
        let differ = of(&[
            ("s.py", SCRIPT),
            ("s.py.lock", &one),
            ("t.py", SCRIPT),
            ("t.py.lock", &other),
        ]);
        assert!(differ.is_refused());
        assert!(
            differ.findings[0]
                .text
                .contains("a 1.3 here and 1.2 in s.py.lock conflict"),
            "{differ:?}"
        );
        let missing = of(&[("s.py", SCRIPT), ("s.py.lock", &one), ("t.py", SCRIPT)]);
        assert_eq!((missing.lock, missing.findings.len()), (None, 1));
        // The skill's own lock counts before those of scripts.
        let hash = "a".repeat(64);
        let own = format!("a==9 --hash=sha256:{hash}\nb==9 --hash=sha256:{hash}\n");
        let both = of(&[("s.py", SCRIPT), ("s.py.lock", &one), ("requirements.lock", &own)]);
        assert_eq!(both.lock.unwrap().packages()[0].1, "9");
        assert!(both.findings[0].text.contains("its versions do not count"));
    }
}
