//! Long computations on the threads that serve everybody.

use tokio::runtime::{Handle, RuntimeFlavor};

/// From this size on an input is computed with aside: reading a MiB of JSON takes a few milliseconds, which is what others
/// of the same thread may be made to wait.
const ASIDE_BYTES: usize = 1 << 20;

/// Computes with an input of `bytes` bytes. If it is large, other tasks of this thread move to another thread meanwhile,
/// so that the system's scheduler shares the processors between them and this.
///
/// Inside a tokio runtime of one thread, as tests have, nobody can move.
pub fn aside<T>(bytes: usize, compute: impl FnOnce() -> T) -> T {
    let can_move = || Handle::try_current().is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread);
    if bytes >= ASIDE_BYTES && can_move() {
        tokio::task::block_in_place(compute)
    } else {
        compute()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    /// A computation that ends once another task of the only thread has run.
    async fn waits_for_another(bytes: usize) -> bool {
        let (sender, receiver) = mpsc::channel();
        let work = async move {
            aside(bytes, || {
                tokio::spawn(async move { sender.send(()) });
                receiver.recv_timeout(Duration::from_secs(2)).is_ok()
            })
        };
        tokio::spawn(work).await.unwrap()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn others_of_the_thread_go_on_beside_a_large_input_only() {
        assert!(waits_for_another(ASIDE_BYTES).await);
        assert!(!waits_for_another(ASIDE_BYTES - 1).await, "the control");
    }

    #[tokio::test]
    async fn a_runtime_of_one_thread_computes_in_place() {
        assert_eq!(aside(usize::MAX, || 7), 7);
    }
}
