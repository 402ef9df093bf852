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
use crate::requirements_txt::text_of;
use crate::version_clause::{RequiredPython, VersionClause};

/// The version of the format that is read.
const VERSION: i64 = 1;

/// Most packages of the locks of a skill: besides what is installed, those of other systems and of extras that nothing asks for.
const MAX_LISTED: usize = 4 * crate::MAX_PACKAGES;

/// Longest marker. Those that uv writes are under 300 bytes.
const MAX_MARKER_BYTES: usize = 1_000;

/// Most ways to one package that differ in their markers. Few packages have two.
const MAX_WAYS: usize = 32;

/// Most markers of one way, each of which is copied for every edge that continues it. Few ways have three.
const MAX_MARKERS: usize = 16;

/// Longest text of all ways to one package: what is installed has 4 KiB at most, and 800 packages of this length are 13 MB.
const MAX_WAYS_BYTES: usize = 16_000;

/// Most edges that are followed in all locks of a skill, each as often as there are ways to it. 200 packages have under 2,000.
const MAX_STEPS: usize = 20_000;

/// The locks of a skill's scripts.
#[derive(Debug)]
pub(crate) struct ScriptLocks {
    pub(crate) lock: Lock,
    /// `requires-python`, by file: the clauses, each an operator and a version.
    pub(crate) requires_python: Vec<RequiredPython>,
}

/// The locks of scripts, by name, and what is in them or why they cannot be read.
pub(crate) struct LocksOfScripts {
    pub(crate) names: Vec<String>,
    pub(crate) read: Result<ScriptLocks, Vec<Finding>>,
}

/// The ways to a package, each with the markers that hold together on it. Without a marker: one way that is empty.
type Ways<T> = BTreeSet<BTreeSet<T>>;

/// A package by its versions: the table of each, and the ways to it.
type Versions = BTreeMap<String, (Table, Ways<String>)>;

/// The locks of a skill whose requirements are in blocks of scripts, where every such script has one, with their names. `None`: not
/// all have one, so requirements would be missing.
pub(crate) fn of_scripts(files: &BTreeMap<String, SkillFile>, scripts: &[String]) -> Option<LocksOfScripts> {
    let names: Vec<String> = scripts.iter().map(|script| format!("{script}.lock")).collect();
    let all: Option<Vec<&SkillFile>> = names.iter().map(|name| files.get(name)).collect();
    let named: Vec<(&str, &SkillFile)> = names.iter().map(String::as_str).zip(all?).collect();
    let read = union(&named).map_err(|found| vec![found]);
    Some(LocksOfScripts { names, read })
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
    let mut steps = 0;
    for (file, content) in named {
        let read = read(file, &content.bytes, &mut steps)?;
        requires_python.extend((!read.requires_python.is_empty()).then(|| RequiredPython {
            file: (*file).to_owned(),
            clauses: read.requires_python,
        }));
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
                bounded(text_at(table, "name").unwrap_or_default(), ways).map_err(|why| wrong(file, why))?;
                add_wheels(table, &other);
            }
        }
        // Before anything is made of them.
        let listed = whole.values().map(|(_, versions)| versions.len()).sum();
        not_more(file, listed, MAX_LISTED)?;
    }
    let mut lines = Vec::new();
    for (file, versions) in whole.values() {
        for (table, ways) in versions.values() {
            lines.extend(line(table, ways).map_err(|why| wrong(file, why))?);
        }
    }
    let file = named.first().map_or("", |(file, _)| file);
    not_more(file, lines.len(), crate::MAX_PACKAGES)?;
    let lock = Lock::of(&lines);
    Ok(ScriptLocks { lock, requires_python })
}

/// Errors: there are more packages than a bound.
fn not_more(file: &str, count: usize, most: usize) -> Result<(), Finding> {
    if count <= most {
        return Ok(());
    }
    let text = format!("{count} packages, more than {most}");
    let help = "declare what the scripts import";
    Err(Finding::new(FindingKind::TooMany, file, 0, text, help))
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
    requires_python: Vec<VersionClause>,
}

fn read(file: &str, bytes: &[u8], steps: &mut usize) -> Result<Read, Finding> {
    let text = text_of(file, bytes)?;
    let table: Table =
        toml::from_str(text).map_err(|error| wrong(file, format!("it is not valid TOML: {}", error.message())))?;
    match table.get("version").map(Value::as_integer) {
        Some(Some(VERSION)) => {}
        Some(Some(other)) => {
            let text = format!("it has version {other} of uv's format, and only version {VERSION} is read");
            return Err(wrong(file, text));
        }
        _ => return Err(wrong(file, "not a uv.lock file: no `version`".to_owned())),
    }
    let requires_python = table.get("requires-python").and_then(Value::as_str).unwrap_or_default();
    let requires_python =
        VersionClause::parse_all(requires_python).map_err(|why| wrong(file, format!("requires-python: {why}")))?;
    let listed = table.get("package").and_then(Value::as_array).map_or(0, Vec::len);
    not_more(file, listed, MAX_LISTED)?;
    let graph = Graph::of(&table).map_err(|why| wrong(file, why))?;
    let ways = graph.ways(&table, steps).map_err(|why| wrong(file, why))?;
    let mut packages: BTreeMap<String, Versions> = BTreeMap::new();
    for ((index, extra), ways) in ways {
        if extra.is_some() {
            continue;
        }
        let package = graph.packages[index];
        let owned = |way: Way<'_>| way.into_iter().map(str::to_owned).collect();
        let entry = (package.table.clone(), ways.into_iter().map(owned).collect());
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

/// Markers that hold together, as they stand in the lock.
type Way<'t> = BTreeSet<&'t str>;

#[derive(Clone, Copy)]
struct Package<'t> {
    name: &'t str,
    version: &'t str,
    table: &'t Table,
}

struct Graph<'t> {
    packages: Vec<Package<'t>>,
    /// The versions of each name.
    by_name: BTreeMap<&'t str, Vec<usize>>,
}

/// What is reached and not yet followed.
struct Open<'t, 's> {
    queue: VecDeque<(Node<'t>, Way<'t>)>,
    /// All that ever was in a queue.
    steps: &'s mut usize,
}

impl<'t> Open<'t, '_> {
    fn push(&mut self, node: Node<'t>, way: Way<'t>) -> Result<(), String> {
        *self.steps += 1;
        if *self.steps > MAX_STEPS {
            return Err("its dependencies combine in too many ways".to_owned());
        }
        self.queue.push_back((node, way));
        Ok(())
    }
}

impl<'t> Graph<'t> {
    fn of(table: &'t Table) -> Result<Self, String> {
        let mut packages = Vec::new();
        let mut by_name: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (index, package) in tables(table, "package")?.into_iter().enumerate() {
            let name = text_at(package, "name").ok_or("a package has no name")?;
            let version = text_at(package, "version").ok_or_else(|| format!("{} has no version", shown(name)))?;
            by_name.entry(name).or_default().push(index);
            packages.push(Package {
                name,
                version,
                table: package,
            });
        }
        Ok(Self { packages, by_name })
    }

    /// The ways to each package that is reached.
    fn ways(&self, table: &'t Table, steps: &mut usize) -> Result<BTreeMap<Node<'t>, Ways<&'t str>>, String> {
        let mut all: BTreeMap<Node<'t>, Ways<&'t str>> = BTreeMap::new();
        let mut open = Open {
            queue: VecDeque::new(),
            steps,
        };
        let requirements = match table.get("manifest") {
            Some(Value::Table(manifest)) => tables(manifest, "requirements")?,
            _ => Vec::new(),
        };
        for requirement in requirements {
            self.follow(requirement, &Way::new(), &mut open)?;
        }
        while let Some((node, way)) = open.queue.pop_front() {
            let ways = all.entry(node).or_default();
            if !absorb(ways, way.clone()) {
                continue;
            }
            let (index, extra) = node;
            let package = self.packages[index];
            bounded(package.name, ways)?;
            let dependencies = match extra {
                None => tables(package.table, "dependencies")?,
                Some(extra) => match package.table.get("optional-dependencies") {
                    Some(Value::Table(extras)) => tables(extras, extra)?,
                    _ => Vec::new(),
                },
            };
            for dependency in dependencies {
                self.follow(dependency, &way, &mut open)?;
            }
        }
        Ok(all)
    }

    /// Opens what a dependency leads to, under the markers of the way so far and its own.
    fn follow(&self, dependency: &'t Table, way: &Way<'t>, open: &mut Open<'t, '_>) -> Result<(), String> {
        let name = text_at(dependency, "name").ok_or("a dependency has no name")?;
        let version = text_at(dependency, "version");
        let mut way = way.clone();
        if let Some(marker) = text_at(dependency, "marker") {
            way.insert(short(name, marker)?);
        }
        // Requirements have `extras`, dependencies of packages `extra`.
        let mut extras = texts(dependency, "extras")?;
        extras.extend(texts(dependency, "extra")?);
        let named = self.by_name.get(name).map_or(&[][..], Vec::as_slice);
        let is_meant = |index: &&usize| version.is_none_or(|version| version == self.packages[**index].version);
        let found: Vec<usize> = named.iter().filter(is_meant).copied().collect();
        if found.is_empty() {
            return Err(format!("{} is a dependency and not among its packages", shown(name)));
        }
        for index in &found {
            // If there are several versions, each is for its fork; where the dependency names one, its own marker says
            // when.
            let forks = if found.len() > 1 {
                texts(self.packages[*index].table, "resolution-markers")?
            } else {
                Vec::new()
            };
            let forks = if forks.is_empty() {
                vec![None]
            } else {
                forks.into_iter().map(Some).collect()
            };
            for fork in forks {
                let mut way = way.clone();
                if let Some(fork) = fork {
                    way.insert(short(name, fork)?);
                }
                for extra in &extras {
                    open.push((*index, Some(*extra)), way.clone())?;
                }
                open.push((*index, None), way)?;
            }
        }
        Ok(())
    }
}

/// A marker of an edge or a fork. Errors: it is too long.
fn short<'t>(name: &str, marker: &'t str) -> Result<&'t str, String> {
    if marker.len() > MAX_MARKER_BYTES {
        let bytes = marker.len();
        return Err(format!(
            "{}: a marker of it has {bytes} bytes, more than {MAX_MARKER_BYTES}",
            shown(name)
        ));
    }
    Ok(marker)
}

/// Errors: the ways to a package are too many, or too long.
fn bounded<T: AsRef<str>>(name: &str, ways: &Ways<T>) -> Result<(), String> {
    let markers = ways.iter().flatten();
    let bytes: usize = markers.map(|marker| marker.as_ref().len()).sum();
    let is_long = ways.iter().any(|way| way.len() > MAX_MARKERS);
    if ways.len() > MAX_WAYS || is_long || bytes > MAX_WAYS_BYTES {
        return Err(format!("{}: its markers combine in too many ways", shown(name)));
    }
    Ok(())
}

/// Adds a way unless one with fewer markers is there, which makes it superfluous; `false`: it is.
fn absorb<T: Ord>(ways: &mut Ways<T>, way: BTreeSet<T>) -> bool {
    if ways.iter().any(|known| known.is_subset(&way)) {
        return false;
    }
    ways.retain(|known| !way.is_subset(known));
    ways.insert(way)
}

/// One package as a line of a lock; `None`: it is for other systems.
fn line(package: &Table, ways: &Ways<String>) -> Result<Option<crate::requirements_txt::Line>, String> {
    let mut entry = Table::new();
    for key in ["name", "version", "sdist"] {
        entry.extend(package.get(key).map(|value| (key.to_owned(), value.clone())));
    }
    if ways.iter().all(|way| !way.is_empty()) {
        let all = |way: &BTreeSet<String>| {
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
#[path = "uv_lock_tests.rs"]
mod tests;
