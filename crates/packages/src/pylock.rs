//! Locks in the standard format of Python (PEP 751), which uv and pip write, among others: read to the same value as a lock in pip's format.
//!
//! Names, versions, markers and the hashes of wheels count. Where files are does not: they come from the index that the
//! installation names, as those of every lock.

use toml::{Table, Value};

use crate::finding::{Finding, FindingKind, shown};
use crate::lock::Lock;
use crate::marker::{Marker, Selected};
use crate::requirement::Requirement;
use crate::requirements_txt::{Line, MAX_FINDINGS, is_hash, text_of};
use crate::version_clause::VersionClause;

/// The one name that is read; `pylock.<name>.toml` are further locks of one project.
pub const PYTHON_LOCK_FILE: &str = "pylock.toml";

/// The version of the format. Later ones of its major number only add keys.
const MAJOR_VERSION: &str = "1.";

const HELP: &str = "lock versions that have wheels for Linux, or write requirements.lock with knack skill lock";

/// The content of a lock.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PythonLock {
    /// The packages of the lock.
    pub(crate) lock: Lock,
    /// What it says of the interpreter.
    pub(crate) head: Head,
}

/// The interpreters that a lock is for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    /// `requires-python`: the clauses, each an operator and a version.
    pub(crate) requires_python: Vec<VersionClause>,
    /// `environments`: at least one holds. Empty: for all.
    pub(crate) environments: Vec<Marker>,
}

/// Reads a lock. Errors: packages that a sandbox needs and that have no wheel with a hash from an index. No input panics.
pub(crate) fn read(bytes: &[u8]) -> Result<PythonLock, Vec<Finding>> {
    let text = text_of(PYTHON_LOCK_FILE, bytes).map_err(|found| vec![found])?;
    let table: Table = toml::from_str(text).map_err(|error| {
        let line = error
            .span()
            .map_or(0, |span| 1 + text[..span.start.min(text.len())].matches('\n').count());
        let text = format!("it is not valid TOML: {}", error.message());
        vec![Finding::new(FindingKind::Lock, PYTHON_LOCK_FILE, line, text, HELP)]
    })?;
    let head = head(&table).map_err(|why| vec![wrong(why)])?;
    // What an installer installs that is asked for no groups.
    let groups = list(&table, "default-groups").map_err(|why| vec![wrong(why)])?;
    let packages = match table.get("packages") {
        // As uv writes it where there are none.
        None => &Vec::new(),
        Some(Value::Array(packages)) => packages,
        Some(_) => return Err(vec![wrong("packages must be an array of tables".to_owned())]),
    };
    let (mut lines, mut findings) = (Vec::new(), Vec::new());
    for (index, package) in packages.iter().enumerate() {
        match line(index, package, &groups) {
            Ok(line) => lines.extend(line),
            Err(why) if findings.len() < MAX_FINDINGS => findings.push(wrong(why)),
            Err(_) => {}
        }
    }
    if lines.len() > crate::MAX_PACKAGES {
        let text = format!("{} packages, more than {}", lines.len(), crate::MAX_PACKAGES);
        let help = "declare what the scripts import, not all that it needs";
        findings.push(Finding::new(FindingKind::TooMany, PYTHON_LOCK_FILE, 0, text, help));
    }
    // A lock without packages is one that installs none: it says so by its version, which no other file has by accident.
    if findings.is_empty() {
        let lock = Lock::of(&lines);
        Ok(PythonLock { lock, head })
    } else {
        Err(findings)
    }
}

fn wrong(text: String) -> Finding {
    Finding::new(FindingKind::Lock, PYTHON_LOCK_FILE, 0, text, HELP)
}

/// Version, environments and `requires-python` of the whole lock. Errors: one that no sandbox can use.
fn head(table: &Table) -> Result<Head, String> {
    match table.get("lock-version") {
        Some(Value::String(version)) if version.starts_with(MAJOR_VERSION) => {}
        Some(Value::String(version)) => return Err(format!("lock-version {} is not 1.x", shown(version))),
        _ if table.is_empty() => {
            return Err("it is empty; a lock without packages has lock-version = \"1.0\"".to_owned());
        }
        _ => return Err("lock-version is missing".to_owned()),
    }
    let mut head = Head::default();
    for text in list(table, "environments")? {
        let marker = Marker::parse(text).map_err(|why| format!("environments: {}", unreadable(text, &why)))?;
        head.environments.push(marker);
    }
    let is_for_none = |marker: &Marker| marker.holds(None) == Some(false);
    if !head.environments.is_empty() && head.environments.iter().all(is_for_none) {
        return Err("environments has none for Linux and CPython".to_owned());
    }
    head.requires_python = match table.get("requires-python") {
        None => Vec::new(),
        Some(Value::String(text)) => VersionClause::parse_all(text).map_err(|why| format!("requires-python: {why}"))?,
        Some(_) => return Err("requires-python must be text".to_owned()),
    };
    Ok(head)
}

fn list<'t>(table: &'t Table, key: &str) -> Result<Vec<&'t str>, String> {
    let Some(value) = table.get(key) else {
        return Ok(Vec::new());
    };
    let texts: Option<Vec<&str>> = value
        .as_array()
        .and_then(|texts| texts.iter().map(Value::as_str).collect());
    texts.ok_or_else(|| format!("{key} must be a list of texts"))
}

fn unreadable(text: &str, why: &str) -> String {
    format!("the marker {} cannot be read: {why}", shown(text))
}

fn marker_of(value: &Value, groups: &[&str]) -> Result<Selected, String> {
    let text = value.as_str().ok_or("a marker must be text")?;
    Marker::of_lock(text, groups).map_err(|why| unreadable(text, &why))
}

/// One package; `None`: it is for other systems, or for a group that is not asked for.
pub(crate) fn line(index: usize, package: &Value, groups: &[&str]) -> Result<Option<Line>, String> {
    let package = package.as_table().ok_or("packages must be an array of tables")?;
    let text_at = |key: &str| package.get(key).and_then(Value::as_str);
    let name = text_at("name").ok_or_else(|| format!("packages[{index}] has no name"))?;
    let package_name = shown(name);
    let selected = package
        .get("marker")
        .map(|marker| marker_of(marker, groups))
        .transpose();
    let marker = match selected.map_err(|why| format!("{package_name}: {why}"))? {
        None | Some(Selected::Always(true)) => None,
        Some(Selected::Always(false)) => return Ok(None),
        Some(Selected::If(marker)) if marker.holds(None) == Some(false) => return Ok(None),
        Some(Selected::If(marker)) => Some(marker),
    };
    for (key, what) in [
        ("vcs", "comes from version control"),
        ("directory", "is a folder"),
        ("archive", "is an archive at a URL or path"),
    ] {
        if package.contains_key(key) {
            return Err(format!(
                "{package_name} {what} ({key}); packages are installed from the index, as wheels"
            ));
        }
    }
    let wheels = package
        .get("wheels")
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice);
    if wheels.is_empty() {
        return Err(if package.contains_key("sdist") {
            format!(
                "{package_name} has source code alone (sdist); nothing is built, packages are installed from wheels"
            )
        } else {
            format!("{package_name} has no wheels")
        });
    }
    let version = text_at("version").ok_or_else(|| format!("{package_name} has no version"))?;
    let mut requirement = Requirement::parse(&format!("{name}=={version}"))
        .ok()
        .filter(|read| read.pinned() == Some(version) && read.extras.is_empty() && read.marker.is_none())
        .ok_or_else(|| format!("{package_name} {} is not a valid name and version", shown(version)))?;
    requirement.marker = marker;
    let mut hashes = Vec::new();
    for wheel in wheels {
        hashes.extend(hashes_of(wheel).map_err(|why| format!("{package_name}: {why}"))?);
    }
    // Findings of it are about the lock as a whole, so no line is kept.
    let number = 0;
    let line = Line {
        requirement,
        hashes,
        number,
    };
    if is_one_line(&line) {
        Ok(Some(line))
    } else {
        Err(format!(
            "{package_name}: its marker is too long, or has characters that a lock in pip's format cannot have"
        ))
    }
}

/// Whether an installer, which is given the lock in pip's format, reads just this of it. TOML may have any character in a text, also
/// one that ends the line or begins an option or a comment.
fn is_one_line(line: &Line) -> bool {
    let lock = Lock::of(std::slice::from_ref(line));
    Lock::read(PYTHON_LOCK_FILE, lock.text().as_bytes()).is_ok_and(|read| read == lock)
}

/// The hashes of one wheel, as pip writes them. Errors: it has none that counts, or is no file of an index.
fn hashes_of(wheel: &Value) -> Result<Vec<String>, String> {
    let text_at = |key: &str| wheel.get(key).and_then(Value::as_str);
    let wheel_name = text_at("name").or_else(|| text_at("url")).or_else(|| text_at("path"));
    let wheel_name = wheel_name
        .and_then(|wheel_name| wheel_name.rsplit('/').next())
        .unwrap_or_default();
    if wheel.get("path").is_some() && wheel.get("url").is_none() {
        let wheel_name = shown(wheel_name);
        return Err(format!(
            "the wheel {wheel_name} is a file beside the lock (path); packages are installed from the index"
        ));
    }
    let listed = wheel.get("hashes").and_then(Value::as_table).into_iter().flatten();
    let hashes = listed.filter_map(|(algorithm, value)| Some(format!("{algorithm}:{}", value.as_str()?)));
    let hashes: Vec<String> = hashes.filter(|hash| is_hash(hash)).collect();
    if hashes.is_empty() {
        let wheel_name = shown(wheel_name);
        return Err(format!("the wheel {wheel_name} has no hash of SHA-256 or stronger"));
    }
    Ok(hashes)
}

#[cfg(test)]
#[path = "pylock_tests.rs"]
mod tests;
