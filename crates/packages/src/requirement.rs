//! One requirement (PEP 508): a name, extras, version clauses, a marker. Addresses are no requirements here.

use std::fmt;

use crate::finding::{FindingKind, shown};
use crate::marker::Marker;
use crate::name::{is_name, normalized};
use crate::version_clause::{Operator, VersionClause};

/// Longest requirement: a name, its extras, a dozen clauses and a marker are under 1 KiB.
const MAX_REQUIREMENT_BYTES: usize = 4096;

/// Longest part before the marker: a status has this part whole, with 512 characters for a requirement.
const MAX_BARE_BYTES: usize = 500;

/// A requirement that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// Normalized name.
    pub name: String,
    /// Normalized extras, in their order.
    pub extras: Vec<String>,
    /// Version clauses, as written.
    pub clauses: Vec<VersionClause>,
    /// Where it applies; everywhere without one.
    pub marker: Option<Marker>,
}

/// Why a text is not a requirement: the class, and one clause.
pub type RequirementError = (FindingKind, String);

impl Requirement {
    /// Reads one requirement, without comment and options.
    ///
    /// Errors: an address of any kind, or a text that is not in the grammar.
    pub fn parse(text: &str) -> Result<Self, RequirementError> {
        let text = text.trim();
        let wrong = |why: &str| (FindingKind::Requirement, format!("{}: {why}", shown(text)));
        if text.len() > MAX_REQUIREMENT_BYTES {
            return Err(wrong("a requirement has at most 4096 bytes"));
        }
        if text.chars().any(|letter| letter.is_control() && letter != '\t') {
            return Err(wrong("it contains a control character"));
        }
        let end = text
            .find(|letter: char| !(letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | '_')))
            .unwrap_or(text.len());
        let (name, rest) = text.split_at(end);
        let rest = rest.trim_start();
        if is_address(text, rest) {
            return Err((
                FindingKind::UrlRequirement,
                format!(
                    "{} is a URL; packages are installed from the index, by name",
                    shown(&without_secret(text))
                ),
            ));
        }
        if !is_name(name) {
            return Err(wrong("it does not begin with the name of a package"));
        }
        let (extras, rest) = extras(rest).map_err(wrong)?;
        let (clauses, marker) = match rest.split_once(';') {
            Some((clauses, marker)) => (clauses, Some(marker)),
            None => (rest, None),
        };
        if text.len() - marker.map_or(0, str::len) > MAX_BARE_BYTES {
            return Err(wrong("name, extras and versions have at most 500 bytes"));
        }
        let clauses = clauses.trim();
        let clauses = match clauses.strip_prefix('(') {
            Some(inner) => inner
                .strip_suffix(')')
                .ok_or_else(|| wrong("a bracket is not closed"))?,
            None => clauses,
        };
        let clauses = VersionClause::parse_all(clauses).map_err(wrong)?;
        let marker = marker
            .map(Marker::parse)
            .transpose()
            .map_err(|why| wrong(&format!("its marker cannot be read: {why}")))?;
        Ok(Self {
            name: normalized(name),
            extras,
            clauses,
            marker,
        })
    }

    /// The version that a single `==` clause names exactly.
    pub fn pinned(&self) -> Option<&str> {
        match self.clauses.as_slice() {
            [clause] if clause.operator == Operator::Equal && !clause.version.contains('*') => Some(&clause.version),
            _ => None,
        }
    }

    /// Whether it may count in a sandbox, of a Python (`3.11.2`) if it is known.
    pub fn may_apply(&self, python: Option<&str>) -> bool {
        self.marker
            .as_ref()
            .is_none_or(|marker| marker.holds(python) != Some(false))
    }

    /// Whether it counts in every sandbox, or in none. `None`: the interpreter decides.
    pub fn applies(&self) -> Option<bool> {
        self.marker.as_ref().map_or(Some(true), |marker| marker.holds(None))
    }

    /// Whether it may count for a Python of a version (`3.11.2`) on a machine (`x86_64`).
    pub(crate) fn may_count(&self, version: &str, machine: &str) -> bool {
        let marker = self.marker.as_ref();
        marker.is_none_or(|marker| marker.may_hold(version, machine))
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.name)?;
        if !self.extras.is_empty() {
            write!(formatter, "[{}]", self.extras.join(","))?;
        }
        let clauses: Vec<String> = self.clauses.iter().map(ToString::to_string).collect();
        formatter.write_str(&clauses.join(","))?;
        if let Some(marker) = &self.marker {
            write!(formatter, " ; {marker}")?;
        }
        Ok(())
    }
}

/// `name @ url`, `git+https://...`, `./path`, `C:\path`, `x.whl`.
fn is_address(text: &str, after_name: &str) -> bool {
    let before_marker = text.split(';').next().unwrap_or_default().trim_end();
    let archive = [".whl", ".tar.gz", ".zip", ".tar.bz2"];
    after_name.starts_with('@')
        || before_marker.contains("://")
        || before_marker.starts_with(['.', '/', '~'])
        || before_marker.contains(['/', '\\'])
        || archive
            .iter()
            .any(|end| before_marker.to_ascii_lowercase().ends_with(end))
}

/// The address without user and password: credentials are not repeated.
fn without_secret(text: &str) -> String {
    match (text.split_once("://"), text.rsplit_once('@')) {
        (Some((scheme, rest)), Some((_, host))) if rest.contains('@') => format!("{scheme}://…@{host}"),
        _ => text.to_owned(),
    }
}

fn extras(text: &str) -> Result<(Vec<String>, &str), &'static str> {
    let Some(inner) = text.strip_prefix('[') else {
        return Ok((Vec::new(), text));
    };
    let (inner, rest) = inner.split_once(']').ok_or("its extras are not closed by ]")?;
    let mut extras = Vec::new();
    for extra in inner.split(',').map(str::trim).filter(|extra| !extra.is_empty()) {
        if !is_name(extra) {
            return Err("an extra is not a name");
        }
        extras.push(normalized(extra));
    }
    Ok((extras, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirements_are_read_and_written_in_one_form() {
        for (text, written) in [
            ("Pillow", "pillow"),
            ("pillow>=10.0.0", "pillow>=10.0.0"),
            ("markitdown[PPTX, docx] ~= 0.1", "markitdown[pptx,docx]~=0.1"),
            ("a (>=1, <2)", "a>=1,<2"),
            ("a==1.*", "a==1.*"),
            ("a===1+local", "a===1+local"),
            ("a>=2!1.0rc1", "a>=2!1.0rc1"),
            ("tomli; python_version < \"3.11\"", "tomli ; python_version < \"3.11\""),
            ("a[] ", "a"),
        ] {
            let requirement = Requirement::parse(text).unwrap();
            assert_eq!(requirement.to_string(), written, "{text}");
            assert_eq!(Requirement::parse(written).unwrap(), requirement, "{written}");
        }
        assert_eq!(Requirement::parse("a==1.2").unwrap().pinned(), Some("1.2"));
        assert_eq!(Requirement::parse("a==1.*").unwrap().pinned(), None);
        assert_eq!(Requirement::parse("a>=1").unwrap().pinned(), None);
    }

    #[test]
    fn addresses_are_refused_as_such() {
        for text in [
            "a @ https://example.org/a.whl",
            "a@file:///etc/passwd",
            "git+https://github.com/x/y",
            "https://example.org/a-1-py3-none-any.whl",
            "./local",
            ".",
            "../up",
            "/abs/path",
            "~/x",
            "a-1.0-py3-none-any.whl",
            "sub/dir",
            "C:\\x",
        ] {
            assert_eq!(
                Requirement::parse(text).unwrap_err().0,
                FindingKind::UrlRequirement,
                "{text}"
            );
        }
        let (_, message) = Requirement::parse("a @ https://me:secret@example.org/a.whl").unwrap_err();
        assert!(!message.contains("secret"), "{message}");
    }

    #[test]
    fn other_texts_are_no_requirements() {
        for text in [
            "",
            ">=1",
            "a b",
            "a>",
            "a >= ",
            "a[",
            "a[b c]",
            "a(>=1",
            "a;",
            "a; x == 'y'",
            "a; os_name",
            "a=1",
            "a,b",
            "a\u{0}b",
            &format!("a=={}", "1".repeat(500)),
        ] {
            assert_eq!(
                Requirement::parse(text).unwrap_err().0,
                FindingKind::Requirement,
                "{text}"
            );
        }
    }
}
