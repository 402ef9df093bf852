//! Serves HTTP connections within bounds: how many there are, how many one peer has, and how long each may do nothing.
//! [`bodies`] bounds what requests hold, [`sources`] how much one sender may cause; [`keyed_locks`] and [`expiring`] keep equal
//! questions from being asked twice.
//!
//! ```text
//! accept ─▶ places (total, per peer) ─▶ [TLS] ─▶ connection: hyper ─▶ router
//!                                                  │  ▲
//!                          activity ◀── io, body ──┘  └── closed when overdue, at the end, or when cut
//! ```
//!
//! A connection that sends no complete request head, that idles, or whose reader takes no bytes is closed after a time
//! limit ([`Bounds`]). [`activity`] decides that from values; nothing else here uses a clock.

mod activity;
mod answer;
pub mod beacon;
pub mod bodies;
mod connection;
mod connection_limit;
pub mod expiring;
pub mod keyed_locks;
mod off_thread;
pub mod probes;
pub mod reason;
pub mod signals;
pub mod sources;
mod stopping;
pub mod tasks;
mod unread;
mod until_sent;
pub mod upgrade;
mod wakes;
mod watched_socket;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use axum::Router;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use connection_limit::ConnectionLimit;
pub use off_thread::run_off_thread_if_large;
pub use stopping::Stopping;
pub use until_sent::until_sent;

use beacon::Beacon;

/// Pause after an accept that failed. The likely cause is a lack of file descriptors, which an immediate retry does not
/// end.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Bounds of a listener and its connections.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Connections at once.
    pub connections: usize,
    /// Connections of one peer address at once.
    pub connections_per_peer: usize,
    /// Time for the TLS handshake, and again for a request's head: for the first request since the handshake's end (without
    /// TLS, since the connection was accepted), for every later one since the head's first byte.
    pub head: Duration,
    /// Time that a connection may be open between two requests.
    pub idle: Duration,
    /// Time that a reader may take no bytes while there are some for it.
    pub stalled: Duration,
    /// Whether HTTP/2 is served as well.
    pub http2: bool,
}

/// When a server ends.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    /// Answers over HTTP/1 say that their connection ends with them, so that clients take another one next time.
    pub leave: CancellationToken,
    /// Connections that are open end with the answer they are giving; new ones are accepted.
    pub renew: CancellationToken,
    /// No connection is accepted any more; those that are open end with the answer they are giving.
    pub close: CancellationToken,
    /// Every connection that is still open is dropped.
    pub cut: CancellationToken,
}

/// The peer of a connection, as an extension of each of its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Peer {
    /// Its address. An IPv4 address that came mapped into IPv6 is the IPv4 address.
    pub address: IpAddr,
    /// The address that it called, in the same form; `None` if the connection was gone at once.
    called: Option<IpAddr>,
}

impl Peer {
    fn of(stream: &TcpStream, address: SocketAddr) -> Self {
        let called = stream.local_addr().ok();
        Self {
            address: address.ip().to_canonical(),
            called: called.map(|called| called.ip().to_canonical()),
        }
    }

    /// Whether it is in the same network namespace and called a loopback address. A proxy of a service mesh that hands on a
    /// connection of the network calls the pod's address.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.address.is_loopback() && self.called.is_some_and(|called| called.is_loopback())
    }
}

/// Why a connection was closed from this side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum Closed {
    /// All permits, or all of its peer's, were taken.
    Full,
    /// The TLS handshake failed or took too long.
    Handshake,
    /// No complete request head came in time.
    Head,
    /// No request came in time.
    Idle,
    /// Its reader took no bytes for too long.
    Stalled,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClosedLabels {
    reason: Closed,
}

/// Metrics of a listener's connections.
#[derive(Debug, Clone, Default)]
pub struct ConnectionMetrics {
    open: Gauge,
    closed: Family<ClosedLabels, Counter>,
}

impl ConnectionMetrics {
    /// Registers them under a prefix such as `gateway`.
    pub fn register(&self, registry: &mut Registry, prefix: &str) {
        registry.register(
            format!("{prefix}_connections"),
            "Connections that are open",
            self.open.clone(),
        );
        registry.register(
            format!("{prefix}_connections_closed"),
            "Connections that were refused or closed for a bound, by reason",
            self.closed.clone(),
        );
    }

    fn count(&self, reason: Closed) {
        self.closed.get_or_create(&ClosedLabels { reason }).inc();
    }
}

/// How connections are served.
#[derive(Clone)]
pub struct Serving {
    /// Bounds.
    pub bounds: Bounds,
    /// TLS, unless the listener is plain.
    pub tls: Option<TlsAcceptor>,
    /// Metrics.
    pub metrics: ConnectionMetrics,
    /// Answers isolation probes, which come to a TLS port without TLS.
    pub beacon: Option<Beacon>,
}

impl std::fmt::Debug for Serving {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Serving")
            .field("bounds", &self.bounds)
            .finish_non_exhaustive()
    }
}

/// Serves until [`Stop::close`], then until the last connection has ended or [`Stop::cut`].
pub async fn serve(listener: TcpListener, router: Router, serving: Serving, stop: Stop) {
    let connection_limit = ConnectionLimit::new(serving.bounds.connections, serving.bounds.connections_per_peer);
    let connections = TaskTracker::new();
    loop {
        let (stream, address) = tokio::select! {
            () = stop.close.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "a connection cannot be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
        };
        let peer = Peer::of(&stream, address);
        let Some(permit) = connection_limit.take(peer.address) else {
            serving.metrics.count(Closed::Full);
            if serving.tls.is_none() {
                connection::refuse(&stream);
            }
            continue;
        };
        let (router, serving, stop) = (router.clone(), serving.clone(), stop.clone());
        connections.spawn(async move {
            let _permit = permit;
            serving.metrics.open.inc();
            let closed = connection::serve(stream, peer, router, &serving, &stop).await;
            serving.metrics.open.dec();
            if let Some(reason) = closed {
                serving.metrics.count(reason);
                tracing::debug!(peer = %peer.address, ?reason, "a connection was closed");
            }
        });
    }
    drop(listener);
    connections.close();
    connections.wait().await;
}

#[cfg(test)]
mod tests;
