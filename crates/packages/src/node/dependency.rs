//! One declared dependency: `docx@^9`, `"docx": "^9"`.

use super::location::is_name;
use crate::finding::{FindingKind, shown};

/// A name with a range of versions.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dependency {
    /// The name, with its scope.
    pub name: String,
    /// The range as written; `*`: any version.
    pub range: String,
}

impl std::fmt::Display for Dependency {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.range.as_str() {
            "*" => formatter.write_str(&self.name),
            range => write!(formatter, "{}@{range}", self.name),
        }
    }
}

impl Dependency {
    /// Reads `name` or `name@range`.
    pub(super) fn parse(text: &str) -> Result<Self, (FindingKind, String)> {
        let text = text.trim();
        // The first `@` may be that of a scope.
        let at = text.get(1..).and_then(|rest| rest.find('@')).map(|at| at + 1);
        match at {
            Some(at) => Self::of(&text[..at], &text[at + 1..]),
            None => Self::of(text, "*"),
        }
    }

    /// Reads a member of `dependencies`.
    pub(super) fn of(name: &str, range: &str) -> Result<Self, (FindingKind, String)> {
        let (name, range) = (name.trim(), range.trim());
        if !is_name(name) {
            return Err((
                FindingKind::Requirement,
                format!("{} is not a package name", shown(name)),
            ));
        }
        // `npm:other@1` is another package of the index under this name.
        let plain = range.strip_prefix("npm:").unwrap_or(range);
        let is_alias = plain.len() != range.len();
        let is_other_source = plain.contains(':') || plain.starts_with('.') || (!is_alias && plain.contains('/'));
        if is_other_source {
            let text = format!(
                "{name} comes from {}, but packages are installed only from the index, not from URLs, version control, folders or workspaces",
                shown(range)
            );
            return Err((FindingKind::UrlRequirement, text));
        }
        let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "^~<>=|*+-._ @/".contains(letter);
        if !plain.chars().all(is_letter) {
            return Err((
                FindingKind::Requirement,
                format!("{name}: {} is not a version range", shown(range)),
            ));
        }
        let range = if range.is_empty() { "*" } else { range };
        Ok(Self {
            name: name.to_owned(),
            range: range.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_ranges_are_read() {
        for (text, name, range) in [
            ("docx", "docx", "*"),
            (" docx@^9 ", "docx", "^9"),
            ("@s/x", "@s/x", "*"),
            ("@s/x@>=1 <2 || 3.x", "@s/x", ">=1 <2 || 3.x"),
            ("x@latest", "x", "latest"),
            ("x@", "x", "*"),
            ("x@npm:@s/other@1", "x", "npm:@s/other@1"),
            ("x@1.0.0-beta.1+b", "x", "1.0.0-beta.1+b"),
        ] {
            let read = Dependency::parse(text).unwrap();
            assert_eq!((read.name.as_str(), read.range.as_str()), (name, range), "{text}");
        }
    }

    #[test]
    fn what_is_not_of_the_index_and_what_is_no_name_is_refused() {
        for (text, kind) in [
            ("x@file:../x", FindingKind::UrlRequirement),
            ("x@git+ssh://git@h/x.git", FindingKind::UrlRequirement),
            ("x@github:u/x", FindingKind::UrlRequirement),
            ("x@u/x", FindingKind::UrlRequirement),
            ("x@https://h/x.tgz", FindingKind::UrlRequirement),
            ("x@workspace:*", FindingKind::UrlRequirement),
            ("x@link:./x", FindingKind::UrlRequirement),
            ("x@./x", FindingKind::UrlRequirement),
            ("x@~/x", FindingKind::UrlRequirement),
            ("x@$(id)", FindingKind::Requirement),
            ("x@1;2", FindingKind::Requirement),
            ("", FindingKind::Requirement),
            ("@s", FindingKind::Requirement),
            ("../x", FindingKind::Requirement),
            (".x@1", FindingKind::Requirement),
            ("a b", FindingKind::Requirement),
        ] {
            let refused = Dependency::parse(text).map_err(|(kind, _)| kind);
            assert_eq!(refused, Err(kind), "{text}");
        }
    }
}
