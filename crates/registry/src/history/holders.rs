//! The holders of claims.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::execution::Execution;

/// How long a holder may be silent: three times the pause between its claims, and the time that a claim
/// may take.
const SILENCE_MAX: Duration = Duration::from_secs(90);

/// The holder of each claim: the request of the gateway, and the time of its last claim. A restart forgets them; their runs are lost
/// by then.
#[derive(Debug, Default)]
pub(super) struct Holders(HashMap<String, (String, Instant)>);

impl Holders {
    /// Records that its request holds the claim of an execution.
    pub(super) fn hold(&mut self, execution: &Execution, now: Instant) {
        self.0.retain(|_, (_, at)| now.duration_since(*at) < SILENCE_MAX);
        self.0.insert(execution.id.clone(), (execution.request.clone(), now));
    }

    /// The request that holds the claim; `None` if it is silent for too long.
    pub(super) fn of(&self, id: &str, now: Instant) -> Option<&str> {
        let (request, at) = self.0.get(id)?;
        (now.duration_since(*at) < SILENCE_MAX).then_some(request)
    }

    /// The request that held the claim last, however long ago.
    pub(super) fn last(&self, id: &str) -> Option<&str> {
        self.0.get(id).map(|(request, _)| request.as_str())
    }

    /// Releases the claim.
    pub(super) fn release(&mut self, id: &str) {
        self.0.remove(id);
    }
}
