//! Reads of a history's files: few at once, and none that anybody waits for without a bound.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use crate::error::StoreError;

/// Reads that are on a thread at once. A volume that hangs keeps every thread that comes to it: the rest of the process's threads, of
/// which tokio has 512, stay for what needs no volume.
const AT_ONCE: usize = 16;
/// How long a caller waits for a thread and for the volume together.
const PATIENCE: Duration = Duration::from_secs(5);
/// The answer of a read that takes longer.
const LATE: &str = "the history could not be read from its volume in time; try again";

/// The threads that read.
#[derive(Debug)]
pub(super) struct Reads {
    threads: Arc<Semaphore>,
    patience: Duration,
}

impl Default for Reads {
    fn default() -> Self {
        Self::new(AT_ONCE, PATIENCE)
    }
}

impl Reads {
    pub(super) fn new(at_once: usize, patience: Duration) -> Self {
        Self {
            threads: Arc::new(Semaphore::new(at_once)),
            patience,
        }
    }

    /// Reads on a thread. It cannot be cancelled there, so its permit is the thread's: whoever gives up makes no room for a read that
    /// would only wait behind it. Errors: it takes too long, or fails.
    pub(super) async fn done<T: Send + 'static>(
        &self,
        read: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let until = Instant::now() + self.patience;
        let late = |_| StoreError::Unavailable(LATE.to_owned());
        let thread = timeout_at(until, Arc::clone(&self.threads).acquire_owned()).await;
        let thread = thread
            .map_err(late)?
            .map_err(|error| StoreError::Failed(error.to_string()))?;
        let reading = tokio::task::spawn_blocking(move || {
            let read = read();
            drop(thread);
            read
        });
        let read = timeout_at(until, reading).await.map_err(late)?;
        // It panicked, or the process ends.
        let read = read.map_err(|error| StoreError::Failed(error.to_string()))?;
        read.map_err(|error| StoreError::Failed(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Mutex, mpsc};

    use super::*;
    use crate::fixture::wait;

    #[test]
    fn reads_of_a_volume_that_hangs_take_few_threads_and_are_answered_in_time() {
        wait(async {
            let mut reads = Reads::new(2, Duration::from_millis(50));
            let (works_again, hangs) = mpsc::channel::<()>();
            let (hangs, begun) = (Arc::new(Mutex::new(hangs)), Arc::new(AtomicUsize::new(0)));
            for _ in 0..4 {
                let (hangs, begun) = (Arc::clone(&hangs), Arc::clone(&begun));
                let read = move || {
                    begun.fetch_add(1, Ordering::SeqCst);
                    // An error: the test lets it go on.
                    let _ = hangs.lock().unwrap().recv();
                    Ok(())
                };
                let refused = reads.done(read).await.unwrap_err();
                assert!(matches!(refused, StoreError::Unavailable(_)), "{refused}");
            }
            assert!(begun.load(Ordering::SeqCst) <= 2, "the others had no thread");
            reads.patience = Duration::from_mins(1);
            drop(works_again);
            while reads.threads.available_permits() < 2 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            assert_eq!(reads.done(|| Ok(7)).await.unwrap(), 7);
            let failed = reads.done(|| Err::<(), _>(io::Error::other("broken"))).await;
            assert!(matches!(failed, Err(StoreError::Failed(_))), "{failed:?}");
        });
    }
}
