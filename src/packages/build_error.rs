//! Why there is no environment.

use std::fmt;

use knack_packages::State;

/// Longest part of an installer's words that is shown.
const MAX_SAID: usize = 1500;

/// A state that is not `Ready`, with its reason for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildError {
    /// The state.
    pub state: State,
    /// What is wrong and what to do.
    pub text: String,
}

impl BuildError {
    /// A state with its reason.
    pub fn new(state: State, text: impl Into<String>) -> Self {
        Self {
            state,
            text: text.into(),
        }
    }

    /// What `uv` said, without what may be a credential.
    pub(super) fn of_uv(said: &str) -> Self {
        let said = without_credentials(said.trim());
        let end = said.floor_char_boundary(MAX_SAID);
        Self::new(State::of_uv(&said), &said[..end])
    }

    /// A file or folder of the store that cannot be used.
    pub(super) fn of_disk(what: &str, error: &std::io::Error) -> Self {
        let state = match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => State::TooLarge,
            _ => State::Failed,
        };
        Self::new(state, format!("{what}: {error}"))
    }
}

impl fmt::Display for BuildError {
    /// `NoWheel: reason`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.state, self.text)
    }
}

impl std::error::Error for BuildError {}

/// What stands between `//` and `@` of an address goes.
fn without_credentials(text: &str) -> String {
    let mut parts = text.split("//");
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let host_end = part
            .find(|letter: char| letter == '/' || letter.is_whitespace())
            .unwrap_or(part.len());
        let start = part[..host_end].rfind('@').map_or(0, |at| at + 1);
        shown.push_str("//");
        shown.push_str(&part[start..]);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_of_an_index_are_not_shown() {
        let said =
            "error: Failed to fetch: `https://me:secret@mirror.example/simple/a/`\n cause: https://tok@x dns error //";
        let error = BuildError::of_uv(said);
        assert_eq!(error.state, State::IndexUnreachable);
        assert_eq!(
            error.text,
            "error: Failed to fetch: `https://mirror.example/simple/a/`\n cause: https://x dns error //"
        );
    }
}
