//! Load from threads of a low priority: load from other machines would not take the processors either.

use tokio::runtime::{Builder, Handle, Runtime};

/// A tenth of what a thread of normal priority gets where both want a processor: less, and a sender is too slow for the
/// bounds on its body.
const NICE: i32 = 10;
/// Enough for both processors of the smallest machine.
const THREADS: usize = 2;

/// A runtime whose threads have a low priority; it ends when dropped, and waits for nothing.
pub(crate) struct Background(Option<Runtime>);

impl Background {
    pub(crate) fn new() -> Self {
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .enable_all()
            // Without a process, Linux means the thread that asks.
            .on_thread_start(|| rustix::process::setpriority_process(None, NICE).unwrap())
            .build();
        Self(Some(runtime.unwrap()))
    }

    pub(crate) fn handle(&self) -> Handle {
        self.0.as_ref().expect("until it is dropped").handle().clone()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
