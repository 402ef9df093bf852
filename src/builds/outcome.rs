//! The outcome of a builder Job: its pod's termination message.

use knack_packages::State;
use knack_packages::environment::EnvironmentImage;
use serde::{Deserialize, Serialize};

/// Most bytes that the kubelet takes of a termination message.
const MESSAGE_MAX_BYTES: usize = 4096;
/// Most bytes of the reason in it: the rest is for the image and its folder, and for JSON escapes.
const REASON_MAX_BYTES: usize = 1024;

/// The outcome of a build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The state of the environment.
    pub state: State,
    /// The packages, or why there is no environment.
    pub message: String,
    /// The environment, if there is one.
    pub environment: Option<EnvironmentImage>,
    /// Whether some of the requested packages are left out, as the message explains.
    pub is_partial: bool,
}

#[derive(Serialize, Deserialize)]
struct OutcomeReport {
    state: String,
    message: String,
    #[serde(default, flatten, skip_serializing_if = "Option::is_none")]
    environment: Option<EnvironmentImage>,
    #[serde(default, rename = "partial")]
    is_partial: bool,
}

impl Outcome {
    /// The outcome of a failed build.
    pub fn failed(state: State, message: impl Into<String>) -> Self {
        Self {
            state,
            message: message.into(),
            environment: None,
            is_partial: false,
        }
    }

    /// The text of the termination message.
    pub fn text(&self) -> String {
        let mut end = self.message.floor_char_boundary(REASON_MAX_BYTES);
        loop {
            let written = OutcomeReport {
                state: self.state.to_string(),
                message: self.message[..end].to_owned(),
                environment: self.environment.clone(),
                is_partial: self.is_partial,
            };
            // Strings are always written.
            let text = serde_json::to_string(&written).unwrap_or_default();
            if text.len() <= MESSAGE_MAX_BYTES || end == 0 {
                return text;
            }
            end = self.message.floor_char_boundary(end / 2);
        }
    }

    /// Reads a termination message. `None`: it is not a message of a builder, or it names an image outside of the repository.
    pub fn read(text: &str, repository: &str) -> Option<Self> {
        let written: OutcomeReport = serde_json::from_str(text).ok()?;
        let state = State::of_word(&written.state)?;
        let is_own = |environment: &EnvironmentImage| {
            environment.is_plausible()
                && environment
                    .image
                    .strip_prefix(repository)
                    .is_some_and(|rest| rest.starts_with('@'))
        };
        let environment = written.environment.filter(is_own);
        (environment.is_some() == (state == State::Ready)).then_some(Self {
            state,
            message: written.message,
            environment,
            is_partial: written.is_partial,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_builder_writes_is_read_and_nothing_else_is() {
        let image = |repository: &str| EnvironmentImage {
            image: format!("{repository}@sha256:{}", "a".repeat(64)),
            home: "/opt/knack/packages/env-1".to_owned(),
        };
        let ready = |repository: &str| Outcome {
            state: State::Ready,
            message: "2 packages, 4 MB".to_owned(),
            environment: Some(image(repository)),
            is_partial: true,
        };
        let long = Outcome::failed(State::Conflict, "\u{1}ü".repeat(5000));
        assert!(long.text().len() <= MESSAGE_MAX_BYTES);
        let read = |outcome: &Outcome| Outcome::read(&outcome.text(), "r.io:5000/e");
        assert_eq!(read(&ready("r.io:5000/e")), Some(ready("r.io:5000/e")));
        assert_eq!(read(&long).unwrap().state, State::Conflict);
        for wrong in [
            ready("r.io:5000/other"),
            ready("r.io:5000/e/x"),
            ready("r.io:5000/ex"),
            Outcome::failed(State::Ready, "ready without an image"),
            Outcome {
                environment: Some(image("r.io:5000/e")),
                ..Outcome::failed(State::NoWheel, "failed with an image")
            },
        ] {
            assert_eq!(read(&wrong), None, "{wrong:?}");
        }
        for text in ["", "Error", "{}", "{\"state\":\"Ready\"}"] {
            assert_eq!(Outcome::read(text, "r.io:5000/e"), None, "{text}");
        }
    }
}
