//! The wakes of one part of a task, apart from those of the others.
//!
//! hyper wakes the task of an HTTP/1 connection for each piece of a request's body, while that task is being polled. The runtime puts
//! such a task behind the others and wakes a thread that could take it over, which costs more than most of what a small request needs.
//! Here it is polled again at once.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures::task::AtomicWaker;

/// Polls of a future in a row, if each of them wakes it. Then the other tasks of the thread have their turn. A small request has two.
const POLLS_MAX: usize = 8;

/// Nothing has happened since the last poll.
const QUIET: u8 = 0;
/// It is being polled.
const POLLED: u8 = 1;
/// It is to be polled.
const WOKEN: u8 = 2;

/// Notes the wakes of one future of a task.
#[derive(Debug)]
pub(super) struct Wakes {
    noted: Arc<Noted>,
    waker: Waker,
}

#[derive(Debug)]
struct Noted {
    state: AtomicU8,
    task: AtomicWaker,
}

impl Wake for Noted {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // A poll that is running looks afterwards, and after an earlier wake one is due.
        if self.state.swap(WOKEN, Ordering::AcqRel) == QUIET {
            self.task.wake();
        }
    }
}

impl Wakes {
    /// The wakes of a future that was not polled yet.
    pub(super) fn new() -> Self {
        let noted = Arc::new(Noted {
            state: AtomicU8::new(WOKEN),
            task: AtomicWaker::new(),
        });
        Self {
            waker: Waker::from(Arc::clone(&noted)),
            noted,
        }
    }

    /// Has the future polled with the next poll of its task.
    pub(super) fn poll_next(&self) {
        self.noted.state.store(WOKEN, Ordering::Release);
    }

    /// Polls the future if it was woken, and again as long as it wakes itself.
    pub(super) fn poll<F: Future>(&self, mut future: Pin<&mut F>, context: &Context<'_>) -> Poll<F::Output> {
        let noted = &self.noted;
        // Before the look at the state: a wake after it finds this task.
        noted.task.register(context.waker());
        if noted.state.load(Ordering::Acquire) != WOKEN {
            return Poll::Pending;
        }
        for _ in 0..POLLS_MAX {
            noted.state.swap(POLLED, Ordering::AcqRel);
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&self.waker)) {
                return Poll::Ready(output);
            }
            let quiet = noted
                .state
                .compare_exchange(POLLED, QUIET, Ordering::AcqRel, Ordering::Acquire);
            if quiet.is_ok() {
                return Poll::Pending;
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    /// Counts the wakes of a task.
    #[derive(Debug, Default)]
    struct Counted(AtomicUsize);

    impl Wake for Counted {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A task with a future that wakes itself in its first `times` polls.
    fn polls_and_wakes(times: usize) -> (usize, usize) {
        let (wakes, counted, mut polls) = (Wakes::new(), Arc::new(Counted::default()), 0);
        let waker = Waker::from(Arc::clone(&counted));
        let mut future = std::pin::pin!(poll_fn(|context| {
            polls += 1;
            if polls <= times {
                context.waker().wake_by_ref();
            }
            Poll::<()>::Pending
        }));
        let polled = wakes.poll(future.as_mut(), &Context::from_waker(&waker));
        assert!(polled.is_pending());
        (polls, counted.0.load(Ordering::Relaxed))
    }

    #[test]
    fn a_future_that_wakes_itself_is_polled_again_without_a_wake_of_its_task() {
        assert_eq!(polls_and_wakes(0), (1, 0));
        assert_eq!(polls_and_wakes(2), (3, 0));
    }

    #[test]
    fn a_future_that_always_wakes_itself_leaves_others_their_turn() {
        assert_eq!(polls_and_wakes(usize::MAX), (POLLS_MAX, 1));
    }

    #[test]
    fn it_is_polled_after_a_wake_only_and_each_wake_reaches_its_task_once() {
        let (wakes, counted, mut polls) = (Wakes::new(), Arc::new(Counted::default()), 0);
        let waker = Waker::from(Arc::clone(&counted));
        let kept = std::cell::RefCell::new(None);
        let mut future = std::pin::pin!(poll_fn(|context| {
            polls += 1;
            *kept.borrow_mut() = Some(context.waker().clone());
            Poll::<()>::Pending
        }));
        let context = Context::from_waker(&waker);
        assert!(wakes.poll(future.as_mut(), &context).is_pending());
        assert!(wakes.poll(future.as_mut(), &context).is_pending());
        for _ in 0..2 {
            kept.borrow().as_ref().unwrap().wake_by_ref();
        }
        assert_eq!(counted.0.load(Ordering::Relaxed), 1);
        assert!(wakes.poll(future.as_mut(), &context).is_pending());
        wakes.poll_next();
        assert!(wakes.poll(future.as_mut(), &context).is_pending());
        assert!(wakes.poll(future.as_mut(), &context).is_pending());
        assert_eq!((polls, counted.0.load(Ordering::Relaxed)), (3, 1));
    }
}
