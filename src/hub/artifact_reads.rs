//! The bounds of reads of ConfigMaps: connections, and the memory for what is read before it is known.

use std::time::Duration;

use knack_memory::{MemoryBudget, MemoryShare, OverBudget};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Reads at once: the client is HTTP/1.1, so each is a connection.
pub(super) const READS_AT_ONCE: usize = 32;
/// What a ConfigMap takes at most while it is read: 1 MiB of values, which is all that the API server takes, as they are sent, or
/// decoded and as files. Not the size that a status gives: somebody may have put another ConfigMap in the place of the named one.
const CONFIG_MAP_BYTES: usize = 2 << 20;
/// Share of the process's memory budget for all reads together: a quarter, so that under a limit of 512 MiB 32 skills
/// of one ConfigMap are read at once, and a skill of eleven beside ten of one.
const PART_DIVISOR: usize = 4;
/// How long a read waits for others to return their memory. Reads end within the time limit of a call to the API server.
const PATIENCE: Duration = Duration::from_secs(30);

/// The bounds; see the module.
pub(super) struct ArtifactReads {
    connections: Semaphore,
    /// Reads wait here for one another, and not in the process's budget: there a waiting read would keep room from requests.
    part: MemoryBudget,
    memory: MemoryBudget,
}

/// The right to read, with its memory. Held until the content has a share of its own.
pub(super) struct ReadPermit<'a> {
    _connection: Option<SemaphorePermit<'a>>,
    _of_part: MemoryShare,
    _of_memory: MemoryShare,
}

impl ArtifactReads {
    /// Bounds within the memory of a process.
    pub(super) fn within(memory: &MemoryBudget) -> Self {
        Self {
            connections: Semaphore::new(READS_AT_ONCE),
            part: MemoryBudget::new(memory.total_bytes() / PART_DIVISOR),
            memory: memory.clone(),
        }
    }

    /// Waits for the right to read so many ConfigMaps. A skill that is larger than the part is read alone.
    pub(super) async fn acquire(&self, config_maps: usize) -> Result<ReadPermit<'_>, OverBudget> {
        let bytes = config_maps
            .saturating_mul(CONFIG_MAP_BYTES)
            .min(self.part.total_bytes());
        let of_part = self.part.take(bytes, PATIENCE).await?;
        let of_memory = self.memory.try_take(bytes)?;
        Ok(ReadPermit {
            // It is never closed.
            _connection: self.connections.acquire().await.ok(),
            _of_part: of_part,
            _of_memory: of_memory,
        })
    }
}
