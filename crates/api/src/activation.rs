//! Activation modes, and their names in manifests.

use knack_skill::model::ActivationMode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The enum words of the API (`off` and `on` are YAML booleans and therefore not among them).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ActivationWord {
    /// Never injected, never executed.
    Never,
    /// Only when a request names it.
    OnRequest,
    /// One line in the system text; the model loads it when it needs it.
    Listed,
    /// Scored against each request.
    Auto,
    /// Body and tools in every request.
    Always,
}

impl From<ActivationWord> for ActivationMode {
    fn from(word: ActivationWord) -> Self {
        match word {
            ActivationWord::Never => Self::Never,
            ActivationWord::OnRequest => Self::OnRequest,
            ActivationWord::Listed => Self::Listed,
            ActivationWord::Auto => Self::Auto,
            ActivationWord::Always => Self::Always,
        }
    }
}

impl From<ActivationMode> for ActivationWord {
    fn from(mode: ActivationMode) -> Self {
        match mode {
            ActivationMode::Never => Self::Never,
            ActivationMode::OnRequest => Self::OnRequest,
            ActivationMode::Listed => Self::Listed,
            ActivationMode::Auto => Self::Auto,
            ActivationMode::Always => Self::Always,
        }
    }
}
