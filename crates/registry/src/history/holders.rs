//! Who runs what was claimed.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::execution::Execution;

/// How long a gateway that runs something may be silent: three times the pause between its claims, and the time that a claim
/// may take.
const SILENCE_MAX: Duration = Duration::from_secs(90);

/// Who runs what was claimed: the request of the gateway, and when it said so last. A start forgets them; what they ran is lost
/// by then.
#[derive(Debug, Default)]
pub(super) struct Holders(HashMap<String, (String, Instant)>);

impl Holders {
    /// Says that its request runs an execution.
    pub(super) fn hold(&mut self, execution: &Execution, now: Instant) {
        self.0.retain(|_, (_, at)| now.duration_since(*at) < SILENCE_MAX);
        self.0.insert(execution.id.clone(), (execution.request.clone(), now));
    }

    /// The request that runs it.
    pub(super) fn of(&self, id: &str, now: Instant) -> Option<&str> {
        let (request, at) = self.0.get(id)?;
        (now.duration_since(*at) < SILENCE_MAX).then_some(request)
    }

    /// The request that said last that it runs it, however long ago.
    pub(super) fn last(&self, id: &str) -> Option<&str> {
        self.0.get(id).map(|(request, _)| request.as_str())
    }

    /// It runs no more.
    pub(super) fn release(&mut self, id: &str) {
        self.0.remove(id);
    }
}
