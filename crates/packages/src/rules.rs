//! A runtime's rules about the packages of its skills.

use std::fmt;

use crate::State;
use crate::finding::shown;
use crate::requirement::Requirement;
use crate::version_clause::allows;

/// Rules of a runtime; without a manifest there are none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// Versions that may be chosen. They add no package.
    constraints: Vec<Requirement>,
    /// The last day whose files may be chosen.
    exclude_newer: Option<String>,
    /// Declared packages need a lock.
    require_lock: bool,
    /// Skills that declare nothing have the standard environment.
    standard: bool,
    allowed: Allowed,
}

/// The packages that skills may have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Allowed {
    /// The packages that they declare.
    #[default]
    Declared,
    /// The standard environment and nothing else.
    Standard,
    /// None.
    Nothing,
}

/// The kinds of rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BrokenRule {
    /// Skills may not have these packages.
    Allowed,
    /// A lock is missing.
    Lock,
    /// A constraint, or one that cannot be read.
    Constraint,
}

/// The part of a declaration that rules apply to.
#[derive(Debug, Clone, Copy)]
pub enum Versions<'a> {
    /// Exact versions of a lock, each with the marker under which it is chosen.
    Locked(&'a [Requirement]),
    /// Requirements without a lock.
    Open(&'a [Requirement]),
}

/// A rule that a declaration breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleViolation {
    /// The rule.
    pub rule: BrokenRule,
    /// The problem and what to do.
    pub text: String,
}

impl RuleViolation {
    /// The state of the packages.
    pub const fn state(&self) -> State {
        match self.rule {
            BrokenRule::Allowed | BrokenRule::Lock => State::Refused,
            BrokenRule::Constraint => State::Conflict,
        }
    }
}

impl fmt::Display for RuleViolation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl Rules {
    /// Reads the rules of a manifest. The error names the field.
    pub fn read(constraints: &[String], require_lock: bool) -> Result<Self, String> {
        let mut read = Vec::new();
        for (index, text) in constraints.iter().enumerate() {
            let wrong = |why: &str| {
                format!("spec.packages.constraints[{index}]: {why}; write a name and versions, such as \"mcp<2\"")
            };
            let constraint = Requirement::parse(text).map_err(|(_, why)| wrong(&why))?;
            if constraint.clauses.is_empty() || !constraint.extras.is_empty() {
                return Err(wrong("a constraint must have versions and no extras"));
            }
            if let Some(clause) = constraint.clauses.iter().find(|clause| !clause.is_comparable()) {
                return Err(wrong(&format!(
                    "{} is not a valid version clause (PEP 440)",
                    shown(&clause.to_string())
                )));
            }
            read.push(constraint);
        }
        Ok(Self {
            constraints: read,
            exclude_newer: None,
            require_lock,
            standard: false,
            allowed: Allowed::default(),
        })
    }

    /// These rules, under which versions are chosen among the files of an index until the end of a day (`2026-07-01`); `None`:
    /// among all. The error names the field.
    pub fn excluding_newer(mut self, day: Option<&str>) -> Result<Self, String> {
        let day = day.map(read_day).transpose();
        self.exclude_newer = day.map_err(|why| format!("spec.packages.excludeNewer: {why}"))?;
        Ok(self)
    }

    /// The moment until which an index counts, for an installer, in UTC: the end of that day, or the moment that a skill asks for
    /// (`exclude_newer` of its declaration) if that is earlier.
    pub fn exclude_newer(&self, asked: Option<&str>) -> Option<String> {
        // A day alone would end in the time zone of the machine.
        let end = self.exclude_newer.as_ref().map(|day| format!("{day}T23:59:59Z"));
        end.into_iter().chain(asked.map(str::to_owned)).min()
    }

    /// These rules, under which skills may have these packages.
    #[must_use]
    pub fn allowing(mut self, allowed: Allowed) -> Self {
        self.allowed = allowed;
        self
    }

    /// The violation of a skill that declares packages which it may not have; `is_standard`: they are the standard environment.
    pub fn forbidden(&self, is_standard: bool) -> Option<RuleViolation> {
        let text = match self.allowed {
            Allowed::Declared => return None,
            Allowed::Standard if is_standard => return None,
            Allowed::Standard => {
                "spec.packages.allowed of the runtime is Standard: a skill may have no packages but the standard environment; declare packages.standard, or use another runtime"
            }
            Allowed::Nothing => {
                "spec.packages.allowed of the runtime is None: a skill may not have packages; use another runtime"
            }
        };
        Some(RuleViolation {
            rule: BrokenRule::Allowed,
            text: text.to_owned(),
        })
    }

    /// These rules, which give the standard environment to skills that declare nothing, or do not.
    #[must_use]
    pub fn with_standard(mut self, standard: bool) -> Self {
        self.standard = standard;
        self
    }

    /// Whether they give the standard environment to skills that declare nothing.
    pub const fn gives_standard(&self) -> bool {
        self.standard
    }

    /// The constraints for an installer, sorted; equal rules have equal texts. Empty without any.
    pub fn constraints_text(&self) -> String {
        let mut lines: Vec<String> = self.constraints.iter().map(|line| format!("{line}\n")).collect();
        lines.sort();
        lines.dedup();
        lines.concat()
    }

    /// What decides which versions are chosen: equal rules have equal texts. Empty where every version may be.
    pub fn choice_text(&self) -> String {
        let day = self.exclude_newer.iter().map(|day| format!("exclude-newer {day}\n"));
        self.constraints_text() + &day.collect::<String>()
    }

    /// The rule that a declaration breaks, if any. A conflict that only an index can show is left to the installer, and so is one that
    /// depends on the Python of the sandbox (`3.11.2`) where that is not known.
    pub fn violation(&self, versions: Versions<'_>, python: Option<&str>) -> Option<RuleViolation> {
        match versions {
            Versions::Open(_) if self.require_lock => Some(RuleViolation {
                rule: BrokenRule::Lock,
                text:
                    "packages are declared without a lock, but spec.packages.requireLock of the runtime requires one; write requirements.lock with knack skill lock, or pylock.toml"
                        .to_owned(),
            }),
            Versions::Open(requirements) => requirements
                .iter()
                .find_map(|requirement| self.conflict(&requirement.name, requirement.pinned()?)),
            Versions::Locked(pins) => self.excluded(pins, python),
        }
    }

    /// The violation of a skill that declares packages of Node without a lock.
    pub fn unlocked_node(&self) -> Option<RuleViolation> {
        self.require_lock.then(|| RuleViolation {
            rule: BrokenRule::Lock,
            text: "packages of Node are declared without package-lock.json, but spec.packages.requireLock of the runtime requires a \
                   lock; write it with knack skill lock"
                .to_owned(),
        })
    }

    /// Whether a constraint excludes one of these versions of a lock. Then it depends on the Python of the sandbox whether the lock
    /// may be installed, so what is built under these rules is another environment than without them.
    pub fn exclude_any(&self, pins: &[Requirement]) -> bool {
        let mut pins = pins.iter().filter(|pin| pin.may_apply(None));
        pins.any(|pin| self.conflict(&pin.name, pin.pinned().unwrap_or_default()).is_some())
    }

    /// A package of a lock that has no version which may be chosen in the sandbox and a constraint allows.
    fn excluded(&self, pins: &[Requirement], python: Option<&str>) -> Option<RuleViolation> {
        let mut found: Option<(&str, Option<RuleViolation>)> = None;
        // Versions of one name stand together.
        for pin in pins.iter().filter(|pin| pin.may_apply(python)) {
            let conflict = self.conflict(&pin.name, pin.pinned().unwrap_or_default());
            found = match found {
                Some((name, broken)) if name == pin.name => Some((name, broken.and(conflict))),
                Some((_, Some(broken))) => return Some(broken),
                _ => Some((&pin.name, conflict)),
            };
        }
        found.and_then(|(_, broken)| broken)
    }

    /// A constraint under a marker may hold elsewhere only; it is left to the installer. A version that cannot be compared is not
    /// among those that may be chosen.
    fn conflict(&self, name: &str, version: &str) -> Option<RuleViolation> {
        let constraint = self.constraints.iter().find(|constraint| {
            constraint.name == name && constraint.marker.is_none() && allows(&constraint.clauses, version) != Some(true)
        })?;
        Some(RuleViolation {
            rule: BrokenRule::Constraint,
            text: format!(
                "{name}=={version} is pinned, but spec.packages.constraints of the runtime has {constraint}; declare or \
                 lock another version, or change the constraint"
            ),
        })
    }
}

/// A day as RFC 3339 writes it. Errors: it is none.
pub fn read_day(text: &str) -> Result<String, String> {
    let no_day = || format!("{} is not a day; write one such as 2026-07-01", shown(text));
    let is_written = text.len() == 10
        && text.bytes().enumerate().all(|(at, byte)| match at {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        });
    let number = |from: usize, to: usize| text.get(from..to).and_then(|digits| digits.parse::<u32>().ok());
    let (Some(year), Some(month), Some(day), true) = (number(0, 4), number(5, 7), number(8, 10), is_written) else {
        return Err(no_day());
    };
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => 0,
    };
    if !text.starts_with("20") || day == 0 || day > last {
        return Err(no_day());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_day_of_files_is_a_day_of_the_calendar() {
        for (text, is_day) in [
            ("2026-07-01", true),
            ("2028-02-29", true),
            ("2026-02-29", false),
            ("2026-04-31", false),
            ("2026-13-01", false),
            ("2026-07-00", false),
            ("2026-7-1", false),
            ("2026-07-01T00:00:00Z", false),
            ("1999-07-01", false),
            ("+026-07-01", false),
            ("", false),
        ] {
            let read = Rules::default().excluding_newer(Some(text));
            assert_eq!(read.is_ok(), is_day, "{text}");
        }
        let rules = |day| rules(&["mcp<2"], false).unwrap().excluding_newer(day).unwrap();
        assert_eq!(rules(None).choice_text(), "mcp<2\n");
        assert_eq!(
            rules(Some("2026-07-01")).choice_text(),
            "mcp<2\nexclude-newer 2026-07-01\n"
        );
        let end = "2026-07-01T23:59:59Z";
        let (earlier, later) = ("2026-07-01T12:00:00Z", "2026-07-02T00:00:00Z");
        for (day, moment, expected) in [
            (Some("2026-07-01"), None, Some(end)),
            (Some("2026-07-01"), Some(later), Some(end)),
            (Some("2026-07-01"), Some(earlier), Some(earlier)),
            (None, Some(later), Some(later)),
            (None, None, None),
        ] {
            let found = rules(day).exclude_newer(moment);
            assert_eq!(found.as_deref(), expected, "{day:?} {moment:?}");
        }
    }

    fn rules(constraints: &[&str], require_lock: bool) -> Result<Rules, String> {
        let constraints: Vec<String> = constraints.iter().map(|text| (*text).to_owned()).collect();
        Rules::read(&constraints, require_lock)
    }

    #[test]
    fn a_constraint_is_a_name_with_versions() {
        for (text, part) in [
            ("mcp", "must have versions"),
            ("mcp[cli]<2", "no extras"),
            ("git+https://u:secret@x/y", "is a URL"),
            ("", "does not begin with"),
            ("mcp<banana1", "\"<banana1\" is not a valid version clause"),
            ("mcp<1.*", "is not a valid version clause"),
        ] {
            let error = rules(&["six<2", text], false).unwrap_err();
            assert!(
                error.starts_with("spec.packages.constraints[1]: ")
                    && error.contains(part)
                    && !error.contains("secret"),
                "{text}: {error}"
            );
        }
        let read = rules(&["six<2", "MCP <2 , >=1", "six<2"], false).unwrap();
        assert_eq!(read.constraints_text(), "mcp<2,>=1\nsix<2\n");
        assert_eq!(Rules::default().constraints_text(), "");
    }

    #[test]
    fn what_breaks_a_rule_is_reported_with_the_rule() {
        let locked: Vec<Requirement> = ["mcp==1.9.4", "six==1.16"]
            .iter()
            .map(|line| Requirement::parse(line).unwrap())
            .collect();
        let open = |text: &str| vec![Requirement::parse(text).unwrap()];
        for (constraints, lock, declared, broken) in [
            (&[][..], false, None, None),
            (&[], true, None, None),
            (&["mcp<2"], true, None, None),
            (
                &["mcp>=2"],
                false,
                None,
                Some((State::Conflict, "mcp==1.9.4 is pinned")),
            ),
            (&["mcp>=2 ; python_version < '3.9'"], false, None, None),
            (&["other>=2"], false, None, None),
            // Before a release are its pre-releases, and after it its post-releases.
            (
                &["mcp<2"],
                false,
                Some("mcp==2.0rc1"),
                Some((State::Conflict, "has mcp<2")),
            ),
            (
                &["mcp>=2"],
                false,
                Some("mcp==2.0rc1"),
                Some((State::Conflict, "has mcp>=2")),
            ),
            (&["mcp>=2rc1"], false, Some("mcp==2.0rc1"), None),
            (
                &["mcp==1.9"],
                false,
                Some("mcp==1.9.post1"),
                Some((State::Conflict, "mcp==1.9.post1")),
            ),
            (
                &["mcp>1.9"],
                false,
                Some("mcp==1.9.post1"),
                Some((State::Conflict, "has mcp>1.9")),
            ),
            (&["mcp!=1.9"], false, Some("mcp==1.9.post1"), None),
            (
                &["mcp<2"],
                false,
                Some("mcp==1!0.1"),
                Some((State::Conflict, "mcp==1!0.1")),
            ),
            (
                &["mcp<2"],
                false,
                Some("mcp==2004d1x"),
                Some((State::Conflict, "has mcp<2")),
            ),
            (&[], true, Some("mcp"), Some((State::Refused, "knack skill lock"))),
            (&["mcp<2"], false, Some("mcp>=1"), None),
            (
                &["mcp<2"],
                false,
                Some("mcp==2.1"),
                Some((State::Conflict, "has mcp<2")),
            ),
        ] {
            let rules = rules(constraints, lock).unwrap();
            let asked: Option<Vec<Requirement>> = declared.map(open);
            let versions = asked.as_deref().map_or(Versions::Locked(&locked), Versions::Open);
            let found = rules.violation(versions, None);
            match (found, broken) {
                (None, None) => {}
                (Some(found), Some((state, part))) => {
                    assert!(found.state() == state && found.text.contains(part), "{found:?}");
                }
                (found, broken) => panic!("{constraints:?} {declared:?}: {found:?}, {broken:?}"),
            }
        }
    }

    #[test]
    fn of_a_lock_with_a_version_for_each_python_the_one_of_the_sandbox_counts() {
        let lock: Vec<Requirement> = [
            "numpy==2.2.6 ; python_full_version < '3.11'",
            "numpy==2.4.6 ; python_full_version == '3.11.*'",
            "numpy==2.5.5 ; python_full_version >= '3.12'",
            "pywin==1 ; sys_platform == 'win32'",
        ]
        .iter()
        .map(|line| Requirement::parse(line).unwrap())
        .collect();
        for (constraint, unknown, known) in [
            ("numpy>=2.3", None, None),
            ("numpy<2.5", None, None),
            ("numpy<2.3", None, Some("numpy==2.4.6")),
            ("numpy>=2.5", None, Some("numpy==2.4.6")),
            ("numpy<2", Some("numpy==2."), Some("numpy==2.4.6")),
            ("pywin<1", None, None),
        ] {
            let rules = rules(&[constraint], false).unwrap();
            assert_eq!(rules.exclude_any(&lock), constraint != "pywin<1", "{constraint}");
            for (python, part) in [(None, unknown), (Some("3.11.2"), known)] {
                let violation = rules.violation(Versions::Locked(&lock), python);
                match (&violation, part) {
                    (None, None) => {}
                    (Some(violation), Some(part)) => {
                        assert!(violation.text.contains(part), "{constraint}: {violation}");
                    }
                    _ => panic!("{constraint} {python:?}: {violation:?}, {part:?}"),
                }
            }
        }
    }
}
