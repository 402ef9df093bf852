//! The holders of claims.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::execution::Execution;
use super::settings::HistorySettings;

/// How long a holder may be silent: three times the pause between its claims, and the time that a claim
/// may take.
const SILENCE_MAX: Duration = Duration::from_secs(90);

/// The holder of a claim.
#[derive(Debug)]
struct Holder {
    /// The request of the gateway.
    request: String,
    /// The time of its last claim.
    at: Instant,
    /// The namespace.
    group: String,
    /// Bytes of the line.
    bytes: u64,
}

impl Holder {
    fn is_silent(&self, now: Instant) -> bool {
        now.duration_since(self.at) >= SILENCE_MAX
    }
}

/// The holder of each claim of a run that has not ended. A restart forgets them; their runs are lost by then.
#[derive(Debug, Default)]
pub(super) struct Holders(HashMap<String, Holder>);

impl Holders {
    /// Whether one more claim fits. A namespace may have as many as are left for others, so that one alone has half, and of
    /// several none is without: claims are never pushed out.
    pub(super) fn admit(&self, asked: &Execution, bytes: u64, settings: HistorySettings, now: Instant) -> bool {
        let (mut own, mut all) = ((0, 0), (0, 0));
        for holder in self.0.values().filter(|holder| !holder.is_silent(now)) {
            all = (all.0 + 1, all.1 + holder.bytes);
            if holder.group == asked.caller.group() {
                own = (own.0 + 1, own.1 + holder.bytes);
            }
        }
        own.0 < settings.most_claims.saturating_sub(all.0)
            && own.1 + bytes <= settings.most_claim_bytes().saturating_sub(all.1)
    }

    /// Records that its request holds the claim of an execution.
    pub(super) fn hold(&mut self, execution: &Execution, bytes: u64, now: Instant) {
        self.0.retain(|_, holder| !holder.is_silent(now));
        let holder = Holder {
            request: execution.request.clone(),
            at: now,
            group: execution.caller.group().to_owned(),
            bytes,
        };
        self.0.insert(execution.id.clone(), holder);
    }

    /// The same holder has claimed again.
    pub(super) fn renew(&mut self, id: &str, now: Instant) {
        if let Some(holder) = self.0.get_mut(id) {
            holder.at = now;
        }
    }

    /// The request that holds the claim; `None` if it is silent for too long.
    pub(super) fn of(&self, id: &str, now: Instant) -> Option<&str> {
        let holder = self.0.get(id).filter(|holder| !holder.is_silent(now))?;
        Some(&holder.request)
    }

    /// The request that held the claim last, however long ago.
    pub(super) fn last(&self, id: &str) -> Option<&str> {
        self.0.get(id).map(|holder| holder.request.as_str())
    }

    /// Releases the claim.
    pub(super) fn release(&mut self, id: &str) {
        self.0.remove(id);
    }
}
