//! Load from threads that leave the processors to others, as load from other machines would.

use tokio::runtime::{Builder, Handle, Runtime};

/// The lowest priority that a thread of Linux can have.
const LOWEST: i32 = 19;
/// Enough for both processors of the smallest machine.
const THREADS: usize = 2;

/// A runtime whose threads run where nobody else wants to; it ends when dropped, and waits for nothing.
pub(crate) struct Background(Option<Runtime>);

impl Background {
    pub(crate) fn new() -> Self {
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .enable_all()
            // Without a process, Linux means the thread that asks.
            .on_thread_start(|| rustix::process::setpriority_process(None, LOWEST).unwrap())
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
