//! Problems and notes about a declaration: place, text, and what to write instead.

use std::borrow::Cow;
use std::fmt;

/// The class of a finding; [`FindingKind::as_str`] is the stable word for machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FindingKind {
    /// A requirement that is a URL, a path or a version control address.
    UrlRequirement,
    /// `-e`: something that would be built here.
    Editable,
    /// `--index-url` and its like: the installation's index alone counts.
    IndexOption,
    /// `-r`, `-c`: another file.
    Include,
    /// Another option of pip.
    Option,
    /// A requirement that cannot be read.
    Requirement,
    /// More than [`crate::MAX_PACKAGES`].
    TooMany,
    /// A file that is too large or no UTF-8.
    File,
    /// Metadata that cannot be read: frontmatter, `package.json`, PEP 723.
    Metadata,
    /// Two declarations that cannot both hold.
    Conflict,
    /// A lock without a version or a hash for a package, or one that does not fit what is declared.
    Lock,
    /// Something that is declared and not installed.
    NotInstalled,
    /// A setting of another tool that has no effect here.
    Setting,
    /// An import that nothing provides.
    MissingImport,
    /// A program that the skill names and that runs cannot start.
    ProgramMissing,
    /// A command in the instructions that would install something.
    InstallInProse,
}

impl FindingKind {
    /// The stable word in JSON output.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UrlRequirement => "package-url",
            Self::Editable => "package-editable",
            Self::IndexOption => "package-index",
            Self::Include => "package-include",
            Self::Option => "package-option",
            Self::Requirement => "package-requirement",
            Self::TooMany => "package-count",
            Self::File => "package-file",
            Self::Metadata => "package-metadata",
            Self::Conflict => "package-conflict",
            Self::Lock => "package-lock",
            Self::NotInstalled => "package-not-installed",
            Self::Setting => "package-setting",
            Self::MissingImport => "import-missing",
            Self::ProgramMissing => "program-missing",
            Self::InstallInProse => "install-in-prose",
        }
    }
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The class of the finding.
    pub kind: FindingKind,
    /// The file, relative to the skill's folder.
    pub file: String,
    /// Line from 1; 0 if it is about the whole file.
    pub line: u32,
    /// The problem: one clause.
    pub text: String,
    /// The remedy: one clause.
    pub help: Cow<'static, str>,
}

impl Finding {
    /// A finding at a place.
    pub fn new(
        kind: FindingKind,
        file: &str,
        line: usize,
        text: impl Into<String>,
        help: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            kind,
            file: file.to_owned(),
            line: u32::try_from(line).unwrap_or(u32::MAX),
            text: text.into(),
            help: help.into(),
        }
    }

    /// Whether it prevents building an environment.
    pub const fn is_error(&self) -> bool {
        !matches!(
            self.kind,
            FindingKind::NotInstalled
                | FindingKind::Setting
                | FindingKind::MissingImport
                | FindingKind::ProgramMissing
                | FindingKind::InstallInProse
        )
    }
}

impl fmt::Display for Finding {
    /// `requirements.txt:3: text (help)`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.file)?;
        if self.line > 0 {
            write!(formatter, ":{}", self.line)?;
        }
        write!(formatter, ": {} ({})", self.text, self.help)
    }
}

/// A piece of a text that others wrote, short enough for an error.
pub(crate) fn shown(text: &str) -> String {
    /// Enough to find the place.
    const MAX_SHOWN: usize = 80;
    let cut = &text[..text.floor_char_boundary(MAX_SHOWN)];
    format!("{cut:?}")
}
