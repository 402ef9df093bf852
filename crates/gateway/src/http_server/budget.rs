//! The memory budget of requests: the body while it arrives, the copies that rounds make of it, files, and runs in flight.
//!
//! All of it is taken from the process's [`MemoryBudget`], as bytes arrive and not as a client announces them, and
//! given back when the request ends. Large bodies take from a part of the budget only, so that they never leave small
//! requests without room.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::HeaderMap;
use knack_memory::{MemoryBudget, MemoryShare, OverBudget};
use knack_serving::bodies::{BODY_MAX_BYTES, Bodies, BodyBudget};
use knack_vocabulary::defaults::QUEUE_TIMEOUT;

use crate::model_calls::turn_store::KeyedHash;
pub use knack_serving::bodies::{BodyError, BodyTimes, HeldBody, Holding};

/// Bytes that a request takes of the whole budget; more than this comes from the part for large bodies. A long
/// conversation of text has about this size.
const SMALL_BYTES: usize = 256 << 10;
/// Share of the budget for everything but small requests, in quarters: the last quarter is always theirs.
const BULK_QUARTERS: usize = 3;
/// Share of the budget for large bodies and files, in quarters.
const LARGE_QUARTERS: usize = 2;
/// Share of the budget for skill content, in quarters: a gateway holds the skills of all its clients.
const CONTENT_QUARTERS: usize = 1;
/// Bytes of the part for large bodies that a caller may take at least: one body of the largest size with its copy.
const CALLER_LEAST_BYTES: usize = 2 * BODY_MAX_BYTES;
/// How long a run waits for room: as long as a call waits for a permit in the usual queue.
const RUN_PATIENCE: Duration = QUEUE_TIMEOUT;

/// The part of the process's memory budget that requests take.
#[derive(Debug, Clone)]
pub struct RequestMemory {
    whole: MemoryBudget,
    /// Everything but small requests.
    bulk: MemoryBudget,
    bodies: Bodies<KeyedHash>,
}

impl RequestMemory {
    /// Takes from the process's budget.
    pub fn new(process: &MemoryBudget, times: BodyTimes) -> Self {
        let quarter = process.total_bytes() / 4;
        let bulk = process.part(BULK_QUARTERS * quarter);
        let budget = BodyBudget {
            whole: process.clone(),
            large: bulk.part(LARGE_QUARTERS * quarter),
            small_bytes: SMALL_BYTES,
            caller_least_bytes: CALLER_LEAST_BYTES,
        };
        Self {
            whole: process.clone(),
            bulk,
            bodies: Bodies::new(budget, times),
        }
    }

    /// The bound on skill content, bytes.
    pub(crate) fn content(&self) -> MemoryBudget {
        self.bulk.part(self.whole.total_bytes() / 4 * CONTENT_QUARTERS)
    }

    /// The process's budget.
    pub const fn process(&self) -> &MemoryBudget {
        &self.whole
    }

    /// Reads a body to its end within the bounds.
    pub async fn read(&self, caller: &KeyedHash, headers: &HeaderMap, body: Body) -> Result<HeldBody, BodyError> {
        self.bodies.read(caller, headers, body).await
    }

    /// Reads what a provider answers and this gateway changes, of at most so many bytes: it counts as a body of the caller
    /// that asked for it.
    pub(crate) async fn read_answer(
        &self,
        most: usize,
        caller: &KeyedHash,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<HeldBody, BodyError> {
        self.bodies.read_up_to(most, caller, headers, body).await
    }

    /// A body that is passed on as it comes: an error ends it when its sender is silent for too long.
    pub(crate) fn passing(
        &self,
        body: Body,
    ) -> impl futures::Stream<Item = Result<Bytes, axum::Error>> + Send + 'static {
        self.bodies.passing(body)
    }

    /// Takes `bytes` for a caller now.
    pub fn hold(&self, caller: &KeyedHash, bytes: usize) -> Result<Holding, OverBudget> {
        self.bodies.hold(caller, bytes)
    }

    /// Takes the bytes that a run in progress may need, waiting for others to end.
    pub(crate) async fn hold_run(&self, bytes: usize) -> Result<MemoryShare, OverBudget> {
        let bytes = bytes.min(self.bulk.total_bytes());
        self.bulk.take(bytes, RUN_PATIENCE).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;
    const A: KeyedHash = [1; 32];
    const B: KeyedHash = [2; 32];

    #[tokio::test]
    async fn large_bodies_leave_a_quarter_to_small_requests_and_half_of_the_large_part_to_another_caller() {
        let requests = RequestMemory::new(&MemoryBudget::new(512 * MIB), BodyTimes::default());
        let body = || Body::from(vec![b'x'; 30 * MIB]);
        let mut held = Vec::new();
        while let Ok(body) = requests.read(&A, &HeaderMap::new(), body()).await {
            held.push(body);
        }
        assert_eq!(held.len(), 4, "half of 256 MiB");
        while let Ok(body) = requests.read(&B, &HeaderMap::new(), body()).await {
            held.push(body);
        }
        assert_eq!(held.len(), 8);
        let runs = requests.bulk.free_bytes();
        let run = requests.hold_run(runs).await.unwrap();
        let small: Vec<_> = (0..100).map(|_| requests.hold(&A, SMALL_BYTES).unwrap()).collect();
        drop((held, run, small));
        assert_eq!(requests.process().held_bytes(), 0);
    }
}
