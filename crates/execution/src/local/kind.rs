//! The properties in which warm sandboxes differ.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::Language;
use crate::environments::Environment;

/// The kind of a warm sandbox: an interpreter, or only the locks, for commands; and its packages.
#[derive(Debug, Clone, Default)]
pub(super) struct SandboxKind {
    /// An interpreter, or nothing but the locks, for commands.
    pub(super) language: Option<Language>,
    /// The packages that it has.
    pub(super) environment: Option<Arc<Environment>>,
}

impl SandboxKind {
    /// One without packages.
    pub(super) const fn of(language: Option<Language>) -> Self {
        Self {
            language,
            environment: None,
        }
    }

    fn key(&self) -> (Option<Language>, Option<&str>) {
        (
            self.language,
            self.environment.as_ref().map(|environment| environment.key.as_str()),
        )
    }
}

impl PartialEq for SandboxKind {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for SandboxKind {}

impl Ord for SandboxKind {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for SandboxKind {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
