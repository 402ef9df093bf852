//! A runtime's rules about the packages of its skills.

use std::fmt;

use crate::State;
use crate::marker::allows;
use crate::requirement::Requirement;

/// Rules of a runtime; without a manifest there are none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// Versions that may be chosen. They add no package.
    constraints: Vec<Requirement>,
    /// Declared packages need a lock.
    require_lock: bool,
    /// Skills that declare nothing have the standard environment.
    standard: bool,
}

/// The part of a declaration that rules apply to.
#[derive(Debug, Clone, Copy)]
pub enum Versions<'a> {
    /// Exact versions of a lock: name and version.
    Locked(&'a [(String, String)]),
    /// Requirements without a lock.
    Open(&'a [Requirement]),
}

/// A rule that a declaration breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleViolation {
    /// `Refused` without a lock, `Conflict` with a constraint.
    pub state: State,
    /// The problem and what to do.
    pub text: String,
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
                return Err(wrong("a constraint has versions and no extras"));
            }
            read.push(constraint);
        }
        Ok(Self {
            constraints: read,
            require_lock,
            standard: false,
        })
    }

    /// The same rules, which give the standard environment to skills that declare nothing, or do not.
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

    /// The rule that a declaration breaks, if any. A conflict that only an index can show is left to the installer.
    pub fn violation(&self, versions: Versions<'_>) -> Option<RuleViolation> {
        match versions {
            Versions::Open(_) if self.require_lock => Some(RuleViolation {
                state: State::Refused,
                text:
                    "packages are declared without a lock, and spec.packages.requireLock of the runtime demands one; \
                       write requirements.lock with knack skill lock"
                        .to_owned(),
            }),
            Versions::Open(requirements) => requirements
                .iter()
                .find_map(|requirement| self.conflict(&requirement.name, requirement.pinned()?)),
            Versions::Locked(packages) => packages.iter().find_map(|(name, version)| self.conflict(name, version)),
        }
    }

    /// A constraint under a marker may hold elsewhere only; it is left to the installer.
    fn conflict(&self, name: &str, version: &str) -> Option<RuleViolation> {
        let constraint = self.constraints.iter().find(|constraint| {
            constraint.name == name && constraint.marker.is_none() && !allows(&constraint.clauses, version)
        })?;
        Some(RuleViolation {
            state: State::Conflict,
            text: format!(
                "{name}=={version} is fixed, and spec.packages.constraints of the runtime has {constraint}; declare or \
                 lock another version, or change the constraint"
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(constraints: &[&str], require_lock: bool) -> Result<Rules, String> {
        let constraints: Vec<String> = constraints.iter().map(|text| (*text).to_owned()).collect();
        Rules::read(&constraints, require_lock)
    }

    #[test]
    fn a_constraint_is_a_name_with_versions() {
        for (text, part) in [
            ("mcp", "has versions"),
            ("mcp[cli]<2", "no extras"),
            ("git+https://u:secret@x/y", "is an address"),
            ("", "does not begin with"),
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
        let locked = vec![
            ("mcp".to_owned(), "1.9.4".to_owned()),
            ("six".to_owned(), "1.16".to_owned()),
        ];
        let open = |text: &str| vec![Requirement::parse(text).unwrap()];
        for (constraints, lock, declared, broken) in [
            (&[][..], false, None, None),
            (&[], true, None, None),
            (&["mcp<2"], true, None, None),
            (&["mcp>=2"], false, None, Some((State::Conflict, "mcp==1.9.4 is fixed"))),
            (&["mcp>=2 ; python_version < '3.9'"], false, None, None),
            (&["other>=2"], false, None, None),
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
            let found = rules.violation(versions);
            match (found, broken) {
                (None, None) => {}
                (Some(found), Some((state, part))) => {
                    assert!(found.state == state && found.text.contains(part), "{found:?}");
                }
                (found, broken) => panic!("{constraints:?} {declared:?}: {found:?}, {broken:?}"),
            }
        }
    }
}
