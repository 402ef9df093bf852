//! Environment markers (PEP 508): `python_version < "3.11" and sys_platform == "linux"`.

use std::fmt;

use crate::name::normalized;
use crate::version_clause::{Operator, VersionClause};

/// Variables that a marker may name.
const VARIABLES: [&str; 12] = [
    "python_version",
    "python_full_version",
    "os_name",
    "sys_platform",
    "platform_release",
    "platform_system",
    "platform_version",
    "platform_machine",
    "platform_python_implementation",
    "implementation_name",
    "implementation_version",
    "extra",
];

/// The variables that only a lock in the standard format may name: lists of what an installer was asked for.
const OF_LOCKS: [&str; 2] = ["extras", "dependency_groups"];

/// Deepest nesting of brackets: markers in use nest once or twice.
const MAX_DEPTH: usize = 32;

/// A marker that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Marker {
    /// All hold.
    And(Vec<Self>),
    /// At least one holds.
    Or(Vec<Self>),
    /// A comparison.
    Compare(Operand, Comparison, Operand),
}

/// The operator of a marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// The comparison of versions that a clause makes.
    Version(Operator),
    /// The left side is a part of the right one.
    In,
    /// It is not.
    NotIn,
}

/// A marker of a lock, as far as the lists of an installer decide it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Selected {
    /// They decide it.
    Always(bool),
    /// It names none of them any more.
    If(Marker),
}

/// One side of a comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operand {
    /// A variable of the environment.
    Variable(&'static str),
    /// A text.
    Text(String),
}

impl Marker {
    /// Reads a marker. The error is one clause.
    pub fn parse(text: &str) -> Result<Self, String> {
        read(text, &[])
    }

    /// Reads a marker of a lock in the standard format, for an installer that is asked for no extras and for the lock's
    /// `default-groups`. The error is one clause.
    pub(crate) fn of_lock(text: &str, groups: &[&str]) -> Result<Selected, String> {
        read(text, &OF_LOCKS)?.selected(groups)
    }

    fn selected(self, groups: &[&str]) -> Result<Selected, String> {
        let (parts, deciding, join): (_, _, fn(Vec<Self>) -> Self) = match self {
            Self::And(parts) => (parts, false, Self::And),
            Self::Or(parts) => (parts, true, Self::Or),
            Self::Compare(left, operator, right) => {
                let list = |side: &Operand| match side {
                    Operand::Variable(name) => OF_LOCKS.into_iter().find(|list| list == name),
                    Operand::Text(_) => None,
                };
                let is_in = match (&left, list(&left), list(&right)) {
                    (_, None, None) => return Ok(Selected::If(Self::Compare(left, operator, right))),
                    (Operand::Text(wanted), _, Some(name)) => {
                        name == "dependency_groups"
                            && groups.iter().any(|group| normalized(group) == normalized(wanted))
                    }
                    _ => return Err("a list is allowed only to the right of `in` or `not in`".to_owned()),
                };
                return match operator {
                    Comparison::In => Ok(Selected::Always(is_in)),
                    Comparison::NotIn => Ok(Selected::Always(!is_in)),
                    Comparison::Version(_) => Err("a list is allowed only to the right of `in` or `not in`".to_owned()),
                };
            }
        };
        let mut open = Vec::new();
        for part in parts {
            match part.selected(groups)? {
                Selected::Always(value) if value == deciding => return Ok(Selected::Always(value)),
                Selected::Always(_) => {}
                Selected::If(part) => open.push(part),
            }
        }
        if open.is_empty() {
            Ok(Selected::Always(!deciding))
        } else {
            Ok(Selected::If(one_or(open, join)))
        }
    }

    /// Whether it holds in a sandbox: under Linux and CPython, of a version (`3.11.2`) if one is known. `None`: what decides
    /// is not known.
    pub fn holds(&self, python: Option<&str>) -> Option<bool> {
        self.decided(Known { python, machine: None })
    }

    /// Whether it may hold for an interpreter of a version (`3.11.2`) on a machine (`x86_64`).
    pub(crate) fn may_hold(&self, python: &str, machine: &str) -> bool {
        let known = Known {
            python: Some(python),
            machine: Some(machine),
        };
        self.decided(known) != Some(false)
    }

    fn decided(&self, known: Known<'_>) -> Option<bool> {
        match self {
            Self::Compare(left, operator, right) => compared(left, *operator, right, known),
            Self::And(parts) => {
                let all = || parts.iter().map(|part| part.decided(known));
                if all().any(|part| part == Some(false)) {
                    return Some(false);
                }
                all().all(|part| part == Some(true)).then_some(true)
            }
            Self::Or(parts) => {
                let all = || parts.iter().map(|part| part.decided(known));
                if all().any(|part| part == Some(true)) {
                    return Some(true);
                }
                all().all(|part| part == Some(false)).then_some(false)
            }
        }
    }
}

fn read(text: &str, more: &'static [&'static str]) -> Result<Marker, String> {
    let mut reader = Reader {
        rest: text.trim_start(),
        more,
    };
    let marker = reader.any(0)?;
    if reader.rest.is_empty() {
        Ok(marker)
    } else {
        Err("there is text after it".to_owned())
    }
}

/// The properties of an interpreter that are known.
#[derive(Clone, Copy)]
struct Known<'a> {
    python: Option<&'a str>,
    machine: Option<&'a str>,
}

/// The value of a variable in a sandbox, as far as it is the same in all of them.
fn value(name: &str, known: Known<'_>) -> Option<String> {
    let python = known.python;
    let fixed = match name {
        "platform_machine" => known.machine?,
        "os_name" => "posix",
        "sys_platform" => "linux",
        "platform_system" => "Linux",
        "platform_python_implementation" => "CPython",
        "implementation_name" => "cpython",
        // An interpreter that was built of no release ends with `+`.
        "python_full_version" => python?.trim_end_matches('+'),
        "python_version" => {
            let mut numbers = python?.split('.');
            return Some(format!("{}.{}", numbers.next()?, numbers.next()?));
        }
        _ => return None,
    };
    Some(fixed.to_owned())
}

/// A comparison of a variable with a text, in either order.
fn compared(left: &Operand, operator: Comparison, right: &Operand, known: Known<'_>) -> Option<bool> {
    let (name, text, is_turned) = match (left, right) {
        (Operand::Variable(name), Operand::Text(text)) => (*name, text, false),
        (Operand::Text(text), Operand::Variable(name)) => (*name, text, true),
        _ => return None,
    };
    let value = value(name, known)?;
    let (left, right) = if is_turned { (text, &value) } else { (&value, text) };
    match operator {
        Comparison::In => Some(right.contains(left.as_str())),
        Comparison::NotIn => Some(!right.contains(left.as_str())),
        // A pattern stands on the right.
        _ if is_turned && text.contains('*') => None,
        Comparison::Version(operator) if name.starts_with("python") => {
            let clause = VersionClause {
                operator,
                version: right.clone(),
            };
            clause.allows_python(left)
        }
        Comparison::Version(Operator::Equal | Operator::Same) => Some(left == right),
        Comparison::Version(Operator::Unequal) => Some(left != right),
        Comparison::Version(_) => None,
    }
}

struct Reader<'a> {
    rest: &'a str,
    /// Variables besides those of every marker.
    more: &'static [&'static str],
}

impl Reader<'_> {
    fn any(&mut self, depth: usize) -> Result<Marker, String> {
        let mut parts = vec![self.all(depth)?];
        while self.word("or") {
            parts.push(self.all(depth)?);
        }
        Ok(one_or(parts, Marker::Or))
    }

    fn all(&mut self, depth: usize) -> Result<Marker, String> {
        let mut parts = vec![self.one(depth)?];
        while self.word("and") {
            parts.push(self.one(depth)?);
        }
        Ok(one_or(parts, Marker::And))
    }

    fn one(&mut self, depth: usize) -> Result<Marker, String> {
        if depth > MAX_DEPTH {
            return Err("its brackets nest too deep".to_owned());
        }
        if self.token("(") {
            let inner = self.any(depth + 1)?;
            return if self.token(")") {
                Ok(inner)
            } else {
                Err("a bracket is not closed".to_owned())
            };
        }
        let left = self.operand()?;
        let operator = self.operator()?;
        let right = self.operand()?;
        Ok(Marker::Compare(left, operator, right))
    }

    fn operand(&mut self) -> Result<Operand, String> {
        for quote in ['"', '\''] {
            if let Some(rest) = self.rest.strip_prefix(quote) {
                let (text, rest) = rest.split_once(quote).ok_or("a text is not closed by its quote")?;
                self.rest = rest.trim_start();
                return Ok(Operand::Text(text.to_owned()));
            }
        }
        let end = self
            .rest
            .find(|letter: char| !(letter.is_ascii_alphanumeric() || matches!(letter, '_' | '.')))
            .unwrap_or(self.rest.len());
        // Older files write `os.name`.
        let word = self.rest[..end].replace('.', "_");
        let mut names = VARIABLES.iter().chain(self.more);
        let name = names
            .find(|name| **name == word)
            .ok_or("it compares something that is neither a variable nor a quoted text")?;
        self.rest = self.rest[end..].trim_start();
        Ok(Operand::Variable(name))
    }

    fn operator(&mut self) -> Result<Comparison, String> {
        if let Some((operator, rest)) = Operator::read(self.rest) {
            self.rest = rest.trim_start();
            return Ok(Comparison::Version(operator));
        }
        if self.word("in") {
            return Ok(Comparison::In);
        }
        if self.word("not") && self.word("in") {
            return Ok(Comparison::NotIn);
        }
        Err("an operator is missing".to_owned())
    }

    fn token(&mut self, token: &str) -> bool {
        let Some(rest) = self.rest.strip_prefix(token) else {
            return false;
        };
        self.rest = rest.trim_start();
        true
    }

    fn word(&mut self, word: &str) -> bool {
        let rest = self.rest.strip_prefix(word);
        let Some(rest) =
            rest.filter(|rest| !rest.starts_with(|letter: char| letter.is_ascii_alphanumeric() || letter == '_'))
        else {
            return false;
        };
        self.rest = rest.trim_start();
        true
    }
}

fn one_or(mut parts: Vec<Marker>, join: fn(Vec<Marker>) -> Marker) -> Marker {
    if parts.len() == 1 { parts.remove(0) } else { join(parts) }
}

impl fmt::Display for Marker {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Compare(left, operator, right) => write!(formatter, "{left} {operator} {right}"),
            Self::And(parts) => joined(formatter, parts, " and "),
            Self::Or(parts) => joined(formatter, parts, " or "),
        }
    }
}

/// Alternatives inside a conjunction are in brackets: the text parses to the same value.
fn joined(formatter: &mut fmt::Formatter<'_>, parts: &[Marker], word: &str) -> fmt::Result {
    for (index, part) in parts.iter().enumerate() {
        if index > 0 {
            formatter.write_str(word)?;
        }
        match part {
            Marker::Compare(..) => write!(formatter, "{part}")?,
            _ => write!(formatter, "({part})")?,
        }
    }
    Ok(())
}

impl fmt::Display for Comparison {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(operator) => operator.fmt(formatter),
            Self::In => formatter.write_str("in"),
            Self::NotIn => formatter.write_str("not in"),
        }
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(name) => formatter.write_str(name),
            Self::Text(text) if text.contains('"') => write!(formatter, "'{text}'"),
            Self::Text(text) => write!(formatter, "\"{text}\""),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_read_and_written_in_one_form() {
        for (text, written) in [
            ("python_version<'3.11'", "python_version < \"3.11\""),
            ("os.name == \"posix\"", "os_name == \"posix\""),
            ("'linux' in sys_platform", "\"linux\" in sys_platform"),
            ("platform_machine not in 'arm64'", "platform_machine not in \"arm64\""),
            (
                "(extra == 'x' and os_name=='a') or python_version ~= '3.8'",
                "(extra == \"x\" and os_name == \"a\") or python_version ~= \"3.8\"",
            ),
        ] {
            let marker = Marker::parse(text).unwrap();
            assert_eq!(marker.to_string(), written);
            assert_eq!(Marker::parse(written).unwrap(), marker);
        }
    }

    #[test]
    fn a_marker_holds_in_a_sandbox_or_not_or_depends_on_what_is_not_known() {
        for (text, unknown, known) in [
            ("sys_platform == 'linux'", Some(true), Some(true)),
            ("sys_platform == 'win32'", Some(false), Some(false)),
            ("'linux' in sys_platform", Some(true), Some(true)),
            ("os_name not in 'nt java'", Some(true), Some(true)),
            ("implementation_name != 'PyPy'", Some(true), Some(true)),
            ("python_full_version < '3.11'", None, Some(false)),
            ("python_full_version == '3.11.*'", None, Some(true)),
            ("python_full_version >= '3.11.5'", None, Some(false)),
            ("python_version == '3.11'", None, Some(true)),
            ("'3.10' < python_version", None, Some(true)),
            ("'3.12' <= python_version", None, Some(false)),
            ("platform_machine == 'x86_64'", None, None),
            ("extra == 'x'", None, None),
            ("sys_platform < 'm'", None, None),
            (
                "python_version < '3.12' and sys_platform == 'win32'",
                Some(false),
                Some(false),
            ),
            ("python_version < '3.12' and os_name == 'posix'", None, Some(true)),
            ("python_version < '3.11' or os_name == 'posix'", Some(true), Some(true)),
            ("python_version < '3.11' or os_name == 'nt'", None, Some(false)),
            ("python_version < '3.11' or platform_machine == 'x86_64'", None, None),
        ] {
            let marker = Marker::parse(text).unwrap();
            assert_eq!(
                (marker.holds(None), marker.holds(Some("3.11.2"))),
                (unknown, known),
                "{text}"
            );
        }
    }

    #[test]
    fn a_marker_of_a_lock_is_decided_for_no_extras_and_the_default_groups() {
        let text = |text: &str| match Marker::of_lock(text, &["default", "Web_Site"]) {
            Ok(Selected::Always(holds)) => holds.to_string(),
            Ok(Selected::If(marker)) => marker.to_string(),
            Err(why) => why,
        };
        for (marker, selected) in [
            ("'default' in dependency_groups", "true"),
            ("\"web-site\" in dependency_groups", "true"),
            ("'dev' in dependency_groups", "false"),
            ("'dev' not in dependency_groups", "true"),
            ("'x' in extras", "false"),
            ("'x' not in extras", "true"),
            ("'x' in extras or 'dev' in dependency_groups", "false"),
            ("'x' in extras or 'default' in dependency_groups", "true"),
            (
                "os_name == 'posix' and 'default' in dependency_groups",
                "os_name == \"posix\"",
            ),
            ("os_name == 'posix' and 'dev' in dependency_groups", "false"),
            ("os_name == 'posix' or 'x' in extras", "os_name == \"posix\""),
            ("os_name == 'posix' or 'x' not in extras", "true"),
            (
                "(os_name == 'a' or os_name == 'b') and ('default' in dependency_groups or 'x' in extras)",
                "os_name == \"a\" or os_name == \"b\"",
            ),
            (
                "'x' == extras",
                "a list is allowed only to the right of `in` or `not in`",
            ),
            (
                "extras in 'x'",
                "a list is allowed only to the right of `in` or `not in`",
            ),
            (
                "os_name in extras",
                "a list is allowed only to the right of `in` or `not in`",
            ),
        ] {
            assert_eq!(text(marker), selected, "{marker}");
        }
        assert!(
            Marker::parse("'x' in extras")
                .unwrap_err()
                .contains("neither a variable")
        );
    }

    #[test]
    fn a_machine_that_is_known_decides() {
        for (text, may) in [
            ("platform_machine == 'x86_64'", true),
            ("platform_machine != 'x86_64'", false),
            ("platform_machine in 'arm64 aarch64'", false),
            ("platform_machine == 'aarch64' or python_version == '3.11'", true),
            ("platform_machine == 'x86_64' and python_version == '3.12'", false),
            ("platform_release == '5'", true),
        ] {
            assert_eq!(Marker::parse(text).unwrap().may_hold("3.11.2", "x86_64"), may, "{text}");
        }
    }

    /// As uv takes markers, which installs what they leave.
    #[test]
    fn a_python_before_its_release_counts_as_its_release() {
        for (text, version, holds) in [
            ("python_full_version >= '3.15'", "3.15.0rc1", Some(true)),
            ("python_full_version >= '3.15.0rc1'", "3.15.0rc1", Some(true)),
            ("python_full_version == '3.15.0rc1'", "3.15.0rc1", Some(true)),
            ("python_full_version > '3.15.0rc1'", "3.15.0", Some(false)),
            ("python_full_version < '3.15'", "3.15.0rc1", Some(false)),
            ("python_version >= '3.15'", "3.15.0rc1", Some(true)),
            ("python_full_version >= '3.13'", "3.13.0+", Some(true)),
            ("python_version >= '3.6.*'", "3.11.2", Some(true)),
            ("python_version < '3.6.*'", "3.11.2", Some(false)),
            ("python_version >= 'x'", "3.11.2", None),
            ("'3.*' == python_version", "3.11.2", None),
        ] {
            let marker = Marker::parse(text).unwrap();
            assert_eq!(marker.holds(Some(version)), holds, "{text} {version}");
        }
    }

    #[test]
    fn texts_that_are_none_say_why() {
        for (text, why) in [
            ("", "neither a variable"),
            ("python_version", "operator"),
            ("python_version < ", "neither a variable"),
            ("python_version < '3", "quote"),
            ("(os_name == 'a'", "bracket"),
            ("os_name == 'a' os_name", "after it"),
            ("shell == 'a'", "neither a variable"),
            ("os_name not 'a'", "operator"),
        ] {
            assert!(Marker::parse(text).unwrap_err().contains(why), "{text}");
        }
        assert!(Marker::parse(&"(".repeat(10_000)).unwrap_err().contains("deep"));
    }
}
