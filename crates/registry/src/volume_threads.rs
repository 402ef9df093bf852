//! Work on a volume: few pieces of it at once, and none that anybody waits for without a bound.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use crate::error::StoreError;

/// The threads for one kind of work on a volume. A volume that hangs keeps every thread that comes to it: the rest of the process's
/// threads, of which tokio has 512, stay for what needs no volume.
#[derive(Debug)]
pub struct VolumeThreads {
    threads: Arc<Semaphore>,
    patience: Duration,
    late: &'static str,
}

impl VolumeThreads {
    /// So many threads at once. `patience`: how long a caller waits for a thread and for the volume together; `late`: what it is told
    /// then.
    pub fn new(at_once: usize, patience: Duration, late: &'static str) -> Self {
        Self {
            threads: Arc::new(Semaphore::new(at_once)),
            patience,
            late,
        }
    }

    /// Does work on a thread. It cannot be cancelled there, so its permit is the thread's: whoever gives up makes no room for work that
    /// would only wait behind it. What has no thread in time is not begun. Errors: it takes too long, or panics.
    pub async fn done<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, StoreError> {
        let until = Instant::now() + self.patience;
        let late = |_| StoreError::Unavailable(self.late.to_owned());
        let thread = timeout_at(until, Arc::clone(&self.threads).acquire_owned()).await;
        let thread = thread
            .map_err(late)?
            .map_err(|error| StoreError::Failed(error.to_string()))?;
        let working = tokio::task::spawn_blocking(move || {
            let done = work();
            drop(thread);
            done
        });
        let done = timeout_at(until, working).await.map_err(late)?;
        // It panicked, or the process ends.
        done.map_err(|error| StoreError::Failed(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Mutex, mpsc};

    use super::*;
    use crate::fixture::wait;

    #[test]
    fn work_on_a_volume_that_hangs_takes_few_threads_and_is_answered_in_time() {
        wait(async {
            let mut threads = VolumeThreads::new(2, Duration::from_millis(50), "late");
            let (works_again, hangs) = mpsc::channel::<()>();
            let (hangs, begun) = (Arc::new(Mutex::new(hangs)), Arc::new(AtomicUsize::new(0)));
            for _ in 0..4 {
                let (hangs, begun) = (Arc::clone(&hangs), Arc::clone(&begun));
                let read = move || {
                    begun.fetch_add(1, Ordering::SeqCst);
                    // An error: the test lets it go on.
                    let _ = hangs.lock().unwrap().recv();
                };
                let refused = threads.done(read).await.unwrap_err();
                assert!(matches!(refused, StoreError::Unavailable(_)), "{refused}");
            }
            assert!(begun.load(Ordering::SeqCst) <= 2, "the others had no thread");
            threads.patience = Duration::from_mins(1);
            drop(works_again);
            while threads.threads.available_permits() < 2 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            assert_eq!(threads.done(|| 7).await.unwrap(), 7);
            let failed = threads.done::<()>(|| panic!("broken")).await;
            assert!(matches!(failed, Err(StoreError::Failed(_))), "{failed:?}");
        });
    }
}
