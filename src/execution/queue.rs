//! A bounded queue in front of a fixed number of places.
//!
//! Asking either gives a place, waits in order of arrival, or is refused at once: work never piles up. A caller that
//! goes away while it waits leaves the queue, and its turn goes to the next.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::ExecutionError;

/// Bounds of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueSettings {
    /// Runs at once; at least 1.
    pub concurrency: usize,
    /// Executions that may wait for a place.
    pub max_queued: usize,
    /// Longest wait for a place.
    pub queue_timeout: Duration,
}

impl QueueSettings {
    /// Waiting executions per place: with the default time limit of 10 s the last of them would wait 80 s at worst,
    /// past any queue timeout, and a few milliseconds at the usual run time.
    pub const QUEUED_PER_PLACE: usize = 8;
    /// Longest wait for a place: three times the default time limit of a run, below the idle limits of HTTP clients
    /// and proxies (60 s and more).
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

    /// The default bounds for `concurrency` places.
    #[must_use]
    pub fn for_concurrency(concurrency: usize) -> Self {
        let concurrency = concurrency.max(1);
        Self {
            concurrency,
            max_queued: concurrency * Self::QUEUED_PER_PLACE,
            queue_timeout: Self::DEFAULT_TIMEOUT,
        }
    }
}

/// What a refused caller is told to wait: long enough that a full queue of short runs has drained, short enough that a
/// tool loop survives it.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// The queue; see the module.
#[derive(Debug)]
pub struct Queue {
    settings: QueueSettings,
    places: Arc<Semaphore>,
    waiting: AtomicUsize,
}

/// A place to run in, given back when dropped.
#[derive(Debug)]
pub struct Place {
    /// How long its owner waited for it.
    pub waited: Duration,
    _permit: OwnedSemaphorePermit,
}

impl Queue {
    /// An empty queue.
    #[must_use]
    pub fn new(settings: QueueSettings) -> Self {
        let places = Arc::new(Semaphore::new(settings.concurrency.max(1)));
        Self {
            settings,
            places,
            waiting: AtomicUsize::new(0),
        }
    }

    /// Waits for a place, first come first served. Dropping the future leaves the queue.
    ///
    /// Errors: [`ExecutionError::QueueFull`] at once, [`ExecutionError::QueueTimeout`] after the wait.
    pub async fn enter(&self) -> Result<Place, ExecutionError> {
        // The semaphore hands permits to waiters in order, and `try_acquire` fails while anyone waits for one.
        if let Ok(permit) = Arc::clone(&self.places).try_acquire_owned() {
            return Ok(Place {
                waited: Duration::ZERO,
                _permit: permit,
            });
        }
        let _seat = self.sit_down()?;
        let since = Instant::now();
        let acquire = Arc::clone(&self.places).acquire_owned();
        match tokio::time::timeout(self.settings.queue_timeout, acquire).await {
            Ok(Ok(permit)) => Ok(Place {
                waited: since.elapsed(),
                _permit: permit,
            }),
            Ok(Err(closed)) => Err(ExecutionError::Internal(closed.to_string())),
            Err(_) => Err(ExecutionError::QueueTimeout {
                retry_after: RETRY_AFTER,
            }),
        }
    }

    /// Executions that wait now.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// The bounds.
    #[must_use]
    pub const fn settings(&self) -> &QueueSettings {
        &self.settings
    }

    fn sit_down(&self) -> Result<Seat<'_>, ExecutionError> {
        let sat = self
            .waiting
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |waiting| {
                (waiting < self.settings.max_queued).then_some(waiting + 1)
            });
        match sat {
            Ok(_) => Ok(Seat(&self.waiting)),
            Err(_) => Err(ExecutionError::QueueFull {
                retry_after: RETRY_AFTER,
            }),
        }
    }
}

/// One of the bounded seats to wait on, given up when dropped.
struct Seat<'a>(&'a AtomicUsize);

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use futures::poll;

    use super::*;

    fn queue(concurrency: usize, max_queued: usize) -> Queue {
        Queue::new(QueueSettings {
            concurrency,
            max_queued,
            queue_timeout: Duration::from_secs(5),
        })
    }

    #[tokio::test]
    async fn refuses_at_once_when_full_and_says_when_to_retry() {
        let queue = queue(1, 1);
        let _running = queue.enter().await.unwrap();
        let mut waiting = std::pin::pin!(queue.enter());
        assert!(poll!(&mut waiting).is_pending());
        let refused = queue.enter().await.unwrap_err();
        assert_eq!(refused.metric_label(), "queue_full");
        assert!(refused.retry_after().unwrap() >= Duration::from_secs(1));
        assert!(refused.to_string().contains("too_many_requests"), "{refused}");
    }

    #[tokio::test]
    async fn serves_in_order_of_arrival() {
        let queue = queue(1, 2);
        let running = queue.enter().await.unwrap();
        let mut first = Box::pin(queue.enter());
        let mut second = Box::pin(queue.enter());
        assert!(poll!(&mut first).is_pending());
        assert!(poll!(&mut second).is_pending());
        drop(running);
        assert!(poll!(&mut second).is_pending());
        let place = first.await.unwrap();
        assert!(poll!(&mut second).is_pending());
        drop(place);
        second.await.unwrap();
    }

    #[tokio::test]
    async fn a_caller_that_leaves_frees_its_seat_and_its_turn() {
        let queue = queue(1, 1);
        let running = queue.enter().await.unwrap();
        {
            let mut leaves = Box::pin(queue.enter());
            assert!(poll!(&mut leaves).is_pending());
            assert_eq!(queue.waiting(), 1);
        }
        assert_eq!(queue.waiting(), 0);
        let mut stays = Box::pin(queue.enter());
        assert!(poll!(&mut stays).is_pending());
        drop(running);
        stays.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn gives_up_after_the_queue_timeout() {
        let queue = queue(1, 1);
        let _running = queue.enter().await.unwrap();
        let since = Instant::now();
        assert_eq!(queue.enter().await.unwrap_err().metric_label(), "queue_timeout");
        assert_eq!(since.elapsed(), Duration::from_secs(5));
        assert_eq!(queue.waiting(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn tells_how_long_a_place_was_waited_for() {
        let queue = queue(1, 1);
        let running = queue.enter().await.unwrap();
        assert_eq!(running.waited, Duration::ZERO);
        let (place, ()) = tokio::join!(queue.enter(), async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            drop(running);
        });
        assert_eq!(place.unwrap().waited, Duration::from_secs(2));
    }
}
