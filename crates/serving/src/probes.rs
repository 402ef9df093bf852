//! Health and metrics of a process, on a plain port of their own.
//!
//! `GET /healthz`: the process answers. `GET /readyz`: it may get traffic, or the reason why not. `GET /metrics`: OpenMetrics.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{StatusCode, header};
use tokio::net::TcpListener;

use super::{Bounds, ConnectionMetrics, Serving, Stop};

/// The state that a process reports.
pub trait Probes: Send + Sync + 'static {
    /// Whether it may get traffic; the error says what is waited for.
    fn ready(&self) -> Result<String, String>;
    /// OpenMetrics text.
    fn metrics(&self) -> String;
}

/// Bounds of such a port. Kubelets, scrapers and persons call it, over a connection or two each: callers that open more take
/// no memory and no file descriptors of the program beside it. The bound of a peer does that; few in all would let some pods keep a
/// kubelet out, whose probes come by this port too.
const BOUNDS: Bounds = Bounds {
    connections: 1024,
    connections_per_peer: 16,
    head: Duration::from_secs(10),
    // Longer than the usual time between two scrapes, 15 to 60 s.
    idle: Duration::from_mins(2),
    stalled: Duration::from_secs(30),
    http2: false,
};

/// Serves these, and what else the process has for a person beside it, until `stop` resolves.
pub async fn serve(
    probes: Arc<dyn Probes>,
    more: Router,
    listener: TcpListener,
    stop: impl Future<Output = ()> + Send + 'static,
) {
    let router = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(probes)
        .merge(more);
    serve_routes(router, listener, stop).await;
}

/// Serves these routes within the bounds of such a port until `stop` resolves.
pub async fn serve_routes(router: Router, listener: TcpListener, stop: impl Future<Output = ()> + Send + 'static) {
    serve_within(BOUNDS, router, listener, stop).await;
}

async fn serve_within(bounds: Bounds, router: Router, listener: TcpListener, stop: impl Future<Output = ()>) {
    let serving = Serving {
        bounds,
        tls: None,
        metrics: ConnectionMetrics::default(),
        beacon: None,
    };
    let stops = Stop::default();
    let closing = async {
        stop.await;
        stops.close.cancel();
    };
    tokio::join!(crate::serve(listener, router, serving, stops.clone()), closing);
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
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;
    use tokio_util::sync::CancellationToken;

    use super::*;

    #[tokio::test]
    async fn silent_callers_leave_the_port_to_others_and_a_stop_ends_it() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let bounds = Bounds {
            head: Duration::from_secs(4),
            ..BOUNDS
        };
        let router = Router::new().route("/healthz", get(|| async { "ok\n" }));
        let stop = CancellationToken::new();
        let serving = tokio::spawn(serve_within(bounds, router, listener, stop.clone().cancelled_owned()));
        let mut silent = Vec::new();
        for _ in 0..BOUNDS.connections_per_peer {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let ask = || async {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let request = b"GET /healthz HTTP/1.0\r\nhost: x\r\n\r\n";
            // A refusal may come before the request is sent.
            let _ = stream.write_all(request).await;
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer).await;
            String::from_utf8(answer).unwrap()
        };
        assert!(ask().await.starts_with("HTTP/1.1 503"));
        for mut silent in silent {
            assert_eq!(silent.read(&mut [0]).await.unwrap(), 0, "closed for want of a head");
        }
        let answer = ask().await;
        assert!(
            answer.starts_with("HTTP/1.0 200") && answer.ends_with("ok\n"),
            "{answer}"
        );
        stop.cancel();
        tokio::time::timeout(Duration::from_secs(30), serving)
            .await
            .unwrap()
            .unwrap();
    }
}
