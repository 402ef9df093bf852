//! The end of a service, and of a run that a person interrupts.

use knack_serving::signals;
use tokio::task::JoinHandle;
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

/// A token that Ctrl-C cancels, as long as the task is not aborted. Must be called inside a tokio runtime.
pub(super) fn cancel_on_interrupt() -> (CancellationToken, JoinHandle<()>) {
    let cancel = CancellationToken::new();
    let stop = cancel.clone();
    let interrupt = tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            stop.cancel();
        }
    });
    (cancel, interrupt)
}
