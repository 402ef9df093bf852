//! Health and metrics of a process, on a plain port of their own.
//!
//! `GET /healthz`: the process answers. `GET /readyz`: it may get traffic, or the reason why not. `GET /metrics`: OpenMetrics.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::extract::connect_info::Connected;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::IncomingStream;
use http::{StatusCode, header};
use tokio::net::TcpListener;

/// The state that a process reports.
pub trait Probes: Send + Sync + 'static {
    /// Whether it may get traffic; the error says what is waited for.
    fn ready(&self) -> Result<String, String>;
    /// OpenMetrics text.
    fn metrics(&self) -> String;
}

/// The ends of a connection, in `ConnectInfo`.
#[derive(Debug, Clone, Copy)]
pub struct Ends {
    /// Address that was called; `None` if the connection is gone.
    called: Option<SocketAddr>,
    /// Address of the caller.
    caller: SocketAddr,
}

impl Ends {
    /// Whether the caller is in the same network namespace and called a loopback address. A proxy of a service mesh that hands
    /// on a connection of the network calls the pod's address.
    pub fn is_local(&self) -> bool {
        let is_loopback = |address: SocketAddr| address.ip().to_canonical().is_loopback();
        is_loopback(self.caller) && self.called.is_some_and(is_loopback)
    }
}

impl Connected<IncomingStream<'_, TcpListener>> for Ends {
    fn connect_info(stream: IncomingStream<'_, TcpListener>) -> Self {
        Self {
            called: stream.io().local_addr().ok(),
            caller: *stream.remote_addr(),
        }
    }
}

/// Serves these, and what else the process has for a person beside it, until `stop` resolves.
pub async fn serve(
    probes: Arc<dyn Probes>,
    more: Router,
    listener: TcpListener,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let router = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(probes)
        .merge(more)
        .into_make_service_with_connect_info::<Ends>();
    axum::serve(listener, router).with_graceful_shutdown(stop).await
}

async fn ready(State(probes): State<Arc<dyn Probes>>) -> Response {
    match probes.ready() {
        Ok(text) => format!("ok {text}\n").into_response(),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")).into_response(),
    }
}

async fn metrics(State(probes): State<Arc<dyn Probes>>) -> Response {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], probes.metrics()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_is_local_if_both_ends_are_loopback_addresses() {
        for (called, caller, expected) in [
            ("127.0.0.1:1", "127.0.0.1:2", true),
            ("[::1]:1", "[::1]:2", true),
            ("[::ffff:127.0.0.1]:1", "[::ffff:127.0.0.1]:2", true),
            ("10.0.0.7:1", "10.0.0.8:2", false),
            // Itself by its own address, and a proxy of a mesh that hands on what came from the network.
            ("10.0.0.7:1", "10.0.0.7:2", false),
            ("10.0.0.7:1", "127.0.0.6:2", false),
            ("127.0.0.1:1", "10.0.0.8:2", false),
        ] {
            let ends = Ends {
                called: Some(called.parse().unwrap()),
                caller: caller.parse().unwrap(),
            };
            assert_eq!(ends.is_local(), expected, "{caller} to {called}");
        }
    }
}
