//! When a skill reaches models, in OmniRoute's words.

use knack_skill::model::ActivationMode;
use serde::{Deserialize, Serialize};

/// When a skill reaches models, in OmniRoute's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// In every request.
    On,
    /// In none, also not in one that names it.
    Off,
    /// Where it scores well.
    Auto,
}

impl Mode {
    /// Every mode.
    pub(crate) const ALL: [Self; 3] = [Self::On, Self::Off, Self::Auto];

    /// The word of the API.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
            Self::Auto => "auto",
        }
    }

    /// The mode of a word of the API.
    pub(crate) fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.word() == word)
    }

    /// The mode in the words of the rest of Knack.
    pub const fn activation(self) -> ActivationMode {
        match self {
            Self::On => ActivationMode::Always,
            Self::Off => ActivationMode::Never,
            Self::Auto => ActivationMode::Auto,
        }
    }

    /// `None`: OmniRoute has no such mode.
    pub(crate) fn of_activation(activation: ActivationMode) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.activation() == activation)
    }
}
