//! Waiters whose callers have disconnected.

use std::time::Duration;

use knack_execution::records::Waiter;

/// Keeps a waiter registered for a grace period after its connection drops.
pub(in crate::jobs) struct WaiterGrace {
    pub(super) waiter: Option<Waiter>,
    pub(super) grace: Duration,
}

impl Drop for WaiterGrace {
    fn drop(&mut self) {
        if let Some(waiter) = self.waiter.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let grace = self.grace;
            runtime.spawn(leave_later(waiter, grace));
        }
    }
}

/// Waits for the outcome in place of a disconnected caller; when the time is up the run is cancelled unless another
/// caller waits.
pub(super) async fn leave_later(mut waiter: Waiter, grace: Duration) {
    let _ = tokio::time::timeout(grace, waiter.wait()).await;
}
