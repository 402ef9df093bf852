//! The lock of a declaration: of the skill, of its scripts, or in its file of requirements.

use std::collections::BTreeMap;

use knack_skill::model::SkillFile;

use crate::declaration::{Declaration, Source};
use crate::finding::{Finding, FindingKind};
use crate::lock::{LOCK_FILE, Lock};
use crate::pylock::{self, PYTHON_LOCK_FILE};
use crate::requirement::Requirement;
use crate::version_clause::{RequiredPython, allows};
use crate::{requirements_txt, standard, uv_lock};

/// Files with locks, the first of which counts.
const LOCKS: [&str; 2] = [LOCK_FILE, PYTHON_LOCK_FILE];

/// Adds the lock that is there to a declaration. Returns the locks of scripts that were read.
pub(crate) fn add(files: &BTreeMap<String, SkillFile>, declared: &mut Declaration) -> Vec<String> {
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
        return Vec::new();
    }
    let Some((name, file)) = there.next() else {
        let locks = scripts(&declared.source).and_then(|scripts| uv_lock::of_scripts(files, scripts));
        let Some(uv_lock::LocksOfScripts { names, read }) = locks else {
            add_own_hashes(files, declared);
            return Vec::new();
        };
        match read {
            Ok(read) => {
                declared.requires_python.extend(read.requires_python);
                take(&names.join(", "), read.lock, declared);
            }
            Err(refused) => declared.findings.extend(refused),
        }
        return names;
    };
    match read_lock(name, &file.bytes, declared) {
        Ok(lock) => take(name, lock, declared),
        Err(refused) => declared.findings.extend(refused),
    }
    if declared.source == Source::Nothing && declared.lock.is_some() {
        declared.source = Source::Lock(name);
    }
    Vec::new()
}

/// A lock that was read, with what it lacks or does not meet.
fn take(name: &str, lock: Lock, declared: &mut Declaration) {
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
            LOCK_FILE => "regenerate the lock with knack skill lock",
            _ => "lock the script again with uv lock --script",
        };
        declared
            .findings
            .push(Finding::new(FindingKind::Lock, name, 0, text, help));
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
        let is_refused = |version: &&str| allows(&requirement.clauses, version) == Some(false);
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
        declared.requires_python.push(RequiredPython {
            file: name.to_owned(),
            clauses: read.head.requires_python,
        });
    }
    declared.environments = read.head.environments;
    Ok(read.lock)
}

fn scripts(source: &Source) -> Option<&[String]> {
    match source {
        Source::Scripts(scripts) => Some(scripts),
        _ => None,
    }
}
