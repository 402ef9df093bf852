//! How much damage a call of a declared tool can do, as its author says (docs/skills.md#risk).

use serde::{Deserialize, Serialize};

/// The level of a tool, and the limit of a runtime (`spec.maxRisk`). The order is that of the limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Risk {
    /// Reads only. Also the level of a tool that declares none, by the rule of the dialect that levels come from.
    #[default]
    Safe,
    /// Changes state.
    Moderate,
    /// Changes state outside: files or network.
    Dangerous,
    /// Only ever set by hand.
    Critical,
}

impl Risk {
    /// All levels, the lowest first.
    pub const ALL: [Self; 4] = [Self::Safe, Self::Moderate, Self::Dangerous, Self::Critical];

    /// The word in manifests.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Safe => "Safe",
            Self::Moderate => "Moderate",
            Self::Dangerous => "Dangerous",
            Self::Critical => "Critical",
        }
    }

    /// Reads a word, in any case.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|level| level.as_str().eq_ignore_ascii_case(word.trim()))
    }
}
