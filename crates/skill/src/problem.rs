//! The problems of a skill, reported all at once: where, what, and what to do.

use std::fmt;

/// How much a problem weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The skill is served; something in it has no effect, or not the one that the author may expect.
    Warning,
    /// The skill is refused.
    Error,
}

/// Which demands are made of a skill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// Serve what can be served and warn about the rest: skills from elsewhere.
    Load,
    /// What the dialect's specification demands: `--strict`, uploads by API.
    Strict,
}

/// The class of a problem. `as_str` gives the stable word for machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(
    missing_docs,
    reason = "each variant's word in `as_str` says the same, and the message says it in full"
)]
pub enum ProblemKind {
    NoSkillMd,
    NotUtf8,
    FileTooLarge,
    FolderTooLarge,
    TooManyFiles,
    FolderForeign,
    PathInvalid,
    PathConflict,
    FrontmatterMissing,
    FrontmatterUnclosed,
    FrontmatterNotMapping,
    YamlInvalid,
    KeyRepeated,
    NameMissing,
    NameEmpty,
    NameTooLong,
    NameUppercase,
    NameInvalidChars,
    NameEdgeHyphen,
    NameDoubleHyphen,
    NameMismatch,
    DescriptionMissing,
    DescriptionEmpty,
    DescriptionTooLong,
    CompatibilityTooLong,
    CompatibilityNotText,
    UnexpectedFields,
    FieldUnknown,
    FieldInvalid,
    FieldHasNoEffect,
    InputInvalid,
    InputRepeated,
    InputUnfilled,
    PlaceholderUndeclared,
    PlaceholderLiteral,
    ToolInvalid,
    ToolRepeated,
    ToolFileMissing,
    ToolFileNotProgram,
    VersionInvalid,
    VersionMismatch,
    BodyEmpty,
}

impl ProblemKind {
    /// All of them.
    pub const ALL: [Self; 42] = [
        Self::NoSkillMd,
        Self::NotUtf8,
        Self::FileTooLarge,
        Self::FolderTooLarge,
        Self::TooManyFiles,
        Self::FolderForeign,
        Self::PathInvalid,
        Self::PathConflict,
        Self::FrontmatterMissing,
        Self::FrontmatterUnclosed,
        Self::FrontmatterNotMapping,
        Self::YamlInvalid,
        Self::KeyRepeated,
        Self::NameMissing,
        Self::NameEmpty,
        Self::NameTooLong,
        Self::NameUppercase,
        Self::NameInvalidChars,
        Self::NameEdgeHyphen,
        Self::NameDoubleHyphen,
        Self::NameMismatch,
        Self::DescriptionMissing,
        Self::DescriptionEmpty,
        Self::DescriptionTooLong,
        Self::CompatibilityTooLong,
        Self::CompatibilityNotText,
        Self::UnexpectedFields,
        Self::FieldUnknown,
        Self::FieldInvalid,
        Self::FieldHasNoEffect,
        Self::InputInvalid,
        Self::InputRepeated,
        Self::InputUnfilled,
        Self::PlaceholderUndeclared,
        Self::PlaceholderLiteral,
        Self::ToolInvalid,
        Self::ToolRepeated,
        Self::ToolFileMissing,
        Self::ToolFileNotProgram,
        Self::VersionInvalid,
        Self::VersionMismatch,
        Self::BodyEmpty,
    ];

    /// The word for this class in JSON output and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoSkillMd => "no-skill-md",
            Self::NotUtf8 => "not-utf8",
            Self::FileTooLarge => "file-too-large",
            Self::FolderTooLarge => "folder-too-large",
            Self::TooManyFiles => "too-many-files",
            Self::FolderForeign => "folder-foreign",
            Self::PathInvalid => "path-invalid",
            Self::PathConflict => "path-conflict",
            Self::FrontmatterMissing => "frontmatter-missing",
            Self::FrontmatterUnclosed => "frontmatter-unclosed",
            Self::FrontmatterNotMapping => "frontmatter-not-mapping",
            Self::YamlInvalid => "yaml-invalid",
            Self::KeyRepeated => "key-repeated",
            Self::NameMissing => "name-missing",
            Self::NameEmpty => "name-empty",
            Self::NameTooLong => "name-too-long",
            Self::NameUppercase => "name-uppercase",
            Self::NameInvalidChars => "name-invalid-chars",
            Self::NameEdgeHyphen => "name-edge-hyphen",
            Self::NameDoubleHyphen => "name-double-hyphen",
            Self::NameMismatch => "name-dir-mismatch",
            Self::DescriptionMissing => "description-missing",
            Self::DescriptionEmpty => "description-empty",
            Self::DescriptionTooLong => "description-too-long",
            Self::CompatibilityTooLong => "compatibility-too-long",
            Self::CompatibilityNotText => "compatibility-not-text",
            Self::UnexpectedFields => "unexpected-fields",
            Self::FieldUnknown => "field-unknown",
            Self::FieldInvalid => "field-invalid",
            Self::FieldHasNoEffect => "field-has-no-effect",
            Self::InputInvalid => "input-invalid",
            Self::InputRepeated => "input-repeated",
            Self::InputUnfilled => "input-unfilled",
            Self::PlaceholderUndeclared => "placeholder-undeclared",
            Self::PlaceholderLiteral => "placeholder-literal",
            Self::ToolInvalid => "tool-invalid",
            Self::ToolRepeated => "tool-repeated",
            Self::ToolFileMissing => "tool-file-missing",
            Self::ToolFileNotProgram => "tool-file-not-program",
            Self::VersionInvalid => "version-invalid",
            Self::VersionMismatch => "version-mismatch",
            Self::BodyEmpty => "body-empty",
        }
    }
}

/// One problem of one skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Whether the skill is refused for it.
    pub severity: Severity,
    /// The class of the problem.
    pub kind: ProblemKind,
    /// The file it is in, relative to the skill's folder; empty if it is about the folder or the manifest.
    pub file: String,
    /// Line in that file, from 1.
    pub line: Option<u32>,
    /// The field, such as `inputs[0].name`; empty if it is about the file as a whole.
    pub field: String,
    /// What is wrong: one sentence without a full stop.
    pub message: String,
    /// What to do about it: one sentence without a full stop.
    pub help: String,
}

impl Problem {
    /// A problem without a place.
    pub fn new(severity: Severity, kind: ProblemKind, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            severity,
            kind,
            file: String::new(),
            line: None,
            field: String::new(),
            message: message.into(),
            help: help.into(),
        }
    }

    /// Sets the file.
    #[must_use]
    pub fn in_file(mut self, file: impl Into<String>) -> Self {
        self.file = file.into();
        self
    }

    /// Sets the line; 0 means unknown.
    #[must_use]
    pub fn at_line(mut self, line: u32) -> Self {
        self.line = (line > 0).then_some(line);
        self
    }

    /// Sets the field.
    #[must_use]
    pub fn on(mut self, field: impl Into<String>) -> Self {
        self.field = field.into();
        self
    }

    /// Whether the skill is refused for it.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

impl fmt::Display for Problem {
    /// `SKILL.md:4: inputs[0].name: message (help)`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.file.is_empty() {
            formatter.write_str(&self.file)?;
            if let Some(line) = self.line {
                write!(formatter, ":{line}")?;
            }
            formatter.write_str(": ")?;
        }
        if !self.field.is_empty() {
            write!(formatter, "{}: ", self.field)?;
        }
        formatter.write_str(&self.message)?;
        if !self.help.is_empty() {
            write!(formatter, " ({})", self.help)?;
        }
        Ok(())
    }
}
