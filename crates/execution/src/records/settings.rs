//! The bounds of the table.

use std::time::Duration;

use crate::ExecutionId;

/// Bounds of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordSettings {
    /// How long a result can be asked for after its end (`ttlSecondsAfterFinished`).
    pub retention: Duration,
    /// How old an id may be at its first run: an id carries its gateway request's start, and a request may run code
    /// until its own deadline (`gateway.injection.deadlineSeconds`).
    pub admission: Duration,
    /// Bytes of kept results together; the oldest results become tombstones first.
    pub max_bytes: u64,
    /// Entries and tombstones together; beyond it new executions are refused as if the queue were full.
    pub max_entries: usize,
}

impl RecordSettings {
    /// Age of an id at its first run that is always accepted: the default deadline of a gateway's request.
    pub const ADMISSION: Duration = Duration::from_mins(9);

    /// How far ahead of the clock of the table an id may be: clocks of nodes differ. Gateways that know the hub's clock go by it
    /// ([`crate::Executor::now`]); this is for the others.
    pub const CLOCK_SKEW: Duration = Duration::from_mins(1);

    /// Whether an id is refused at `now` because it is too far ahead of it.
    pub fn is_ahead(id: ExecutionId, now: Duration) -> bool {
        id.time() > now + Self::CLOCK_SKEW
    }

    /// How long an id is accepted after the time that it carries.
    pub(super) fn horizon(&self) -> Duration {
        self.admission + self.retention
    }
}

impl Default for RecordSettings {
    fn default() -> Self {
        Self {
            retention: Duration::from_mins(5),
            admission: Self::ADMISSION,
            // 16 results of the largest default size (4 MiB of files); usual results are a few KiB.
            max_bytes: 64 << 20,
            // About 120 new executions per second for the whole window, at about 200 bytes per tombstone.
            max_entries: 100_000,
        }
    }
}
