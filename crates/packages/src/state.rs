//! The state of a skill's packages, and the meaning of an installer's output.

use std::fmt;

/// The state of a skill's packages at one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Versions are being chosen.
    Resolving,
    /// The environment is being built.
    Building,
    /// The environment is ready.
    Ready,
    /// The skill declares nothing and imports nothing of the standard environment.
    NotDeclared,
    /// A declaration is refused, and the findings say which; or a script or package needs another Python.
    Refused,
    /// The index has no package of a name, or no version that fits.
    PackageNotFound,
    /// There is no wheel for this platform; nothing is built from source.
    NoWheel,
    /// A file of the index is not the one that the lock names.
    HashMismatch,
    /// Requirements exclude each other.
    Conflict,
    /// The index does not answer.
    IndexUnreachable,
    /// The registry does not take the environment.
    RegistryRefused,
    /// More bytes, files or packages than an environment may have.
    TooLarge,
    /// It took longer than a build may.
    TimedOut,
    /// No builder runs here.
    PackagesOff,
    /// The installer failed in a way that has no name here.
    Failed,
}

impl State {
    /// Every state.
    pub const ALL: [Self; 15] = [
        Self::Resolving,
        Self::Building,
        Self::Ready,
        Self::NotDeclared,
        Self::Refused,
        Self::PackageNotFound,
        Self::NoWheel,
        Self::HashMismatch,
        Self::Conflict,
        Self::IndexUnreachable,
        Self::RegistryRefused,
        Self::TooLarge,
        Self::TimedOut,
        Self::PackagesOff,
        Self::Failed,
    ];

    /// The state of a word that [`State::as_str`] returned, also in another process.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// Whether an environment may still become ready without a change.
    pub const fn is_pending(self) -> bool {
        matches!(self, Self::Resolving | Self::Building)
    }

    /// Whether the same build may have another result later, without a change of the declaration.
    pub const fn may_pass(self) -> bool {
        matches!(
            self,
            Self::IndexUnreachable | Self::RegistryRefused | Self::TimedOut | Self::Failed
        )
    }

    /// The word of status and JSON output.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Resolving => "Resolving",
            Self::Building => "Building",
            Self::Ready => "Ready",
            Self::NotDeclared => "NotDeclared",
            Self::Refused => "Refused",
            Self::PackageNotFound => "PackageNotFound",
            Self::NoWheel => "NoWheel",
            Self::HashMismatch => "HashMismatch",
            Self::Conflict => "Conflict",
            Self::IndexUnreachable => "IndexUnreachable",
            Self::RegistryRefused => "RegistryRefused",
            Self::TooLarge => "TooLarge",
            Self::TimedOut => "TimedOut",
            Self::PackagesOff => "PackagesOff",
            Self::Failed => "Failed",
        }
    }

    /// The state for a failure of `uv`, by its standard error.
    pub fn of_uv(output: &str) -> Self {
        // Its lines are wrapped, so words are compared with single blanks between them.
        let output = output.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| output.contains(word));
        // Specific messages first: uv reports missing wheels as an unsatisfiable set too.
        if has(&["hash mismatch"]) {
            Self::HashMismatch
        } else if has(&[
            "failed to fetch",
            "error sending request",
            "client error (connect)",
            "dns error",
            "connection refused",
            "request timed out",
            "network connectivity is disabled",
        ]) {
            Self::IndexUnreachable
        } else if has(&[
            "was not found in the package registry",
            "not found in the provided package locations",
        ]) {
            Self::PackageNotFound
        } else if has(&[
            "no usable wheels",
            "no wheels with a matching",
            "building from source is disabled",
            "no matching distribution",
        ]) {
            Self::NoWheel
        } else if has(&[
            "there is no version of",
            "there are no versions of",
            "is available and you require",
        ]) {
            Self::PackageNotFound
        } else if has(&["requires python >", "requires python <", "requires python ="]) {
            Self::Refused
        } else if has(&["has an invalid package format"]) {
            // Reported as an unsatisfiable set too.
            Self::Failed
        } else if has(&["are incompatible", "unsatisfiable", "conflicting"]) {
            Self::Conflict
        } else if has(&["no space left on device"]) {
            Self::TooLarge
        } else {
            Self::Failed
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_read_as_it_is_written() {
        for state in State::ALL {
            assert_eq!(State::of_word(state.as_str()), Some(state));
        }
        assert_eq!(State::of_word("ready"), None);
    }

    /// Texts of uv 0.13.9.
    #[test]
    fn words_of_uv_become_states() {
        for (output, state) in [
            (
                "Because nosuch was not found in the package registry and you\n require nosuch, we can conclude that your requirements are unsatisfiable.",
                State::PackageNotFound,
            ),
            (
                "Because there is no version of pillow==99 and you require pillow==99, we can conclude that your requirements are unsatisfiable.",
                State::PackageNotFound,
            ),
            (
                "Because only good<=2.0 is available and you require good>=3, we can conclude that your requirements are unsatisfiable.",
                State::PackageNotFound,
            ),
            (
                "Because docopt==0.6.2 has no usable wheels and you require docopt==0.6.2, your requirements are unsatisfiable.",
                State::NoWheel,
            ),
            (
                "have no wheels with a matching Python ABI tag (e.g., `cp311`)",
                State::NoWheel,
            ),
            (
                "error: Failed to download `imageio==2.38.1`\n  cause: Hash mismatch for `imageio==2.38.1`",
                State::HashMismatch,
            ),
            (
                "error: Failed to fetch: http://127.0.0.1:1/simple/numpy/\n cause: client error (Connect)",
                State::IndexUnreachable,
            ),
            (
                "Because you require a==1 and a==2, we can conclude that your requirements are unsatisfiable.",
                State::Conflict,
            ),
            (
                "error: Failed to write: No space left on device (os error 28)",
                State::TooLarge,
            ),
            (
                "Because newer==1.0 requires Python >=99 and only newer==1.0 is available, we can conclude that all versions of newer cannot be used.\n And because you require newer, we can conclude that your requirements are unsatisfiable.",
                State::Refused,
            ),
            (
                "Because alias==1.0 has an invalid package format and only alias==1.0 is available, we can conclude that all versions of alias cannot be used.\n And because you require alias, we can conclude that your requirements are unsatisfiable.",
                State::Failed,
            ),
            ("error: something else", State::Failed),
        ] {
            assert_eq!(State::of_uv(output), state, "{output}");
        }
    }
}
