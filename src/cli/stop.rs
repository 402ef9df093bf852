//! The end of a service.

use knack_serving::signals;
use tokio_util::sync::CancellationToken;

/// A token that SIGTERM or SIGINT cancels. Must be called inside a tokio runtime.
pub(super) fn stop_on_signal() -> CancellationToken {
    let stop = CancellationToken::new();
    let signal = stop.clone();
    tokio::spawn(async move {
        signals::stop().await;
        tracing::info!("stopping");
        signal.cancel();
    });
    stop
}
