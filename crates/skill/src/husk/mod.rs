//! The HUSK dialect: a SKILL.md as a manifest of a served skill. See docs/design/dialects.md#husk.

mod manifest;
mod reader;

pub use manifest::{
    KNOWN_KEYS, LlmSettings, Manifest, Mode, ProxySettings, frontmatter, normalized_route, read, slug_of,
};
