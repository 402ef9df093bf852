//! A bounded queue in front of a fixed number of permits, shared fairly.
//!
//! A request gets a permit, waits, or is refused at once, so the queue is bounded. A free permit goes to the waiting sharer
//! that holds the fewest permits, round-robin among equals, and to that sharer's calls in order of arrival. When the queue
//! is full, a call of a sharer with fewer waiting calls replaces the last waiting call of the sharer with the most: a
//! caller that floods the queue delays only its own calls. A caller that disconnects while it waits leaves the queue.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::ExecutionError;

/// Bounds of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueSettings {
    /// Runs at once; at least 1.
    pub concurrency: usize,
    /// Executions that may wait for a permit.
    pub max_queued: usize,
    /// Longest wait for a permit.
    pub queue_timeout: Duration,
}

impl QueueSettings {
    /// The default bounds for `concurrency` permits.
    #[must_use]
    pub fn for_concurrency(concurrency: usize) -> Self {
        let concurrency = concurrency.max(1);
        Self {
            concurrency,
            max_queued: concurrency * knack_vocabulary::defaults::QUEUED_PER_RUN,
            queue_timeout: knack_vocabulary::defaults::QUEUE_TIMEOUT,
        }
    }
}

/// How long a refused caller should wait: long enough that a full queue of short runs has drained, short enough that a
/// tool loop survives it.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// The queue; see the module.
#[derive(Debug)]
pub struct Queue {
    state: Arc<Mutex<QueueState>>,
}

/// The name that shares the capacity.
type Sharer = Arc<str>;

#[derive(Debug)]
struct QueueState {
    settings: QueueSettings,
    /// Permits that are held: more than there are, after the queue was made smaller.
    held: usize,
    waiting: usize,
    by_sharer: HashMap<Sharer, SharerQueue>,
    /// Sharers who wait, the next one first.
    waiting_sharers: VecDeque<Sharer>,
    next_waiter: u64,
}

/// The permits that one sharer holds, and its waiters.
#[derive(Debug, Default)]
struct SharerQueue {
    held: usize,
    waiters: VecDeque<(u64, oneshot::Sender<QueuePermit>)>,
}

/// A permit to run in, given back when dropped.
#[derive(Debug)]
pub struct RunPermit {
    /// How long its owner waited for it.
    pub waited: Duration,
    _held: QueuePermit,
}

#[derive(Debug)]
struct QueuePermit {
    state: Arc<Mutex<QueueState>>,
    sharer: Sharer,
}

impl Queue {
    /// An empty queue.
    #[must_use]
    pub fn new(settings: QueueSettings) -> Self {
        let state = QueueState {
            settings,
            held: 0,
            waiting: 0,
            by_sharer: HashMap::new(),
            waiting_sharers: VecDeque::new(),
            next_waiter: 0,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Changes the bounds. Whoever holds a permit keeps it, and whoever waits keeps its position and its time: with
    /// more permits the next ones are admitted at once, with fewer nobody is until enough were given back.
    pub fn resize(&self, settings: QueueSettings) {
        lock(&self.state).settings = settings;
        admit(&self.state);
    }

    /// Waits for a permit in the name of `sharer`. Dropping the future leaves the queue.
    ///
    /// Errors: [`ExecutionError::QueueFull`] at once, or when a sharer with fewer waiting calls takes its slot;
    /// [`ExecutionError::QueueTimeout`] after the wait.
    pub async fn enter(&self, sharer: &str) -> Result<RunPermit, ExecutionError> {
        let full = || ExecutionError::QueueFull {
            retry_after: RETRY_AFTER,
        };
        let sharer: Sharer = Arc::from(sharer);
        let (id, granted, queue_timeout) = {
            let mut state = lock(&self.state);
            if state.has_free() {
                state.held += 1;
                state.by_sharer.entry(Arc::clone(&sharer)).or_default().held += 1;
                return Ok(RunPermit {
                    waited: Duration::ZERO,
                    _held: QueuePermit {
                        state: Arc::clone(&self.state),
                        sharer,
                    },
                });
            }
            let (id, granted) = state.enqueue(&sharer).ok_or_else(full)?;
            (id, granted, state.settings.queue_timeout)
        };
        let waiter = QueuedWaiter {
            state: &self.state,
            sharer: &sharer,
            id,
        };
        let since = Instant::now();
        let outcome = tokio::time::timeout(queue_timeout, granted).await;
        drop(waiter);
        match outcome {
            Ok(Ok(held)) => Ok(RunPermit {
                waited: since.elapsed(),
                _held: held,
            }),
            // A sharer with fewer waiting calls took its slot.
            Ok(Err(_)) => Err(full()),
            Err(_) => Err(ExecutionError::QueueTimeout {
                retry_after: RETRY_AFTER,
            }),
        }
    }

    /// Executions that wait now.
    #[must_use]
    pub fn waiting(&self) -> usize {
        lock(&self.state).waiting
    }
}

/// Gives permits that are free to those who wait.
fn admit(state: &Arc<Mutex<QueueState>>) {
    loop {
        let next = {
            let mut state = lock(state);
            if state.has_free() { state.next() } else { None }
        };
        let Some((sharer, grant)) = next else { return };
        let held = QueuePermit {
            state: Arc::clone(state),
            sharer,
        };
        // A waiter that has just left cannot take it: it is given back, and the next one is tried.
        let _ = grant.send(held);
    }
}

fn lock(state: &Mutex<QueueState>) -> MutexGuard<'_, QueueState> {
    // The state is valid between any two statements that could panic.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl QueueState {
    fn has_free(&self) -> bool {
        self.held < self.settings.concurrency.max(1)
    }

    /// Adds a waiter; when full, evicts the last waiter of the longest queue. `None` if no queue is longer than this sharer's.
    fn enqueue(&mut self, sharer: &Sharer) -> Option<(u64, oneshot::Receiver<QueuePermit>)> {
        if self.waiting >= self.settings.max_queued {
            let own = self.by_sharer.get(sharer).map_or(0, |queue| queue.waiters.len());
            let longest = self
                .waiting_sharers
                .iter()
                .max_by_key(|other| self.by_sharer[*other].waiters.len())?;
            let longest = Arc::clone(longest);
            let queue = self.by_sharer.get_mut(&longest)?;
            if queue.waiters.len() <= own + 1 {
                return None;
            }
            // The receiver of the evicted waiter sees that the sender is gone.
            queue.waiters.pop_back();
            self.waiting -= 1;
        }
        let (grant, granted) = oneshot::channel();
        let id = self.next_waiter;
        self.next_waiter += 1;
        let queue = self.by_sharer.entry(Arc::clone(sharer)).or_default();
        if queue.waiters.is_empty() {
            self.waiting_sharers.push_back(Arc::clone(sharer));
        }
        queue.waiters.push_back((id, grant));
        self.waiting += 1;
        Some((id, granted))
    }

    /// The next to be admitted: of the sharers with the fewest running calls the one that has waited longest since it
    /// was served.
    fn next(&mut self) -> Option<(Sharer, oneshot::Sender<QueuePermit>)> {
        let fewest = |(_, sharer): &(usize, &Sharer)| self.by_sharer[*sharer].held;
        let (position, _) = self.waiting_sharers.iter().enumerate().min_by_key(fewest)?;
        let sharer = self.waiting_sharers.remove(position)?;
        let queue = self.by_sharer.get_mut(&sharer)?;
        let (_, grant) = queue.waiters.pop_front()?;
        self.waiting -= 1;
        self.held += 1;
        queue.held += 1;
        if !queue.waiters.is_empty() {
            self.waiting_sharers.push_back(Arc::clone(&sharer));
        }
        Some((sharer, grant))
    }

    /// One of a sharer's permits is free.
    fn give_back(&mut self, sharer: &Sharer) {
        self.held -= 1;
        if let Some(queue) = self.by_sharer.get_mut(sharer) {
            queue.held -= 1;
            if queue.held == 0 && queue.waiters.is_empty() {
                self.by_sharer.remove(sharer);
            }
        }
    }

    /// A waiter has left; nothing if it was admitted or evicted.
    fn remove_waiter(&mut self, sharer: &Sharer, id: u64) {
        let Some(queue) = self.by_sharer.get_mut(sharer) else {
            return;
        };
        let Some(at) = queue.waiters.iter().position(|(other, _)| *other == id) else {
            return;
        };
        queue.waiters.remove(at);
        self.waiting -= 1;
        if queue.waiters.is_empty() {
            let is_idle = queue.held == 0;
            self.waiting_sharers.retain(|other| other != sharer);
            if is_idle {
                self.by_sharer.remove(sharer);
            }
        }
    }
}

impl Drop for QueuePermit {
    fn drop(&mut self) {
        lock(&self.state).give_back(&self.sharer);
        admit(&self.state);
    }
}

/// A waiting call; removed from the queue when dropped.
struct QueuedWaiter<'a> {
    state: &'a Mutex<QueueState>,
    sharer: &'a Sharer,
    id: u64,
}

impl Drop for QueuedWaiter<'_> {
    fn drop(&mut self) {
        lock(self.state).remove_waiter(self.sharer, self.id);
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
        let _running = queue.enter("a").await.unwrap();
        let mut waiting = std::pin::pin!(queue.enter("a"));
        assert!(poll!(&mut waiting).is_pending());
        let refused = queue.enter("a").await.unwrap_err();
        assert_eq!(refused.metric_label(), "queue_full");
        assert!(
            matches!(refused, ExecutionError::QueueFull { retry_after } if retry_after >= Duration::from_secs(1)),
            "{refused:?}"
        );
        assert!(refused.to_string().contains("too_many_requests"), "{refused}");
    }

    #[tokio::test]
    async fn serves_in_order_of_arrival() {
        let queue = queue(1, 2);
        let running = queue.enter("a").await.unwrap();
        let mut first = Box::pin(queue.enter("a"));
        let mut second = Box::pin(queue.enter("a"));
        assert!(poll!(&mut first).is_pending());
        assert!(poll!(&mut second).is_pending());
        drop(running);
        assert!(poll!(&mut second).is_pending());
        let permit = first.await.unwrap();
        assert!(poll!(&mut second).is_pending());
        drop(permit);
        second.await.unwrap();
    }

    #[tokio::test]
    async fn a_caller_that_leaves_frees_its_slot() {
        let queue = queue(1, 1);
        let running = queue.enter("a").await.unwrap();
        {
            let mut leaves = Box::pin(queue.enter("a"));
            assert!(poll!(&mut leaves).is_pending());
            assert_eq!(queue.waiting(), 1);
        }
        assert_eq!(queue.waiting(), 0);
        let mut stays = Box::pin(queue.enter("a"));
        assert!(poll!(&mut stays).is_pending());
        drop(running);
        stays.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn gives_up_after_the_queue_timeout() {
        let queue = queue(1, 1);
        let _running = queue.enter("a").await.unwrap();
        let since = Instant::now();
        assert_eq!(queue.enter("a").await.unwrap_err().metric_label(), "queue_timeout");
        assert_eq!(since.elapsed(), Duration::from_secs(5));
        assert_eq!(queue.waiting(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn reports_how_long_a_call_waited() {
        let queue = queue(1, 1);
        let running = queue.enter("a").await.unwrap();
        assert_eq!(running.waited, Duration::ZERO);
        let (permit, ()) = tokio::join!(queue.enter("a"), async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            drop(running);
        });
        assert_eq!(permit.unwrap().waited, Duration::from_secs(2));
    }

    #[tokio::test]
    async fn one_floods_and_the_others_call_is_next() {
        let queue = queue(2, 8);
        let mut running = vec![queue.enter("flood").await.unwrap(), queue.enter("flood").await.unwrap()];
        let mut flood: Vec<_> = (0..8).map(|_| Box::pin(queue.enter("flood"))).collect();
        for call in &mut flood {
            assert!(poll!(call).is_pending());
        }
        // All slots are taken by one: its last call makes room for another one's first.
        let mut other = Box::pin(queue.enter("other"));
        assert!(poll!(&mut other).is_pending());
        assert_eq!(queue.waiting(), 8);
        let displaced = flood.pop().unwrap().await.unwrap_err();
        assert_eq!(displaced.metric_label(), "queue_full");
        assert_eq!(queue.enter("flood").await.unwrap_err().metric_label(), "queue_full");
        running.pop();
        assert!(poll!(&mut flood[0]).is_pending(), "it holds a permit already");
        let permit = other.await.unwrap();
        // Equals are served round-robin; a sharer that was served goes to the end.
        let mut third = Box::pin(queue.enter("third"));
        assert!(poll!(&mut third).is_pending());
        drop(permit);
        third.await.unwrap();
    }

    #[tokio::test]
    async fn a_queue_that_is_resized_admits_no_more_than_it_has_and_what_is_new_at_once() {
        let settings = |concurrency| QueueSettings {
            concurrency,
            max_queued: 8,
            queue_timeout: Duration::from_secs(5),
        };
        let queue = queue(3, 8);
        let mut running = Vec::new();
        for _ in 0..3 {
            running.push(queue.enter("a").await.unwrap());
        }
        let mut waiting: Vec<_> = (0..4).map(|_| Box::pin(queue.enter("a"))).collect();
        for call in &mut waiting {
            assert!(poll!(call).is_pending());
        }
        queue.resize(settings(1));
        for _ in 0..2 {
            running.pop();
            assert!(poll!(&mut waiting[0]).is_pending(), "{} run", running.len());
        }
        running.pop();
        let first = waiting.remove(0).await.unwrap();
        assert!(poll!(&mut waiting[0]).is_pending(), "one runs");
        queue.resize(settings(3));
        for _ in 0..2 {
            running.push(waiting.remove(0).await.unwrap());
        }
        assert!(poll!(&mut waiting[0]).is_pending(), "three run");
        drop(first);
        running.push(waiting.remove(0).await.unwrap());
    }

    #[tokio::test]
    async fn nothing_is_left_of_waiters_that_are_gone() {
        let queue = queue(1, 4);
        for name in ["a", "b", "c"] {
            drop(queue.enter(name).await.unwrap());
        }
        let running = queue.enter("a").await.unwrap();
        {
            let mut waits = Box::pin(queue.enter("b"));
            assert!(poll!(&mut waits).is_pending());
        }
        drop(running);
        let state = lock(&queue.state);
        assert_eq!((state.held, state.waiting), (0, 0));
        assert!(state.by_sharer.is_empty() && state.waiting_sharers.is_empty());
    }
}
