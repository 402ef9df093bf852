//! The end of a service.

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
