//! Long computations, beside the threads that serve everybody.

use std::sync::LazyLock;

use tokio::sync::Semaphore;

/// From this size on an input is computed on another thread: reading a MiB of JSON takes a few milliseconds, which is
/// what others of the same thread may be made to wait.
const LARGE_BYTES: usize = 1 << 20;

/// Such computations at once: half of the processors, so that small requests always have the other half.
static PERMITS: LazyLock<Semaphore> = LazyLock::new(|| {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    Semaphore::new((processors / 2).max(1))
});

/// Computes with an input of `bytes` bytes: a large one on a thread that serves no requests, one after another.
pub async fn run_off_thread_if_large<T, F>(bytes: usize, compute: F) -> T
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    if bytes < LARGE_BYTES {
        return compute();
    }
    // An error means that the semaphore is closed, which it never is.
    let permit = PERMITS.acquire().await;
    // A caller that leaves ends no computation, so its permit ends with that.
    let computation = move || {
        let _permit = permit;
        compute()
    };
    match tokio::task::spawn_blocking(computation).await {
        Ok(computed) => computed,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // Cancelled: the process ends.
            Err(_) => std::future::pending().await,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    /// A computation that ends well once another task of the only thread has run, for which it waits so long at most.
    async fn waits_for_another(bytes: usize, longest: Duration) -> bool {
        let (sender, receiver) = mpsc::channel();
        let other = tokio::spawn(async move { sender.send(()) });
        let ended = run_off_thread_if_large(bytes, move || receiver.recv_timeout(longest).is_ok()).await;
        other.abort();
        ended
    }

    #[tokio::test]
    async fn others_of_the_thread_go_on_beside_a_large_input_only() {
        assert!(waits_for_another(LARGE_BYTES, Duration::from_mins(1)).await);
        let control = waits_for_another(LARGE_BYTES - 1, Duration::from_secs(1)).await;
        assert!(!control, "it has the only thread");
    }

    #[tokio::test]
    #[should_panic(expected = "of the computation")]
    async fn a_panic_is_the_callers() {
        run_off_thread_if_large(LARGE_BYTES, || panic!("of the computation")).await;
    }
}
