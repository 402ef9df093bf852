//! The end of a service, and of a command that must clean up.

use anyhow::bail;
use knack_serving::signals;
use tokio_util::sync::CancellationToken;

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
