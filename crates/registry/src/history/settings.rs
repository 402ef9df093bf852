//! The bounds of a history.

use std::time::Duration;

/// The bounds of a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistorySettings {
    /// Age of the oldest execution.
    pub age: Duration,
    /// Executions: each is some 300 bytes of memory.
    pub most: usize,
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
            most_bytes: 64 << 20,
        }
    }

    /// These settings with another bound on the disk.
    #[must_use]
    pub const fn within(self, most_bytes: u64) -> Self {
        Self { most_bytes, ..self }
    }
}
