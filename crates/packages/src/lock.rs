//! Locks in pip's format: every package with one version and its hashes.

use std::collections::BTreeMap;

use crate::finding::{Finding, FindingKind};
use crate::requirement::Requirement;
use crate::requirements_txt::{self, Line};

/// The file that `knack skill lock` writes and that wins over everything else that is declared.
pub const LOCK_FILE: &str = "requirements.lock";

/// A lock that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lock {
    /// In its one form: sorted, no comments.
    text: String,
    /// Name and version of each line, sorted; a name is there twice where versions differ by marker.
    packages: Vec<(String, String)>,
    /// The lines without hashes, sorted.
    pins: Vec<Requirement>,
}

impl Lock {
    /// Reads a lock. Errors: there are no packages, or lines that are no exact version with a hash.
    pub fn read(file: &str, bytes: &[u8]) -> Result<Self, Vec<Finding>> {
        let lock = Self::read_or_empty(file, bytes)?;
        if lock.packages.is_empty() {
            return Err(vec![Finding::new(
                FindingKind::Lock,
                file,
                0,
                "the lock is empty",
                "regenerate the lock with knack skill lock",
            )]);
        }
        Ok(lock)
    }

    /// Reads a lock of which no requirement need apply, so that a lock without packages is complete.
    pub fn read_or_empty(file: &str, bytes: &[u8]) -> Result<Self, Vec<Finding>> {
        let read = requirements_txt::read(file, bytes);
        let mut findings = read.findings;
        for line in &read.lines {
            let why = if line.requirement.pinned().is_none() {
                "has no exact version"
            } else if line.hashes.is_empty() {
                "has no hash"
            } else {
                continue;
            };
            let text = format!("{} {why}", line.requirement.name);
            findings.push(Finding::new(
                FindingKind::Lock,
                file,
                line.number,
                text,
                "regenerate the lock with knack skill lock",
            ));
        }
        if findings.is_empty() {
            Ok(Self::of(&read.lines))
        } else {
            findings.truncate(crate::MAX_PACKAGES);
            Err(findings)
        }
    }

    /// The lock without packages.
    pub const fn empty() -> Self {
        Self {
            text: String::new(),
            packages: Vec::new(),
            pins: Vec::new(),
        }
    }

    /// The lock of lines that have each an exact version and a hash.
    pub(crate) fn of(lines: &[Line]) -> Self {
        let mut by_text: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut packages = Vec::new();
        for line in lines {
            let version = line.requirement.pinned().unwrap_or_default();
            packages.push((line.requirement.name.clone(), version.to_owned()));
            let hashes = by_text.entry(line.requirement.to_string()).or_default();
            hashes.extend(line.hashes.iter().map(|hash| hash.to_ascii_lowercase()));
        }
        packages.sort();
        packages.dedup();
        let mut pins: Vec<(String, Requirement)> = lines
            .iter()
            .map(|line| (line.requirement.to_string(), line.requirement.clone()))
            .collect();
        pins.sort_by(|(one, _), (other, _)| one.cmp(other));
        pins.dedup_by(|(one, _), (other, _)| one == other);
        let mut text = String::new();
        for (requirement, mut hashes) in by_text {
            hashes.sort();
            hashes.dedup();
            text.push_str(&requirement);
            for hash in hashes {
                text.push_str(" \\\n    --hash=");
                text.push_str(&hash);
            }
            text.push('\n');
        }
        let pins = pins.into_iter().map(|(_, pin)| pin).collect();
        Self { text, packages, pins }
    }

    /// The text for an installer; equal locks have equal texts.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Name and version of every package, sorted.
    pub fn packages(&self) -> &[(String, String)] {
        &self.packages
    }

    /// Exact versions with the markers under which they are chosen, sorted: a name stands once for each version of it.
    pub fn pins(&self) -> &[Requirement] {
        &self.pins
    }

    /// The pins that may be installed in a sandbox whose Python is not known, for people, sorted: a line for each package, with
    /// its marker where other versions of it are for other Pythons or machines.
    pub fn shown(&self) -> Vec<String> {
        let all: Vec<&Requirement> = self.pins.iter().filter(|pin| pin.may_apply(None)).collect();
        let line = |pin: &Requirement| {
            let fixed = format!("{}=={}", pin.name, pin.pinned().unwrap_or_default());
            let is_only = all
                .iter()
                .all(|other| other.name != pin.name || other.pinned() == pin.pinned());
            match &pin.marker {
                Some(marker) if !is_only => format!("{fixed} ; {marker}"),
                _ => fixed,
            }
        };
        let mut lines: Vec<String> = all.iter().map(|pin| line(pin)).collect();
        lines.sort();
        lines.dedup();
        lines
    }

    /// Whether a normalized name is in it.
    pub fn has(&self, name: &str) -> bool {
        self.packages
            .binary_search_by(|(own, _)| own.as_str().cmp(name))
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_locks_have_one_text() {
        let (one, two) = ("a".repeat(64), "B".repeat(64));
        let first = format!(
            "# by hand\nzlib-ng==1.0 --hash=sha256:{one}\nPillow==10.1 \\\n  --hash=sha256:{two} \\\n  --hash=sha256:{one}\n"
        );
        let second = format!(
            "pillow==10.1 --hash=sha256:{one} --hash=sha256:{}\nzlib_ng==1.0 --hash=sha256:{one}",
            two.to_lowercase()
        );
        let first = Lock::read("requirements.lock", first.as_bytes()).unwrap();
        let second = Lock::read("requirements.lock", second.as_bytes()).unwrap();
        assert_eq!(first, second);
        assert_eq!(Lock::read("again", first.text().as_bytes()).unwrap(), first);
        assert_eq!(first.packages()[0], ("pillow".to_owned(), "10.1".to_owned()));
        assert!(first.has("zlib-ng") && !first.has("zlib"));
    }

    #[test]
    fn what_other_systems_install_is_not_shown_and_what_depends_on_python_says_so() {
        let hash = format!("--hash=sha256:{}", "a".repeat(64));
        let lines = [
            "numpy==2.5.5 ; python_full_version >= '3.12'",
            "numpy==2.4.6 ; python_full_version == '3.11.*'",
            "colorama==0.4.6 ; sys_platform == 'win32'",
            "pycparser==3.12 ; implementation_name != 'PyPy'",
            "six==1.17.0 ; python_full_version < '3.11'",
            "tzdata==1 ; sys_platform == 'linux'",
            "tzdata==2 ; sys_platform == 'win32'",
            "greenlet==3 ; platform_machine == 'x86_64'",
            "greenlet==3 ; platform_machine == 'aarch64'",
        ];
        let text: String = lines.iter().map(|line| format!("{line} {hash}\n")).collect();
        let lock = Lock::read("requirements.lock", text.as_bytes()).unwrap();
        assert_eq!(
            lock.shown(),
            [
                "greenlet==3",
                "numpy==2.4.6 ; python_full_version == \"3.11.*\"",
                "numpy==2.5.5 ; python_full_version >= \"3.12\"",
                "pycparser==3.12",
                "six==1.17.0",
                "tzdata==1",
            ]
        );
    }

    #[test]
    fn a_lock_without_versions_or_hashes_is_none() {
        for (text, why) in [
            ("pillow>=10", "no exact version"),
            ("pillow==10", "no hash"),
            ("", "empty"),
            ("-e .", "builds a folder"),
        ] {
            let findings = Lock::read("requirements.lock", text.as_bytes()).unwrap_err();
            assert!(findings[0].text.contains(why), "{text}: {findings:?}");
        }
    }
}
