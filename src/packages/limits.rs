//! The limits of a build.

use std::time::Duration;

/// Bounds of one build; each has an error of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuildLimits {
    /// Bytes of an environment, unpacked.
    pub bytes: u64,
    /// Files of an environment.
    pub files: u64,
    /// Packages of an environment.
    pub packages: usize,
    /// Time of choosing versions and of installing, each.
    pub time: Duration,
}

impl Default for BuildLimits {
    fn default() -> Self {
        Self {
            // Eight times the largest environment of the public skills (244 MB).
            bytes: 2 << 30,
            // Forty times that of the same (1,272 files).
            files: 50_000,
            packages: knack_packages::MAX_PACKAGES,
            // Installing it takes 5 s; a slow line needs a minute for its 92 MB.
            time: Duration::from_mins(5),
        }
    }
}
