//! An upload that was validated.

use crate::Files;

/// A valid upload.
#[derive(Debug, Clone)]
pub struct Draft {
    /// The skill's name.
    pub name: String,
    /// Its description.
    pub description: String,
    /// Of its file tree.
    pub digest: String,
    /// Bytes of all files.
    pub bytes: u64,
    /// Its files.
    pub files: Files,
}
