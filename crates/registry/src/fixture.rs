//! Values for tests.

use crate::{Draft, Files};

/// A valid upload of these files that states nothing else.
pub fn draft(name: &str, files: Files) -> Draft {
    Draft {
        name: name.to_owned(),
        description: "d".to_owned(),
        version: None,
        is_release: false,
        mode: None,
        catalog: None,
        litellm: None,
        digest: knack_skill::tree::digest(&files),
        bytes: files.values().map(|file| file.bytes.len() as u64).sum(),
        files,
    }
}
