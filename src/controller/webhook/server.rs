//! The listener: bounds, bodies, answers.

use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use knack_memory::MemoryBudget;
use knack_serving::bodies::{Bodies, BodyBudget, BodyError, BodyTimes, HeldBody};
use knack_serving::{Bounds, Peer, Serving, Stop, Stopping, serve};
use kube::Client;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::followed::Followed;
use super::review::{ReviewOutcome, has_more_values, review};
use crate::controller::metrics::Metrics;
use crate::controller::settings::WebhookSettings;

/// Bounds of the listener. Its clients are API servers, a connection or a few each, often behind one address; whoever else
/// connects finds no room for more than a part.
const BOUNDS: Bounds = Bounds {
    connections: 256,
    connections_per_peer: 128,
    head: Duration::from_secs(5),
    // Longer than an API server keeps an unused connection.
    idle: Duration::from_mins(2),
    stalled: Duration::from_secs(10),
    http2: true,
};
/// The largest review, bytes: an API server takes objects of 3 MiB, and the review has little beside the object.
const REVIEW_MAX_BYTES: usize = 4 << 20;
/// Most values of a review that are separated by commas. A value takes 70 bytes and more of memory whatever it takes in JSON, and a pod
/// is copied while it is changed: at this bound a review takes some 40 MiB. A pod of 200 containers has a tenth of it.
const REVIEW_MAX_VALUES: usize = 32_768;
/// A review that comes later is of no use: the configuration lets an API server wait for 2 s.
const TIMES: BodyTimes = BodyTimes {
    arrive: Duration::from_secs(2),
    silence: Duration::from_secs(1),
};
/// Share of the process's memory that bodies may take: the rest is the reconcilers'.
const BODIES_DIVISOR: usize = 16;
/// Up to this many bytes a body takes from the whole budget: most pods.
const SMALL_BYTES: usize = 64 << 10;
/// Reviews that are computed at once. One takes a millisecond.
const AT_ONCE: usize = 2;
/// New calls are taken until the Service has noticed: pods that are created meanwhile would have no sidecar. Running reviews
/// then have as long as an API server waits for them.
const STOPPING: Stopping = Stopping {
    pause: Duration::from_secs(5),
    drain: Duration::from_secs(2),
};

/// The webhook of this process.
pub(in crate::controller) struct Webhook {
    listener: TcpListener,
    settings: WebhookSettings,
    namespace: String,
    client: Client,
    followed: Arc<Followed>,
    metrics: Arc<Metrics>,
}

#[derive(Clone)]
struct Shared {
    followed: Arc<Followed>,
    metrics: Arc<Metrics>,
    bodies: Bodies<IpAddr>,
    computing: Arc<Semaphore>,
}

impl Webhook {
    /// Reads certificate and parameters once, so that a replica that says that it is ready serves, if any can.
    pub(in crate::controller) async fn prepare(
        listener: TcpListener,
        settings: WebhookSettings,
        namespace: String,
        client: Client,
        metrics: Arc<Metrics>,
    ) -> Self {
        let followed = Arc::new(Followed::default());
        followed.refresh(&client, &namespace, &settings).await;
        Self {
            listener,
            settings,
            namespace,
            client,
            followed,
            metrics,
        }
    }

    /// Serves until some time after `shutdown`.
    pub(in crate::controller) async fn run(self, shutdown: CancellationToken) {
        let stop = Stop::default();
        let serving = Serving {
            bounds: BOUNDS,
            tls: Some(TlsAcceptor::from(Arc::new(self.followed.server_config()))),
            metrics: self.metrics.webhook_connections.clone(),
            beacon: None,
        };
        let router = router(Shared {
            followed: Arc::clone(&self.followed),
            metrics: Arc::clone(&self.metrics),
            bodies: bodies(&MemoryBudget::of_process()),
            computing: Arc::new(Semaphore::new(AT_ONCE)),
        });
        let mut serving = pin!(serve(self.listener, router, serving, stop.clone()));
        let served = async {
            tokio::select! {
                () = &mut serving => {}
                // Whether it is ready is the controller's answer.
                () = shutdown.cancelled() => STOPPING.end(&stop, || {}, serving).await,
            }
        };
        tokio::select! {
            () = served => {}
            () = self.followed.follow(&self.client, &self.namespace, &self.settings) => {}
        }
    }
}

fn bodies(process: &MemoryBudget) -> Bodies<IpAddr> {
    let whole = process.part(process.total_bytes() / BODIES_DIVISOR);
    let budget = BodyBudget {
        large: whole.clone(),
        whole,
        small_bytes: SMALL_BYTES,
        caller_least_bytes: REVIEW_MAX_BYTES,
    };
    Bodies::new(budget, TIMES)
}

fn router(shared: Shared) -> Router {
    Router::new().route("/inject", post(answer)).with_state(shared)
}

async fn answer(
    State(shared): State<Shared>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let (response, outcome) = match shared.bodies.read(&peer.address, &headers, body).await {
        Err(error) => (refusal(error), ReviewOutcome::Busy),
        Ok(held) if held.bytes.len() > REVIEW_MAX_BYTES || has_more_values(&held.bytes, REVIEW_MAX_VALUES) => {
            (refusal(BodyError::TooLarge), ReviewOutcome::Busy)
        }
        Ok(held) => reviewed(&shared, held).await,
    };
    shared.metrics.reviewed(outcome.as_str());
    response
}

async fn reviewed(shared: &Shared, held: HeldBody) -> (Response, ReviewOutcome) {
    let Some(parameters) = shared.followed.parameters() else {
        let text = "the injection's parameters could not be read yet; the controller's log says why";
        return (
            (StatusCode::SERVICE_UNAVAILABLE, text).into_response(),
            ReviewOutcome::Busy,
        );
    };
    // Never closed.
    let _computing = shared.computing.acquire().await;
    match review(&held.bytes, &parameters) {
        Ok((answer, outcome)) => (Json(answer).into_response(), outcome),
        Err(invalid) => (
            (StatusCode::BAD_REQUEST, invalid.to_string()).into_response(),
            ReviewOutcome::Invalid,
        ),
    }
}

fn refusal(error: BodyError) -> Response {
    let (status, text) = match error {
        BodyError::TooLarge => (
            StatusCode::PAYLOAD_TOO_LARGE,
            "a review may have at most 4 MiB and 32768 values",
        ),
        BodyError::Busy(_) => (
            StatusCode::SERVICE_UNAVAILABLE,
            "the controller holds too many bytes of reviews at this moment",
        ),
        BodyError::Late => (StatusCode::REQUEST_TIMEOUT, "the review did not arrive within 2 s"),
        BodyError::Broken => (StatusCode::BAD_REQUEST, "the review ended prematurely"),
    };
    (status, text).into_response()
}
