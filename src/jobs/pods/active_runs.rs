//! Whether runs are active, for tasks that wait until none is.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// Quiet time before a refill: the answer of the call that emptied the place is out, and the next of a chain of calls a few
/// hundred milliseconds apart has come.
const REFILL_QUIET: Duration = Duration::from_millis(150);
/// How long a refill waits for quiet: under steady load the pool must not stay empty.
const REFILL_PATIENCE: Duration = Duration::from_secs(1);

/// Counts active runs, and notifies every listener of a change. A single wake-up would go to the task that waits
/// longest, which may wait for another state.
#[derive(Debug)]
pub(super) struct ActiveRuns {
    active: AtomicUsize,
    changed: watch::Sender<()>,
}

/// Counts a run as active while it lives.
#[derive(Debug)]
pub(in crate::jobs) struct ActiveRun(Arc<ActiveRuns>);

impl ActiveRuns {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            active: AtomicUsize::new(0),
            changed: watch::Sender::new(()),
        })
    }

    /// Marks a run as active.
    pub(super) fn begin(self: &Arc<Self>) -> ActiveRun {
        self.active.fetch_add(1, Ordering::Relaxed);
        ActiveRun(Arc::clone(self))
    }

    /// Wakes all listeners.
    pub(super) fn notify(&self) {
        self.changed.send_replace(());
    }

    /// A new listener, which sees all changes from now on.
    pub(super) fn listen(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Returns when no run has been active for a moment, or patience is over.
    pub(super) async fn wait(&self) {
        let until = Instant::now() + REFILL_PATIENCE;
        let mut changes = self.listen();
        loop {
            while self.active.load(Ordering::Relaxed) > 0 {
                if tokio::time::timeout_at(until, changes.changed()).await.is_err() {
                    return;
                }
            }
            tokio::time::sleep(REFILL_QUIET).await;
            if self.active.load(Ordering::Relaxed) == 0 || Instant::now() >= until {
                return;
            }
        }
    }
}

impl Drop for ActiveRun {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Ordering::Relaxed);
        self.0.notify();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two refillers share one pool: the end of a run must reach the one that waits for it, also if there are other
    /// listeners.
    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_run_wakes_the_one_that_waits_for_quiet() {
        let quiet = ActiveRuns::new();
        let mut idle = quiet.listen();
        let idle = tokio::spawn(async move { idle.changed().await });
        tokio::task::yield_now().await;
        let run = quiet.begin();
        let begun = Instant::now();
        let waiting = tokio::spawn({
            let quiet = Arc::clone(&quiet);
            async move {
                quiet.wait().await;
                begun.elapsed()
            }
        });
        tokio::time::sleep(Duration::from_millis(10)).await;
        drop(run);
        let waited = waiting.await.unwrap();
        assert!(waited < Duration::from_millis(10) + REFILL_QUIET * 2, "{waited:?}");
        assert!(idle.await.unwrap().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn under_steady_load_patience_ends() {
        let quiet = ActiveRuns::new();
        let _run = quiet.begin();
        let begun = Instant::now();
        quiet.wait().await;
        assert_eq!(begun.elapsed(), REFILL_PATIENCE);
    }
}
