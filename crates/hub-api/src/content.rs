//! Content by digest: the files of a tree, so that a reader fetches only those that it does not have.

use serde::{Deserialize, Serialize};

/// `GET /v1/content/{digest}`: the files of one tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentIndex {
    /// Hex SHA-256 of the canonical tree (`knack_skill::tree::digest`).
    pub digest: String,
    /// Every file, by path.
    pub files: Vec<ContentFile>,
}

/// One file of a tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentFile {
    /// Relative to the skill's folder, `/` separated.
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// Hex SHA-256 of the content.
    pub sha256: String,
    /// Whether the owner may execute it.
    #[serde(default)]
    pub executable: bool,
}
