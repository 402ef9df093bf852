//! The memory budget of a process: how many bytes it may hold for others at once.
//!
//! Request bodies, queued executions, records, spools, skill content and generated files all hold bytes whose number
//! others choose. Each takes a [`MemoryShare`] when its bytes arrive and keeps it until they are gone, so that all of
//! them together stay below the process's memory limit. A request without room is refused with an error; nothing waits
//! without a bound.
//!
//! A process makes one budget and hands it on. Parts with a bound of their own are [`MemoryBudget::part`]s of it: what
//! they hold counts in both.

mod limit;
mod parts;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub use limit::process_limit;
pub use parts::MemoryParts;

/// The budget is counted in units of this many bytes: small enough that a 2 KiB body does not count as a large one,
/// large enough that 4 TiB fit into a semaphore's counter.
const UNIT_BYTES: usize = 1 << 10;
/// Share of the process's memory limit that the budget covers. The other half holds what is not counted: code, the
/// allocator's slack, copies while a body is parsed, connections, and the process's own state.
const LIMIT_DIVISOR: u64 = 2;
/// Budget of a process without a memory limit, as `knack dev` is: eight of the largest bodies with their results.
const UNLIMITED_BYTES: u64 = 512 << 20;
/// Smallest budget: two of the largest bodies. A limit below 128 MiB makes a process that refuses much, not one that
/// refuses everything.
const LEAST_BYTES: u64 = 64 << 20;

/// A budget of bytes, shared by all clones.
#[derive(Debug, Clone)]
pub struct MemoryBudget {
    units: Arc<Semaphore>,
    total_bytes: usize,
    /// The budget that this one is a part of.
    whole: Option<Arc<Self>>,
}

/// Bytes taken from a budget; given back when dropped.
#[derive(Debug)]
pub struct MemoryShare {
    permit: OwnedSemaphorePermit,
    of_whole: Option<Box<Self>>,
    budget: MemoryBudget,
}

/// The budget has no room for this many bytes now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{asked_bytes} bytes do not fit into the memory budget of {total_bytes} bytes now")]
pub struct OverBudget {
    /// The bytes that were requested.
    pub asked_bytes: usize,
    /// All that the budget has.
    pub total_bytes: usize,
}

impl OverBudget {
    /// Whether the request can never be met, however long one waits.
    #[must_use]
    pub fn is_final(&self) -> bool {
        self.asked_bytes > self.total_bytes
    }
}

impl MemoryBudget {
    /// A budget of `bytes`.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        // A semaphore counts to usize::MAX / 8, more than any machine has.
        let units = (bytes / UNIT_BYTES).min(Semaphore::MAX_PERMITS);
        Self {
            units: Arc::new(Semaphore::new(units)),
            total_bytes: units * UNIT_BYTES,
            whole: None,
        }
    }

    /// The budget of this process: half of its memory limit, as [`process_limit`] finds it.
    #[must_use]
    pub fn of_process() -> Self {
        Self::of_limit(process_limit())
    }

    /// The budget under a memory limit, bytes; `None`: no limit.
    #[must_use]
    pub fn of_limit(limit: Option<u64>) -> Self {
        let bytes = limit.map_or(UNLIMITED_BYTES, |limit| (limit / LIMIT_DIVISOR).max(LEAST_BYTES));
        Self::new(usize::try_from(bytes).unwrap_or(usize::MAX))
    }

    /// A part of this budget with at most `bytes` of its own: its bytes count in both.
    #[must_use]
    pub fn part(&self, bytes: usize) -> Self {
        Self {
            whole: Some(Arc::new(self.clone())),
            ..Self::new(bytes.min(self.total_bytes))
        }
    }

    /// All that this budget has, bytes.
    #[must_use]
    pub fn total_bytes(&self) -> usize {
        self.total_bytes
    }

    /// Whether anybody else holds this budget, or may take from it.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.units) > 1
    }

    /// Free bytes of this budget. Others may take them before the caller does.
    #[must_use]
    pub fn free_bytes(&self) -> usize {
        self.units.available_permits() * UNIT_BYTES
    }

    /// Held bytes of this budget.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.total_bytes.saturating_sub(self.free_bytes())
    }

    /// Takes `bytes` if they are free now.
    pub fn try_take(&self, bytes: usize) -> Result<MemoryShare, OverBudget> {
        // A request that can never fit is refused as such, also when there is no room at this moment.
        if bytes > self.total_bytes {
            return Err(self.over(bytes));
        }
        let of_whole = match &self.whole {
            Some(whole) => Some(Box::new(whole.try_take(bytes)?)),
            None => None,
        };
        let permit = u32::try_from(units_of(bytes))
            .ok()
            .and_then(|units| Arc::clone(&self.units).try_acquire_many_owned(units).ok())
            .ok_or_else(|| self.over(bytes))?;
        Ok(MemoryShare {
            permit,
            of_whole,
            budget: self.clone(),
        })
    }

    /// Takes `bytes`, waiting at most `patience` for others to give back theirs. First come, first served.
    pub async fn take(&self, bytes: usize, patience: Duration) -> Result<MemoryShare, OverBudget> {
        if bytes > self.total_bytes {
            return Err(self.over(bytes));
        }
        tokio::time::timeout(patience, self.wait_for(bytes))
            .await
            .map_err(|_| self.over(bytes))?
    }

    async fn wait_for(&self, bytes: usize) -> Result<MemoryShare, OverBudget> {
        let units = u32::try_from(units_of(bytes)).map_err(|_| self.over(bytes))?;
        // The part first: a request that waits for the part's bound holds nothing of the shared budget.
        let permit = Arc::clone(&self.units)
            .acquire_many_owned(units)
            .await
            .map_err(|_| self.over(bytes))?;
        let of_whole = match &self.whole {
            Some(whole) => Some(Box::new(Box::pin(whole.wait_for(bytes)).await?)),
            None => None,
        };
        Ok(MemoryShare {
            permit,
            of_whole,
            budget: self.clone(),
        })
    }

    fn over(&self, asked_bytes: usize) -> OverBudget {
        OverBudget {
            asked_bytes,
            total_bytes: self.total_bytes,
        }
    }
}

impl MemoryShare {
    /// Bytes held, rounded up to the budget's unit.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.permit.num_permits() * UNIT_BYTES
    }

    /// Makes the share at least `bytes` large, if the budget has the rest now. A share that is larger stays as it is.
    pub fn grow_to(&mut self, bytes: usize) -> Result<(), OverBudget> {
        let held = self.bytes();
        if bytes > held {
            if bytes > self.budget.total_bytes {
                return Err(self.budget.over(bytes));
            }
            let rest = self.budget.try_take(bytes - held).map_err(|over| OverBudget {
                asked_bytes: bytes,
                ..over
            })?;
            self.merge(rest);
        }
        Ok(())
    }

    /// Gives back what is above `bytes`.
    pub fn shrink_to(&mut self, bytes: usize) {
        let above = self.permit.num_permits().saturating_sub(units_of(bytes));
        drop(self.permit.split(above));
        if let Some(of_whole) = &mut self.of_whole {
            of_whole.shrink_to(bytes);
        }
    }

    fn merge(&mut self, other: Self) {
        self.permit.merge(other.permit);
        if let (Some(mine), Some(theirs)) = (&mut self.of_whole, other.of_whole) {
            mine.merge(*theirs);
        }
    }
}

/// Every share costs at least one unit: an empty body still has a head.
fn units_of(bytes: usize) -> usize {
    bytes.div_ceil(UNIT_BYTES).max(1)
}

#[cfg(test)]
mod tests;
