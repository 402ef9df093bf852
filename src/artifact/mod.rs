//! A skill's content as immutable ConfigMaps, and back.
//!
//! ```text
//! files + what the spec sets  ->  build  ->  ConfigMap shards  ->  read  ->  files + what the spec set
//! ```
//! Content is stored with the settings it was judged with, so that the last good revision is served unchanged after
//! later edits of the object. One plain key per file (`f<n>-<base name>`), so that a person can read it and a scanner
//! can scan it; the key `index.json` of the first shard has path, mode, size, hash and pieces. Pure.

mod build;
mod index;
mod read;
#[cfg(test)]
mod tests;

pub use build::{Artifact, INDEX_MAX_BYTES, SHARD_MAX_BYTES, build, name};
pub use index::{ArtifactIndex, INDEX_KEY};
pub use read::{ArtifactError, Content, read, shard_digest};

use knack_skill::digest::sha256;

/// Hex digits of a revision: a name, not a proof; the whole digest is verified.
pub const REVISION_DIGITS: usize = 10;
