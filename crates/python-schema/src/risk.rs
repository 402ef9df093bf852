//! Safety flags, the risk level derived from them, and shown names.

/// How much damage a call can do, for a person or a policy to judge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RiskLevel {
    /// Derived from the flags.
    #[default]
    Auto,
    /// Reads only.
    Safe,
    /// Changes state.
    Moderate,
    /// Changes state outside: files or network.
    Dangerous,
    /// Only ever set by hand.
    Critical,
}

impl RiskLevel {
    /// Reads the word of a declaration, in any case: `dangerous`, `DANGEROUS`.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Auto, Self::Safe, Self::Moderate, Self::Dangerous, Self::Critical]
            .into_iter()
            .find(|level| level.word().eq_ignore_ascii_case(word))
    }

    /// The word of the wire form.
    pub fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Safe => "safe",
            Self::Moderate => "moderate",
            Self::Dangerous => "dangerous",
            Self::Critical => "critical",
        }
    }

    /// The level itself, or what the flags make of `Auto`: side effects with files or network are dangerous, side
    /// effects alone moderate, everything else safe.
    #[must_use]
    pub fn resolve(self, flags: SafetyFlags) -> Self {
        match self {
            Self::Auto if flags.side_effects && (flags.requires_network || flags.requires_filesystem) => {
                Self::Dangerous
            }
            Self::Auto if flags.side_effects => Self::Moderate,
            Self::Auto => Self::Safe,
            explicit => explicit,
        }
    }
}

/// A function's own statements on its safety.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "four independent flags of the decorator, each its own keyword"
)]
pub struct SafetyFlags {
    /// It changes state.
    pub side_effects: bool,
    /// Calling it again is safe.
    pub idempotent: bool,
    /// It needs the network.
    pub requires_network: bool,
    /// It needs files.
    pub requires_filesystem: bool,
}

/// The shown name: the explicit one unless it is empty, else the name with blanks for underscores in title case.
pub fn display_name(name: &str, explicit: Option<&str>) -> String {
    match explicit {
        Some(shown) if !shown.is_empty() => shown.to_owned(),
        _ => title_case(&name.replace('_', " ")),
    }
}

/// Every run of letters with a capital first and small ones after it; everything else splits runs.
pub(super) fn title_case(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut inside = false;
    for letter in text.chars() {
        if inside {
            out.extend(letter.to_lowercase());
        } else {
            // A capital that is several letters, such as that of the German sharp s, continues in lower case.
            let mut capital = letter.to_uppercase();
            out.extend(capital.next());
            out.extend(capital.flat_map(char::to_lowercase));
        }
        inside = letter.is_lowercase() || letter.is_uppercase();
    }
    out
}
