//! Accepts connections within bounds, and lets running answers end when it stops.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware::from_fn_with_state;
use tokio::net::TcpListener;

use crate::app::router;
use crate::callers::client_auth::{self, ClientAccess};
use crate::state::Gateway;
pub use knack_serving::Stopping;
use knack_serving::{Bounds, Serving};

/// Bounds of the listener.
pub const BOUNDS: Bounds = Bounds {
    // An idle connection costs about 20 KiB: 80 MiB, of the half of the memory limit that no budget counts.
    connections: 4096,
    // A service mesh or an ingress brings all of its clients from one address.
    connections_per_peer: 1024,
    head: Duration::from_secs(10),
    // Longer than the pools of the SDKs and of the usual load balancers (5 to 90 s), so that they close first.
    idle: Duration::from_mins(5),
    // The buffers of both systems are full by then. An agent that works before it reads on has this long.
    stalled: Duration::from_mins(1),
    http2: true,
};

/// How a gateway is served.
#[derive(Debug, Clone)]
pub struct Service {
    /// The routes.
    pub gateway: Arc<Gateway>,
    /// Routes beside its own, behind the same checks of who may call.
    pub routes: Router,
    /// A check of who the client is, if there is one.
    pub auth: Option<ClientAccess>,
    /// Bounds of connections.
    pub bounds: Bounds,
    /// How it ends.
    pub stopping: Stopping,
}

impl Service {
    /// Serves connections, and ends soon after the stop signal.
    pub fn open(gateway: Arc<Gateway>) -> Self {
        Self {
            gateway,
            routes: Router::new(),
            auth: None,
            bounds: BOUNDS,
            stopping: Stopping::AT_ONCE,
        }
    }
}

/// Serves until `stop` resolves, and then as [`Stopping`] says.
pub async fn serve(service: Service, listener: TcpListener, stop: impl Future<Output = ()> + Send) {
    let Service {
        gateway,
        routes,
        auth,
        bounds,
        stopping,
    } = service;
    let mut router = router(Arc::clone(&gateway), routes);
    if let Some(auth) = auth {
        // Outermost: no part of an unauthenticated request is read.
        router = router.layer(from_fn_with_state(auth, client_auth::check));
    }
    let serving = Serving {
        bounds,
        tls: None,
        metrics: gateway.metrics.connections.clone(),
        beacon: None,
    };
    let stops = gateway.stops.clone();
    let mut serving = pin!(knack_serving::serve(listener, router, serving, stops.clone()));
    tokio::select! {
        () = &mut serving => {}
        () = stop => stopping.end(&stops, || gateway.drain(), serving).await,
    }
}
