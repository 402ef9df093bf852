//! What a reader of one part of SKILL.md found: a problem without its file, line and profile, which are added later.

use crate::problem::{ProblemKind, Severity};

/// Most entries of one declared list (inputs, tools, parameters, names) that are read. Providers take 128 tools a request.
pub const MAX_ENTRIES: usize = 256;

/// One finding. The Load profile warns about all of them; the reader repaired or left out what was wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Class.
    pub kind: ProblemKind,
    /// Field path, such as `inputs[0].name`.
    pub field: String,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub help: String,
    /// What the Strict profile makes of it.
    pub strict: Severity,
    /// Whether the skill is served without the tool, where this is a warning.
    pub leaves_out_tool: bool,
}

impl Finding {
    /// A finding that the Strict profile refuses.
    pub fn refused(
        kind: ProblemKind,
        field: impl Into<String>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        Self {
            kind,
            field: field.into(),
            message: message.into(),
            help: help.into(),
            strict: Severity::Error,
            leaves_out_tool: false,
        }
    }

    /// A finding that both profiles only warn about.
    pub fn warned(
        kind: ProblemKind,
        field: impl Into<String>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        Self {
            strict: Severity::Warning,
            ..Self::refused(kind, field, message, help)
        }
    }

    /// Whether the Strict profile refuses it.
    pub fn is_refused(&self) -> bool {
        self.strict == Severity::Error
    }
}

/// The entries of a declared list that are read, and a warning if there are more.
pub(crate) fn bounded<'a, T>(field: &str, items: &'a [T], findings: &mut Vec<Finding>) -> &'a [T] {
    if items.len() <= MAX_ENTRIES {
        return items;
    }
    let message = format!(
        "{field} has {} entries; only the first {MAX_ENTRIES} are read",
        items.len()
    );
    findings.push(Finding::refused(
        ProblemKind::FieldInvalid,
        field,
        message,
        "shorten the list",
    ));
    &items[..MAX_ENTRIES]
}
