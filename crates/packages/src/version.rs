//! Versions of packages and their clauses (PEP 440): epoch, release, pre-, post- and development releases, local versions.

use std::cmp::Ordering;
use std::fmt;

use serde::{Deserialize, Serialize};

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

    /// Whether it allows a Python of a version. A pattern beside an operator that knows none counts without its `.*`, as installers
    /// take it: `>=3.6.*` is in use.
    pub(crate) fn allows_python(&self, version: &str) -> Option<bool> {
        let has_patterns = matches!(self.operator, Operator::Equal | Operator::Unequal | Operator::Same);
        match self.version.strip_suffix(".*").filter(|_| !has_patterns) {
            Some(wanted) => satisfies(&Version::parse(version)?, self.operator, wanted),
            None => self.allows(version),
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
    /// Whether a Python of a version is among them. One of a pre-release counts as its release, as installers take it: who
    /// tries `3.15.0rc1` means 3.15.
    pub(crate) fn allows(&self, version: &str) -> bool {
        let end = version.find(|letter: char| !(letter.is_ascii_digit() || letter == '.'));
        let release = &version[..end.unwrap_or(version.len())];
        let mut clauses = self.clauses.iter();
        clauses.all(|clause| clause.allows_python(release) != Some(false))
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

/// A version that was read. The order of the fields is that in which they are compared.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Version {
    epoch: u64,
    /// Without zeros at its end: `1.0` and `1` are equal.
    release: Vec<u64>,
    /// Stage and number. A development release of no other stage is before all of them, and without any a version is after them.
    pre: (Stage, u64),
    post: Option<u64>,
    /// Development releases are before the others.
    dev: (IsFinal, u64),
    /// A number is after a text.
    local: Option<Vec<(bool, u64, String)>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Development,
    Alpha,
    Beta,
    Candidate,
    Final,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum IsFinal {
    No,
    Yes,
}

/// Words of stages, longer ones before those that they begin with.
const STAGES: [(&str, Stage); 8] = [
    ("alpha", Stage::Alpha),
    ("a", Stage::Alpha),
    ("beta", Stage::Beta),
    ("b", Stage::Beta),
    ("preview", Stage::Candidate),
    ("pre", Stage::Candidate),
    ("rc", Stage::Candidate),
    ("c", Stage::Candidate),
];
const POST: [(&str, ()); 3] = [("post", ()), ("rev", ()), ("r", ())];
const DEV: [(&str, ()); 1] = [("dev", ())];

impl Version {
    /// Reads a version; `None`: it is none, or its numbers are larger than any in use.
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim().to_ascii_lowercase();
        let text = text.strip_prefix('v').unwrap_or(&text);
        let (text, local) = match text.split_once('+') {
            Some((text, local)) => (text, Some(local_parts(local)?)),
            None => (text, None),
        };
        let (epoch, text) = match text.split_once('!') {
            Some((epoch, text)) => (number(epoch)?, text),
            None => (0, text),
        };
        let (first, mut rest) = digits(text)?;
        let mut release = vec![first];
        while let Some((next, after)) = rest.strip_prefix('.').and_then(digits) {
            release.push(next);
            rest = after;
        }
        let (mut pre, mut post, mut dev) = (None, None, None);
        if let Some((stage, number, after)) = tagged(rest, &STAGES) {
            (pre, rest) = (Some((stage, number)), after);
        }
        // `1.0-1` is a post-release too.
        if let Some((number, after)) = rest.strip_prefix('-').and_then(digits) {
            (post, rest) = (Some(number), after);
        } else if let Some(((), number, after)) = tagged(rest, &POST) {
            (post, rest) = (Some(number), after);
        }
        if let Some(((), number, after)) = tagged(rest, &DEV) {
            (dev, rest) = (Some(number), after);
        }
        if !rest.is_empty() {
            return None;
        }
        while release.len() > 1 && release.last() == Some(&0) {
            release.pop();
        }
        let without_stage = if dev.is_some() && post.is_none() {
            Stage::Development
        } else {
            Stage::Final
        };
        Some(Self {
            epoch,
            release,
            pre: pre.unwrap_or((without_stage, 0)),
            post,
            dev: dev.map_or((IsFinal::Yes, 0), |number| (IsFinal::No, number)),
            local,
        })
    }

    fn public(&self) -> Self {
        Self {
            local: None,
            ..self.clone()
        }
    }

    fn is_prerelease(&self) -> bool {
        self.pre.0 != Stage::Final || self.dev.0 == IsFinal::No
    }

    fn has_base_of(&self, other: &Self) -> bool {
        self.epoch == other.epoch && self.release == other.release
    }

    /// Whether the release begins with these numbers.
    fn begins_with(&self, epoch: u64, numbers: &[u64]) -> bool {
        let own = self.release.iter().copied().chain(std::iter::repeat(0));
        self.epoch == epoch && own.zip(numbers).all(|(own, wanted)| own == *wanted)
    }
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
    let is_equal = match wanted_version.local {
        Some(_) => *version == wanted_version,
        None => public == wanted_version,
    };
    if wanted_version.local.is_some() && !matches!(operator, Operator::Equal | Operator::Unequal) {
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
            let is_excluded = is_of_base && version.post.is_some() && wanted_version.post.is_none();
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

/// Epoch and numbers of a version as written, with zeros at the end.
fn release_of(text: &str) -> Option<(u64, Vec<u64>)> {
    let version = Version::parse(text)?;
    let text = text.trim().trim_start_matches(['v', 'V']);
    let text = text.split_once('!').map_or(text, |(_, text)| text);
    let mut numbers = Vec::new();
    let mut rest = Some(text);
    while let Some((next, after)) = rest.and_then(digits) {
        numbers.push(next);
        rest = after.strip_prefix('.');
    }
    Some((version.epoch, numbers))
}

fn local_parts(text: &str) -> Option<Vec<(bool, u64, String)>> {
    let part = |part: &str| {
        let is_text = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric());
        is_text.then(|| match number(part) {
            Some(number) => (true, number, String::new()),
            None => (false, 0, part.to_owned()),
        })
    };
    text.split(['.', '-', '_']).map(part).collect()
}

/// A word of a list with its number, which is 0 if it is left out, and what follows.
fn tagged<'a, T: Copy>(text: &'a str, words: &[(&str, T)]) -> Option<(T, u64, &'a str)> {
    let separators = ['-', '_', '.'];
    let begun = text.strip_prefix(separators).unwrap_or(text);
    let (tag, rest) = words
        .iter()
        .find_map(|(word, tag)| Some((*tag, begun.strip_prefix(word)?)))?;
    let numbered = digits(rest.strip_prefix(separators).unwrap_or(rest));
    let (number, rest) = numbered.unwrap_or((0, rest));
    Some((tag, number, rest))
}

/// The number that a text begins with, and what follows.
fn digits(text: &str) -> Option<(u64, &str)> {
    let end = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, rest) = text.split_at(end);
    Some((number(digits)?, rest))
}

fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The order that PEP 440 gives as its example, with more of each kind.
    #[test]
    fn versions_are_in_order() {
        let ordered = [
            "1.dev0",
            "1.0.dev456",
            "1.0a1",
            "1.0a2.dev456",
            "1.0a12.dev456",
            "1.0a12",
            "1.0b1.dev456",
            "1.0b2",
            "1.0b2.post345.dev456",
            "1.0b2.post345",
            "1.0rc1.dev456",
            "1.0rc1",
            "1.0",
            "1.0+abc.5",
            "1.0+abc.7",
            "1.0+5",
            "1.0.post456.dev34",
            "1.0.post456",
            "1.0.15",
            "1.1.dev1",
            "1!0.1",
        ];
        let parsed: Vec<Version> = ordered.iter().map(|text| Version::parse(text).unwrap()).collect();
        for (pair, texts) in parsed.windows(2).zip(ordered.windows(2)) {
            assert!(pair[0] < pair[1], "{texts:?}");
        }
    }

    #[test]
    fn one_version_has_many_spellings() {
        for (one, other) in [
            ("1.0", "1"),
            ("v1.0", "1.0.0"),
            ("1.0alpha1", "1.0a1"),
            ("1.0-RC-1", "1.0rc1"),
            ("1.0c1", "1.0rc1"),
            ("1.0preview", "1.0rc0"),
            ("1.0-1", "1.0.post1"),
            ("1.0_r_1", "1.0.post1"),
            ("1.0.DEV", "1.0dev0"),
            ("1.0+a-b", "1.0+A.b"),
            ("01.02", "1.2"),
        ] {
            assert_eq!(
                Version::parse(one).unwrap(),
                Version::parse(other).unwrap(),
                "{one} {other}"
            );
        }
        for text in [
            "",
            "a",
            "1.x",
            "1.0rc1x",
            "1..0",
            "1.0+",
            "1.0+é",
            "!1",
            "2004d1x",
            "99999999999999999999",
        ] {
            assert_eq!(Version::parse(text), None, "{text}");
        }
    }

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
