//! Versions `major.minor.patch` and constraints on them.
//!
//! Constraints: `^ ~ > >= < <= ==` before a base, or an exact version. A missing part of a base is 0. `0.x` is not special.
//! OmniRoute's rules (docs/design/dialects.md#registry-records-and-versions).

use std::cmp::Reverse;
use std::fmt;
use std::str::FromStr;

/// A version without pre-release or build part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// Incompatible changes.
    pub major: u64,
    /// Additions.
    pub minor: u64,
    /// Repairs.
    pub patch: u64,
}

/// A text that is not a version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a version is three numbers such as 1.4.0")]
pub struct NotAVersion;

impl FromStr for Version {
    type Err = NotAVersion;

    /// Exactly three numbers of ASCII digits joined by dots.
    fn from_str(text: &str) -> Result<Self, NotAVersion> {
        match parts(text)?[..] {
            [major, minor, patch] => Ok(Self { major, minor, patch }),
            _ => Err(NotAVersion),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// A skill is here, and none of its versions is what a reference asks for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct NoVersion {
    /// The skill as the reference names it.
    pub skill: String,
    /// The version that it asks for.
    pub wanted: String,
    /// What names the versions that are here, newest first.
    pub there: Vec<String>,
}

impl fmt::Display for NoVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { skill, wanted, there } = self;
        write!(formatter, "skill \"{skill}\" has no version \"{wanted}\": ")?;
        if there.is_empty() {
            formatter.write_str(
                "none of its versions is named (metadata.version of SKILL.md), so name the skill without a version",
            )?;
        } else {
            write!(formatter, "there is {}", there.join(", "))?;
        }
        formatter.write_str("; a version is its text, latest, or a constraint such as ^1 or ~1.2")
    }
}

/// A condition on versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Constraint {
    /// `^`: the same major, at least the base.
    Compatible(Version),
    /// `~`: the same major and minor, at least the base.
    Patch(Version),
    /// `>`.
    Above(Version),
    /// `>=`.
    AtLeast(Version),
    /// `<`.
    Below(Version),
    /// `<=`.
    AtMost(Version),
    /// `==`, or no operator: this very version. Parts may not be missing.
    Exactly(Version),
}

/// Makes a constraint of its base.
type Operator = fn(Version) -> Constraint;

impl FromStr for Constraint {
    type Err = NotAVersion;

    fn from_str(text: &str) -> Result<Self, NotAVersion> {
        let text = text.trim();
        let operators: [(&str, Operator); 6] = [
            (">=", Self::AtLeast),
            ("<=", Self::AtMost),
            (">", Self::Above),
            ("<", Self::Below),
            ("^", Self::Compatible),
            ("~", Self::Patch),
        ];
        for (operator, constraint) in operators {
            if let Some(base) = text.strip_prefix(operator) {
                return Ok(constraint(base_of(base.trim())?));
            }
        }
        text.strip_prefix("==")
            .unwrap_or(text)
            .trim()
            .parse()
            .map(Self::Exactly)
    }
}

impl Constraint {
    /// Whether a version meets it.
    pub fn holds(self, version: Version) -> bool {
        match self {
            Self::Compatible(base) => version.major == base.major && version >= base,
            Self::Patch(base) => (version.major, version.minor) == (base.major, base.minor) && version >= base,
            Self::Above(base) => version > base,
            Self::AtLeast(base) => version >= base,
            Self::Below(base) => version < base,
            Self::AtMost(base) => version <= base,
            Self::Exactly(base) => version == base,
        }
    }
}

/// The highest of `versions` that meets `constraint`; texts that are not versions or constraints match nothing.
pub fn resolve<'a>(versions: impl IntoIterator<Item = &'a str>, constraint: &str) -> Option<&'a str> {
    let constraint: Constraint = constraint.parse().ok()?;
    let known = versions
        .into_iter()
        .filter_map(|text| Some((text.parse::<Version>().ok()?, text)));
    known
        .filter(|(version, _)| constraint.holds(*version))
        .max_by_key(|(version, _)| *version)
        .map(|(_, text)| text)
}

/// Which of `versions`, given in the order of their making, `wanted` means: the one of that very text; `latest`, the highest;
/// or the highest that meets the constraint. Of equal ones the one made last. Texts that are no versions meet no constraint
/// and are below all others. The answer is an index of `versions`.
pub fn choose(versions: &[&str], wanted: &str) -> Option<usize> {
    let last = |text: &str| versions.iter().rposition(|version| *version == text);
    if wanted == "latest" {
        let indices = versions.iter().enumerate();
        return indices
            .max_by_key(|(_, text)| text.parse::<Version>().ok())
            .map(|(index, _)| index);
    }
    let exact = if wanted.is_empty() { None } else { last(wanted) };
    exact.or_else(|| last(resolve(versions.iter().copied(), wanted)?))
}

/// Whether one version is what `wanted` requires of it: that very text, or a constraint that it meets. `latest` compares versions
/// with each other, so no version meets it by itself.
pub fn satisfies(version: &str, wanted: &str) -> bool {
    wanted != "latest" && choose(&[version], wanted).is_some()
}

/// The versions, newest first; texts that are not versions come last, in their order.
pub fn newest_first(versions: &mut [&str]) {
    versions.sort_by_key(|text| Reverse(text.parse::<Version>().ok()));
}

/// A base of a constraint: one to three parts, missing ones 0.
fn base_of(text: &str) -> Result<Version, NotAVersion> {
    match parts(text)?[..] {
        [major] => Ok(Version {
            major,
            minor: 0,
            patch: 0,
        }),
        [major, minor] => Ok(Version { major, minor, patch: 0 }),
        [major, minor, patch] => Ok(Version { major, minor, patch }),
        _ => Err(NotAVersion),
    }
}

fn parts(text: &str) -> Result<Vec<u64>, NotAVersion> {
    // At most three dots are read, so a long text costs no more than a short one.
    text.splitn(4, '.').map(number).collect()
}

fn number(text: &str) -> Result<u64, NotAVersion> {
    // `u64::from_str` would take a plus sign.
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(NotAVersion);
    }
    text.parse().map_err(|_| NotAVersion)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERSIONS: [&str; 5] = ["0.0.1", "1.2.0", "1.10.0", "1.9.9", "2.0.0"];

    #[test]
    fn the_highest_match_wins_by_number() {
        for (constraint, expected) in [
            ("^1.0.0", Some("1.10.0")),
            ("^1", Some("1.10.0")),
            ("~1.9", Some("1.9.9")),
            (">=2.0.0", Some("2.0.0")),
            (">2.0.0", None),
            ("<1.2.0", Some("0.0.1")),
            ("<=1.2", Some("1.2.0")),
            ("==1.2.0", Some("1.2.0")),
            ("1.2.0", Some("1.2.0")),
            ("1.2", None),
            ("^1.0.0-beta.1", None),
            (">=1.0.0 <2.0.0", None),
            ("", None),
            ("^", None),
        ] {
            assert_eq!(resolve(VERSIONS, constraint), expected, "{constraint}");
        }
    }

    #[test]
    fn texts_that_are_not_versions_match_nothing() {
        for text in [
            "1.0",
            "1.0.0.0",
            "v1.0.0",
            "1.0.0-rc",
            "+1.0.0",
            "1..0",
            "99999999999999999999.0.0",
            "١.0.0",
        ] {
            assert!(text.parse::<Version>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_text_wins_over_a_constraint_and_of_equal_versions_the_last_made() {
        // A repair of an old line is made after a new one, and one version carries none.
        let made = ["1.0.0", "1.2.0", "2.0.0", "1.2.1", "", "1.2.0"];
        for (wanted, expected) in [
            ("1.2.0", Some(5)),
            ("==1.2.0", Some(5)),
            ("^1", Some(3)),
            ("~1.2.0", Some(3)),
            ("<1.2", Some(0)),
            (">=1", Some(2)),
            (" ^1 ", Some(3)),
            ("latest", Some(2)),
            ("Latest", None),
            ("^3", None),
            ("1.2", None),
            ("2", None),
            ("", None),
            ("@", None),
        ] {
            assert_eq!(choose(&made, wanted), expected, "{wanted:?}");
        }
        // A text that is no constraint still names itself.
        assert_eq!(choose(&["1.0", "1.0.0"], "1.0"), Some(0));
        assert_eq!(choose(&["", ""], "latest"), Some(1), "without versions the last made");
        assert_eq!(choose(&[], "latest"), None);
    }

    #[test]
    fn one_version_meets_a_requirement_or_does_not() {
        for (version, wanted, expected) in [
            ("1.2.0", "1.2.0", true),
            ("1.2.0", "==1.2.0", true),
            ("1.2.0", "^1", true),
            ("1.2.0", "^1.2", true),
            ("1.2.0", "^1.3", false),
            ("1.2.0", "~1.2", true),
            ("1.2.0", "~1.1", false),
            ("1.2.0", ">=1", true),
            ("1.2.0", ">1.2.0", false),
            ("1.2.0", "<2", true),
            ("1.2.0", "<=1.2", true),
            ("2.0.0", "^1", false),
            ("2.0.0-rc.1", "2.0.0-rc.1", true),
            ("2.0.0-rc.1", "^2", false),
            ("", "^1", false),
            ("", "", false),
            ("1.2.0", "", false),
            ("1.2.0", "latest", false),
            ("latest", "latest", false),
        ] {
            assert_eq!(satisfies(version, wanted), expected, "{version:?} {wanted:?}");
        }
    }

    #[test]
    fn newest_comes_first() {
        let mut versions = VERSIONS;
        newest_first(&mut versions);
        assert_eq!(versions, ["2.0.0", "1.10.0", "1.9.9", "1.2.0", "0.0.1"]);
    }
}
