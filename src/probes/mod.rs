//! Health and metrics of a process, on a plain port of their own.
//!
//! `GET /healthz`: the process answers. `GET /readyz`: it may get traffic, or the reason why not. `GET /metrics`: OpenMetrics.

use std::future::Future;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{StatusCode, header};
use tokio::net::TcpListener;

/// What a process tells of itself.
pub trait Probes: Send + Sync + 'static {
    /// Whether it may get traffic; the error says what is waited for.
    fn ready(&self) -> Result<String, String>;
    /// OpenMetrics text.
    fn metrics(&self) -> String;
}

/// Serves until `stop` resolves.
pub async fn serve(
    probes: Arc<dyn Probes>,
    listener: TcpListener,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let router = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(probes);
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
