//! The HUSK dialect: a SKILL.md as a manifest of a served skill. See docs/design/dialects.md#husk.

mod folder;
mod manifest;
mod reader;

pub use folder::{FolderEntry, FolderSkill, check_route, load_folder};
pub use manifest::{KNOWN_KEYS, LlmSettings, Manifest, Mode, ProxySettings, frontmatter, read};
