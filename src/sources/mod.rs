//! Where skill content comes from: to files by path, relative to the skill's folder.
//!
//! Everything here but [`fetch`] is a function of values.

pub mod archive;
mod config_map;
mod error;

pub mod fetch;
mod inline;
mod place;

use std::collections::BTreeMap;

use knack_skill::model::SkillFile;

pub use config_map::config_map_files;
pub use error::{Cause, SourceError};
pub use inline::inline_files;
pub use place::below;

/// Files by path, `/` separated.
pub type Files = BTreeMap<String, SkillFile>;
