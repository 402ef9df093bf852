//! Risk levels, and their names in manifests.

use knack_skill::risk::Risk;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a call of a declared tool can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RiskWord {
    /// Reads only.
    Safe,
    /// Changes state.
    Moderate,
    /// Changes state outside: files or network.
    Dangerous,
    /// Only ever set by hand.
    Critical,
}

impl From<RiskWord> for Risk {
    fn from(word: RiskWord) -> Self {
        match word {
            RiskWord::Safe => Self::Safe,
            RiskWord::Moderate => Self::Moderate,
            RiskWord::Dangerous => Self::Dangerous,
            RiskWord::Critical => Self::Critical,
        }
    }
}

impl From<Risk> for RiskWord {
    fn from(risk: Risk) -> Self {
        match risk {
            Risk::Safe => Self::Safe,
            Risk::Moderate => Self::Moderate,
            Risk::Dangerous => Self::Dangerous,
            Risk::Critical => Self::Critical,
        }
    }
}
