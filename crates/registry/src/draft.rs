//! An upload that was validated.

use crate::Files;
use crate::catalogs::Catalog;
use crate::litellm::LiteLlmFields;
use crate::mode::Mode;

/// A valid upload.
#[derive(Debug, Clone)]
pub struct Draft {
    /// The skill's name.
    pub name: String,
    /// The skill's description.
    pub description: String,
    /// The version that it says of itself, such as `1.4.0`.
    pub version: Option<String>,
    /// Whether no other version of the skill may have that one.
    pub is_release: bool,
    /// The mode that it asks for, if that is one of OmniRoute's.
    pub mode: Option<Mode>,
    /// The catalog that it was installed from.
    pub catalog: Option<Catalog>,
    /// The fields of LiteLLM's API that are not files.
    pub litellm: Option<LiteLlmFields>,
    /// The digest of its file tree.
    pub digest: String,
    /// Bytes of all files.
    pub bytes: u64,
    /// The skill's files.
    pub files: Files,
}
