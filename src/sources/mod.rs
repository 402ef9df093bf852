//! Where skill content comes from: to files by path, relative to the skill's folder.
//!
//! Everything here but [`fetch`] is a function of values.

pub mod archive;
mod config_map;
mod error;

pub mod fetch;
mod inline;
mod skill_folder;
mod upload;

use std::collections::BTreeMap;

use knack_skill::model::SkillFile;

pub use config_map::config_map_files;
pub use error::{Cause, SourceError};
pub use inline::inline_files;
pub use skill_folder::{below, outermost};
pub use upload::{CONFIG_MAP_MAX_BYTES, UPLOAD_MAX_BYTES, UploadMaps, bytes_of, most_bytes_of, uploaded_files};

/// Whether bytes have a digest, `sha256:` and 64 hex digits. Else: the one that they have.
pub fn has_digest(promised: &str, bytes: &[u8]) -> Result<(), String> {
    let digest = format!("sha256:{}", knack_skill::digest::sha256(bytes));
    if promised == digest { Ok(()) } else { Err(digest) }
}

/// Files by path, `/` separated.
pub type Files = BTreeMap<String, SkillFile>;
