//! Problems in a Python file, for a person to read.

use std::fmt;

/// Whether a problem left something out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// A function is not declared, or with a lower risk than its text may say, or the file could not be read as a whole.
    Error,
    /// The declaration is made, with a default in the place of something that could not be read.
    Warning,
}

/// One problem with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaProblem {
    /// How bad it is.
    pub severity: Severity,
    /// Line, counted from 1.
    pub line: usize,
    /// Column in bytes, counted from 1.
    pub column: usize,
    /// The function it belongs to, if any.
    pub function: Option<String>,
    /// The problem.
    pub message: String,
    /// The remedy.
    pub help: String,
}

impl SchemaProblem {
    /// A problem at a node.
    pub(super) fn at(
        severity: Severity,
        node: tree_sitter::Node<'_>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        let place = node.start_position();
        Self {
            severity,
            line: place.row + 1,
            column: place.column + 1,
            function: None,
            message: message.into(),
            help: help.into(),
        }
    }

    /// This problem with the function's name.
    pub(super) fn in_function(mut self, name: &str) -> Self {
        self.function = Some(name.to_owned());
        self
    }
}

impl fmt::Display for SchemaProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        write!(f, "line {}, column {}: {word}: ", self.line, self.column)?;
        if let Some(function) = &self.function {
            write!(f, "{function}: ")?;
        }
        write!(f, "{}. {}", self.message, self.help)
    }
}
