//! The bounds of a history.

use std::time::Duration;

/// Bytes after which a new file is started: the bound on the disk is kept in such steps.
pub(super) const FILE_BYTES: u64 = 4 << 20;

/// The bounds of a history. Over a bound, the caller that has the most in the namespace that has the most loses its oldest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistorySettings {
    /// Age of the oldest execution.
    pub age: Duration,
    /// Executions: each is some 300 bytes of memory.
    pub most: usize,
    /// Claims of runs that have not ended. They are never pushed out, so that there must be few of them beside `most`: at the pace
    /// of the registry a namespace has some 300 of them at worst.
    pub most_claims: usize,
    /// Bytes on the disk, in steps of a file of 4 MiB. One list reads a few lines of them.
    pub most_bytes: u64,
}

impl HistorySettings {
    /// Days that are kept by default.
    pub const DAYS: u32 = 30;

    /// The bounds for so many days.
    #[must_use]
    pub const fn of_days(days: u32) -> Self {
        Self {
            age: Duration::from_secs(days as u64 * 24 * 3_600),
            most: 50_000,
            most_claims: 4_096,
            most_bytes: 64 << 20,
        }
    }

    /// These settings with another bound on the disk.
    #[must_use]
    pub const fn within(self, most_bytes: u64) -> Self {
        Self { most_bytes, ..self }
    }

    /// Bytes of the last lines of all executions. The rest of the disk is for lines that later ones have replaced, so that what is
    /// kept of the files that are removed is written about once more.
    pub(super) const fn most_kept_bytes(self) -> u64 {
        self.most_bytes.saturating_sub(FILE_BYTES) / 2
    }

    /// Bytes of claims of runs that have not ended: half of what is kept.
    pub(super) const fn most_claim_bytes(self) -> u64 {
        self.most_kept_bytes() / 2
    }
}
