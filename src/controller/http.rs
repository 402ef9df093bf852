//! `/healthz`, `/readyz` and `/metrics`.

use std::borrow::Cow;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::metrics::Metrics;

/// The state of the process, as `/readyz` reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Phase {
    /// The definitions are not served, or cannot be read: why, and what to do.
    WaitingForDefinitions(String),
    /// Another release of Knack manages the same namespaces: which, and what to do.
    Refused(String),
    /// Another replica leads; this one is on standby.
    Standby,
    /// Leads; first lists are being read. Ready all the same: readiness is for the webhook, which every replica serves from standby on,
    /// and without it pods of applications would start without their sidecar.
    Reading,
    /// Leads and reconciles.
    Leading,
}

impl Phase {
    fn answer(&self) -> (StatusCode, Cow<'static, str>) {
        match self {
            Self::WaitingForDefinitions(why) => (
                StatusCode::SERVICE_UNAVAILABLE,
                format!("waiting for the definitions of Skill and SkillRuntime: {why}\n").into(),
            ),
            Self::Refused(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("refused: {why}\n").into()),
            Self::Standby => (StatusCode::OK, "standing by: another replica leads\n".into()),
            Self::Reading => (StatusCode::OK, "reading the first lists\n".into()),
            Self::Leading => (StatusCode::OK, "leading\n".into()),
        }
    }
}

#[derive(Clone)]
struct Shared {
    metrics: Arc<Metrics>,
    phase: watch::Receiver<Phase>,
}

/// Serves until cancelled.
pub(super) async fn serve(
    listener: TcpListener,
    metrics: Arc<Metrics>,
    phase: watch::Receiver<Phase>,
    shutdown: CancellationToken,
) {
    let router = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route(
            "/readyz",
            get(|State(shared): State<Shared>| async move { shared.phase.borrow().answer() }),
        )
        .route(
            "/metrics",
            get(|State(shared): State<Shared>| async move { shared.metrics.text() }),
        )
        .with_state(Shared { metrics, phase });
    knack_serving::probes::serve_routes(router, listener, shutdown.cancelled_owned()).await;
}

#[cfg(test)]
mod tests {
    use super::{Phase, StatusCode};

    #[test]
    fn a_replica_whose_webhook_serves_stays_ready_when_it_becomes_the_leader() {
        let why = || "why".to_owned();
        for (phase, ready) in [
            (Phase::WaitingForDefinitions(why()), false),
            (Phase::Refused(why()), false),
            (Phase::Standby, true),
            (Phase::Reading, true),
            (Phase::Leading, true),
        ] {
            assert_eq!(phase.answer().0 == StatusCode::OK, ready, "{phase:?}");
        }
    }
}
