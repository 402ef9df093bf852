//! How a skill answers.

use serde_json::{Map, Value};

/// Keys of the address of mode proxy; the first that is written counts.
const PROXY_KEYS: [&str; 2] = ["proxy", "proxy_url"];

/// How a skill answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A program.
    Script,
    /// A model with tools.
    Llm,
    /// A file.
    StaticFile,
    /// Another server.
    Proxy,
}

impl Mode {
    /// The word in the manifest.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Script => "script",
            Self::Llm => "llm",
            Self::StaticFile => "static-file",
            Self::Proxy => "proxy",
        }
    }

    /// Parses the name of a mode.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Script, Self::Llm, Self::StaticFile, Self::Proxy]
            .into_iter()
            .find(|mode| mode.as_str() == word)
    }

    /// The mode of a manifest: the word of `mode`, else the first of proxy, tools, run and serve decides. As in HUSK, a key of these counts
    /// even without a value, and beside `run` an unknown word is a program.
    pub fn of(members: &Map<String, Value>) -> Self {
        let is_written = |key: &str| members.contains_key(key);
        if let Some(word) = members.get("mode").and_then(Value::as_str) {
            let unknown = if is_written("run") { Self::Script } else { Self::Llm };
            Self::from_word(word).unwrap_or(unknown)
        } else if proxy_key(members).is_some() {
            Self::Proxy
        } else if is_written("tools") {
            Self::Llm
        } else if is_written("run") {
            Self::Script
        } else if is_written("serve") {
            Self::StaticFile
        } else {
            Self::Llm
        }
    }
}

/// The key that has the address of mode proxy.
pub(super) fn proxy_key(members: &Map<String, Value>) -> Option<&'static str> {
    let has_value = |key: &&str| members.get(*key).is_some_and(|value| !value.is_null());
    PROXY_KEYS.into_iter().find(has_value)
}
