//! Accepts connections, and lets running answers finish when it stops.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::serve::{Listener, ListenerExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::app::router;
use super::client_auth::{self, ClientAuth};
use super::state::Gateway;

/// How long running answers may take after the stop signal: below the 30 s that Kubernetes grants by default.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(25);

/// Serves until `stop` resolves, then finishes running streams within [`DRAIN_TIMEOUT`].
pub async fn serve(
    gateway: Arc<Gateway>,
    listener: TcpListener,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let service = router(Arc::clone(&gateway));
    serve_router(gateway, service, listener, stop).await
}

/// As [`serve`], behind a check of who the client is, if there is one.
pub async fn serve_authenticated(
    gateway: Arc<Gateway>,
    auth: Option<Arc<ClientAuth>>,
    listener: TcpListener,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let mut service = router(Arc::clone(&gateway));
    if let Some(auth) = auth {
        // Outermost: nothing of a stranger's request is looked at.
        service = service.layer(from_fn_with_state(auth, client_auth::check));
    }
    serve_router(gateway, service, listener, stop).await
}

/// Head and first event of a stream are two writes: with Nagle's algorithm the second waits for an ACK, about 40 ms.
fn without_delay(listener: TcpListener) -> impl Listener<Io = TcpStream, Addr = SocketAddr> {
    listener.tap_io(|stream| {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY could not be set");
        }
    })
}

async fn serve_router(
    gateway: Arc<Gateway>,
    service: Router,
    listener: TcpListener,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let listener = without_delay(listener);
    let (stopping, mut stopped) = tokio::sync::watch::channel(false);
    let signal = async move {
        stop.await;
        gateway.drain();
        stopping.send_replace(true);
    };
    let service = axum::serve(listener, service).with_graceful_shutdown(signal);
    let overdue = async move {
        // An error means that the sender is gone: the server has ended.
        let _ = stopped.wait_for(|stopping| *stopping).await;
        tokio::time::sleep(DRAIN_TIMEOUT).await;
    };
    tokio::select! {
        result = service => result,
        () = overdue => {
            tracing::warn!("answers still running after {} s were cut", DRAIN_TIMEOUT.as_secs());
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn accepted_connections_send_without_delay() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut listener = without_delay(listener);
        let _client = TcpStream::connect(address).await.unwrap();
        let (accepted, _) = listener.accept().await;
        assert!(accepted.nodelay().unwrap());
    }
}
