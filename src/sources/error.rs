//! Why content is not there.

/// The kind of an error, for the condition's reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The object or file that the source names does not exist.
    NotFound,
    /// A part of the spec that cannot be followed: base64, keys, paths, several SKILL.md.
    Invalid,
    /// Several SKILL.md and no path.
    Ambiguous,
    /// Other bytes than the digest promises.
    DigestMismatch,
    /// An address that may not be fetched from.
    AddressDenied,
    /// Too large, too many files, or a bomb.
    TooLarge,
    /// No archive of a known type, or a broken one, or one with entries that are refused.
    BadArchive,
    /// It may work next time: network, server errors.
    Unavailable,
}

/// Why content is not there: what is wrong, with which field, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SourceError {
    /// The kind of error.
    pub cause: Cause,
    /// The whole sentence.
    pub message: String,
}

impl SourceError {
    /// An error of a kind.
    pub fn new(cause: Cause, message: impl Into<String>) -> Self {
        Self {
            cause,
            message: message.into(),
        }
    }

    /// This error as that of a field.
    #[must_use]
    pub fn of_field(self, field: &str) -> Self {
        Self {
            message: format!("{field}: {}", self.message),
            ..self
        }
    }
}
