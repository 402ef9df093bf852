//! `index.json`: what the keys of an artifact's ConfigMaps are.

use knack_api::SkillOverrides;
use serde::{Deserialize, Serialize};

/// Key of the index, in the first shard.
pub const INDEX_KEY: &str = "index.json";

/// Version of the form of the index.
pub(super) const FORMAT: u32 = 1;

/// The index of an artifact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactIndex {
    /// Version of this form; readers refuse a newer one.
    pub format: u32,
    /// Hex SHA-256 of the canonical file tree.
    pub digest: String,
    /// Number of ConfigMaps.
    pub shards: usize,
    /// Every file, in byte order of its path.
    pub files: Vec<FileEntry>,
    /// The settings of the spec.
    pub overrides: SkillOverrides,
}

/// One file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileEntry {
    /// Path relative to the skill's folder.
    pub path: String,
    /// `0755` or `0644`.
    pub mode: String,
    /// Bytes.
    pub size: usize,
    /// Hex SHA-256 of the content.
    pub sha256: String,
    /// Where the content is, in order.
    pub pieces: Vec<FilePiece>,
}

/// A part of a file: one key of one ConfigMap.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FilePiece {
    /// Which ConfigMap, from 0.
    pub shard: usize,
    /// Key in `data` or `binaryData`.
    pub key: String,
}
