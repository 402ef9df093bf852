//! The port of probes of a service.

use std::sync::Arc;

use knack_serving::probes::{self, Probes};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Probes that are answered until the service has ended.
pub(super) struct Probing {
    ended: CancellationToken,
    task: JoinHandle<()>,
}

impl Probing {
    /// Must be called inside a tokio runtime.
    pub(super) fn start(probes: Arc<dyn Probes>, listener: TcpListener) -> Self {
        let ended = CancellationToken::new();
        let until = ended.clone().cancelled_owned();
        let task = tokio::spawn(probes::serve(probes, axum::Router::new(), listener, until));
        Self { ended, task }
    }

    /// The service has ended.
    pub(super) async fn end(self) {
        self.ended.cancel();
        let _ = self.task.await;
    }
}
