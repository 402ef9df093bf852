//! The end of a service, and of a command that must clean up.

use std::time::Duration;

use anyhow::bail;
use clap::Args;
use knack_serving::{Stopping, signals};
use tokio_util::sync::CancellationToken;

/// How long a server stays as it is after SIGTERM.
#[derive(Debug, Args)]
pub(super) struct ShutdownPauseArgs {
    /// Seconds after SIGTERM during which /readyz fails but requests are still served, until load balancers notice
    #[arg(
        long,
        value_name = "SECONDS",
        env = "KNACK_SHUTDOWN_PAUSE_SECONDS",
        default_value_t = 5
    )]
    shutdown_pause_seconds: u64,
}

impl ShutdownPauseArgs {
    /// How a server ends that gives what runs so many seconds after the pause.
    pub(super) const fn before(&self, drain_seconds: u64) -> Stopping {
        Stopping {
            pause: Duration::from_secs(self.shutdown_pause_seconds),
            drain: Duration::from_secs(drain_seconds),
        }
    }
}

/// A token that SIGTERM or SIGINT cancels. Must be called inside a tokio runtime.
pub(super) fn stop_on_signal() -> CancellationToken {
    let stop = CancellationToken::new();
    let (signal, caught) = (stop.clone(), signals::stop());
    tokio::spawn(async move {
        caught.await;
        tracing::info!("stopping");
        signal.cancel();
    });
    stop
}

/// Does work that starts programs and makes temporary folders. On SIGTERM and SIGINT it is dropped, which ends the
/// programs and removes the folders. Errors: those of the work, or a signal came.
pub(super) async fn unless_stopped<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let caught = signals::stop();
    tokio::select! {
        done = work => done,
        () = caught => bail!("stopped by a signal before the packages were complete"),
    }
}
