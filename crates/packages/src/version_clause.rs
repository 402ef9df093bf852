//! Clauses of versions (PEP 440): `>=1.2,<2`.

use std::cmp::Ordering;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::version::{Version, release_of};

/// The operator of a version clause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// `===`: the same text.
    Same,
    /// `==`.
    Equal,
    /// `~=`: the same up to the last number, or later.
    Compatible,
    /// `!=`.
    Unequal,
    /// `<=`.
    AtMost,
    /// `>=`.
    AtLeast,
    /// `<`.
    Below,
    /// `>`.
    Above,
}

impl Operator {
    /// All of them, longer ones before those that they begin with.
    const ALL: [Self; 8] = [
        Self::Same,
        Self::Equal,
        Self::Compatible,
        Self::Unequal,
        Self::AtMost,
        Self::AtLeast,
        Self::Below,
        Self::Above,
    ];

    /// The operator as it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Same => "===",
            Self::Equal => "==",
            Self::Compatible => "~=",
            Self::Unequal => "!=",
            Self::AtMost => "<=",
            Self::AtLeast => ">=",
            Self::Below => "<",
            Self::Above => ">",
        }
    }

    /// The operator that a text begins with, and what follows.
    pub(crate) fn read(text: &str) -> Option<(Self, &str)> {
        let mut all = Self::ALL.into_iter();
        all.find_map(|operator| Some((operator, text.strip_prefix(operator.as_str())?)))
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// A version clause: `>=1.2`. Serialized as operator and version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "(String, String)", try_from = "(String, String)")]
pub struct VersionClause {
    /// The operator.
    pub operator: Operator,
    /// The version as written, which may be none of PEP 440.
    pub version: String,
}

impl VersionClause {
    /// Reads a clause. The error is one clause of a sentence.
    fn parse(text: &str) -> Result<Self, &'static str> {
        let (operator, version) =
            Operator::read(text.trim()).ok_or("a version clause begins with ==, ~=, !=, <=, >=, < or >")?;
        let version = version.trim();
        let legal =
            |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '+' | '!' | '*' | '-' | '_');
        if version.is_empty()
            || !version.chars().all(legal)
            || !version.contains(|letter: char| letter.is_ascii_digit())
        {
            return Err("a version clause has no version");
        }
        Ok(Self {
            operator,
            version: version.to_owned(),
        })
    }

    /// Clauses between commas. The error is one clause of a sentence.
    pub(crate) fn parse_all(text: &str) -> Result<Vec<Self>, &'static str> {
        if text.trim().is_empty() {
            return Ok(Vec::new());
        }
        text.split(',').map(Self::parse).collect()
    }

    /// Whether it can be compared with versions.
    pub(crate) fn is_comparable(&self) -> bool {
        self.operator == Operator::Same || self.allows("0").is_some()
    }

    /// Whether it allows a version. `None`: the version, or the clause, is not of PEP 440.
    pub(crate) fn allows(&self, version: &str) -> Option<bool> {
        match self.operator {
            Operator::Same => Some(version.trim().eq_ignore_ascii_case(self.version.trim())),
            operator => satisfies(&Version::parse(version)?, operator, &self.version),
        }
    }

    /// Whether it allows a Python of a version. A pre-release counts as its release, on both sides, as uv takes it, which installs: who
    /// tries `3.15.0rc1` means 3.15. So does a pattern beside an operator that knows none: `>=3.6.*` is in use.
    pub(crate) fn allows_python(&self, version: &str) -> Option<bool> {
        let is_pattern = self.version.ends_with(".*");
        match self.operator {
            Operator::Same => self.allows(version),
            Operator::Equal | Operator::Unequal if is_pattern => self.allows(release_text(version)),
            operator => {
                let version = Version::parse(release_text(version))?;
                satisfies(&version, operator, release_text(&self.version))
            }
        }
    }
}

impl fmt::Display for VersionClause {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}{}", self.operator, self.version)
    }
}

impl From<VersionClause> for (String, String) {
    fn from(clause: VersionClause) -> Self {
        (clause.operator.to_string(), clause.version)
    }
}

impl TryFrom<(String, String)> for VersionClause {
    type Error = &'static str;

    fn try_from((operator, version): (String, String)) -> Result<Self, Self::Error> {
        let read = Operator::read(&operator).filter(|(_, rest)| rest.is_empty());
        let (operator, _) = read.ok_or("not the operator of a version clause")?;
        Ok(Self { operator, version })
    }
}

/// The versions of Python that a file asks for. Serialized as file and clauses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "(String, Vec<VersionClause>)", from = "(String, Vec<VersionClause>)")]
pub struct RequiredPython {
    /// The file.
    pub file: String,
    /// The clauses, at least one.
    pub clauses: Vec<VersionClause>,
}

impl RequiredPython {
    /// Whether a Python of a version is among them. A clause that cannot be read refuses none.
    pub(crate) fn allows(&self, version: &str) -> bool {
        let mut clauses = self.clauses.iter();
        clauses.all(|clause| clause.allows_python(version) != Some(false))
    }
}

impl From<RequiredPython> for (String, Vec<VersionClause>) {
    fn from(required: RequiredPython) -> Self {
        (required.file, required.clauses)
    }
}

impl From<(String, Vec<VersionClause>)> for RequiredPython {
    fn from((file, clauses): (String, Vec<VersionClause>)) -> Self {
        Self { file, clauses }
    }
}

/// The numbers that a version begins with.
fn release_text(version: &str) -> &str {
    let end = version.find(|letter: char| !(letter.is_ascii_digit() || letter == '.'));
    version[..end.unwrap_or(version.len())].trim_end_matches('.')
}

/// Whether clauses such as `>=1,<2` allow a version. `None`: the version, or a clause, is not of PEP 440.
pub(crate) fn allows(clauses: &[VersionClause], version: &str) -> Option<bool> {
    let mut all = true;
    for clause in clauses {
        all &= clause.allows(version)?;
    }
    Some(all)
}

fn satisfies(version: &Version, operator: Operator, wanted: &str) -> Option<bool> {
    if let Some(prefix) = wanted.strip_suffix(".*") {
        let (epoch, numbers) = release_of(prefix)?;
        let begins = version.begins_with(epoch, &numbers);
        return match operator {
            Operator::Equal => Some(begins),
            Operator::Unequal => Some(!begins),
            _ => None,
        };
    }
    let public = version.public();
    let wanted_version = Version::parse(wanted)?;
    let is_equal = if wanted_version.is_local() {
        *version == wanted_version
    } else {
        public == wanted_version
    };
    if wanted_version.is_local() && !matches!(operator, Operator::Equal | Operator::Unequal) {
        return None;
    }
    let order = public.cmp(&wanted_version);
    let is_of_base = version.has_base_of(&wanted_version);
    Some(match operator {
        Operator::Equal => is_equal,
        Operator::Unequal => !is_equal,
        Operator::AtMost => order != Ordering::Greater,
        Operator::AtLeast => order != Ordering::Less,
        // Versions before the release of the clause that are of that release do not count, nor those after it.
        Operator::Below => {
            let is_excluded = is_of_base && version.is_prerelease() && !wanted_version.is_prerelease();
            order == Ordering::Less && !is_excluded
        }
        Operator::Above => {
            let is_excluded = is_of_base && version.is_postrelease() && !wanted_version.is_postrelease();
            order == Ordering::Greater && !is_excluded
        }
        // Compatible release: the same up to the number before the last one.
        Operator::Compatible => {
            let (epoch, mut numbers) = release_of(wanted)?;
            numbers.pop();
            if numbers.is_empty() {
                return None;
            }
            order != Ordering::Less && version.begins_with(epoch, &numbers)
        }
        // A comparison of texts.
        Operator::Same => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clauses_allow_what_pep_440_says() {
        for (clause, allowed, refused) in [
            (
                "==1.1",
                &["1.1", "1.1.0", "1.1+local"][..],
                &["1.1.post1", "1.1rc1", "1.10"][..],
            ),
            ("==1.1+a", &["1.1+a"], &["1.1", "1.1+b"]),
            (
                "==1.1.*",
                &["1.1", "1.1.5", "1.1a1", "1.1.post1"],
                &["1.10", "1!1.1", "1"],
            ),
            ("==1.0.*", &["1", "1.0.3"], &["1.1"]),
            ("!=1.1.*", &["1.2"], &["1.1.5"]),
            ("!=1.1", &["1.1.post1", "1.1rc1"], &["1.1", "1.1+x"]),
            (
                "<2",
                &["1.9", "1.9rc1", "1.9.post1"],
                &["2.0rc1", "2.0.dev1", "2", "1!0.1"],
            ),
            ("<2rc2", &["2rc1", "2.dev1", "1"], &["2rc2", "2"]),
            ("<=2", &["2", "2rc1", "2+x"], &["2.post1"]),
            (">1.7", &["1.7.1", "1.8"], &["1.7.post1", "1.7+x", "1.7", "1.7rc1"]),
            (">1.7.post1", &["1.7.post2"], &["1.7.post1"]),
            (">=1.7", &["1.7", "1.7.post1", "1!0"], &["1.7rc1", "1.7.dev3"]),
            ("~=2.2", &["2.2", "2.9", "2.2.post3"], &["3.0", "2.1", "2.2rc1"]),
            ("~=1.4.0", &["1.4.5"], &["1.5"]),
            ("~=2.2.post3", &["2.2.post3", "2.3"], &["2.2", "3.0"]),
            ("===1.0+x", &["1.0+X"], &["1.0"]),
        ] {
            let clauses = [VersionClause::parse(clause).unwrap()];
            assert!(clauses[0].is_comparable(), "{clause}");
            for version in allowed {
                assert_eq!(allows(&clauses, version), Some(true), "{version} {clause}");
            }
            for version in refused {
                assert_eq!(allows(&clauses, version), Some(false), "{version} {clause}");
            }
        }
        for clause in ["==x1", "<1.*", "~=1", ">=1+x", "==*1", "<1x"] {
            let read = VersionClause::parse(clause).unwrap();
            assert!(!read.is_comparable(), "{clause}");
        }
        let clauses = [VersionClause::parse(">=1").unwrap()];
        assert_eq!(allows(&clauses, "2004d1x"), None);
        assert_eq!(allows(&[], "2004d1x"), Some(true));
    }

    #[test]
    fn a_script_asks_for_pythons_of_releases() {
        for (clauses, version, allowed) in [
            ("", "3.11.2", true),
            (">=3.10", "3.11.2", true),
            (">=3.11.2,<4", "3.11.2", true),
            (">3.11.2", "3.11.2", false),
            (">=3.12", "3.11.2", false),
            ("==3.11.*", "3.11.2", true),
            ("!=3.11.*", "3.11.2", false),
            ("==3.1.*", "3.11.2", false),
            ("~=3.8", "3.11.2", true),
            ("~=2.7", "3.11.2", false),
            ("<=3.11.2", "3.11.2", true),
            ("===3.11.2", "3.11.2", true),
            ("!=3.11.2", "3.11.2", false),
            (">=3.6.*", "3.11.2", true),
            ("<3.11.*", "3.11.2", false),
            (">=3.15", "3.15.0rc1", true),
            ("<3.15", "3.15.0rc1", false),
            (">=3.13", "3.13.0+", true),
        ] {
            let required = RequiredPython {
                file: "a.py".to_owned(),
                clauses: VersionClause::parse_all(clauses).unwrap(),
            };
            assert_eq!(required.allows(version), allowed, "{clauses} {version}");
        }
    }

    #[test]
    fn clauses_are_serialized_as_texts() {
        let required = RequiredPython {
            file: "a.py".to_owned(),
            clauses: VersionClause::parse_all(">=3.8, ===1").unwrap(),
        };
        let text = serde_json::to_string(&required).unwrap();
        assert_eq!(text, r#"["a.py",[[">=","3.8"],["===","1"]]]"#);
        assert_eq!(serde_json::from_str::<RequiredPython>(&text).unwrap(), required);
        for operator in Operator::ALL {
            assert_eq!(Operator::read(operator.as_str()), Some((operator, "")));
        }
        for other in [r#"["=","1"]"#, r#"["==1","1"]"#, r#"["","1"]"#] {
            assert!(serde_json::from_str::<VersionClause>(other).is_err(), "{other}");
        }
    }
}
