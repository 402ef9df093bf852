//! One connection, from its handshake to its end.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use http::{HeaderValue, Request, Response, StatusCode, Version, header};
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::activity::Activity;
use super::answer::Answer;
use super::bodies::BodyTimes;
use super::wakes::Wakes;
use super::watched_socket::WatchedSocket;
use super::{Bounds, Closed, Peer, Serving, Stop, unread};
use crate::beacon::Beacon;

/// Most bytes that a connection reads ahead, or that wait in it for a reader; also the longest head of a request.
const BUFFER_MAX_BYTES: usize = 64 << 10;
/// Most lines of a request's head in HTTP/1.1. More than proxies and meshes add to it, where 100, the default, may not be; a longer head
/// is refused by hyper, without a body.
const HEADERS_MAX: usize = 256;
/// Requests of one HTTP/2 connection at once. Proxies that put many clients into one connection open another one.
const STREAMS_MAX: u32 = 64;
/// Most bytes that an HTTP/2 peer may send ahead of the reader: of one body, and of all bodies of a connection.
const STREAM_WINDOW_BYTES: u32 = 256 << 10;
const CONNECTION_WINDOW_BYTES: u32 = 1 << 20;
/// How often a silent HTTP/2 peer is sent a ping, and how long it may take to answer.
const PING_EVERY: Duration = Duration::from_secs(30);
const PONG_WITHIN: Duration = Duration::from_secs(20);
/// How often a connection is checked, as a part of its shortest bound, and at most.
const CHECKS_PER_BOUND: u32 = 4;
const CHECK_EVERY_MAX: Duration = Duration::from_secs(1);

/// The body of the answer to a client without a permit.
const FULL: &str = r#"{"error":{"message":"There are too many connections at this moment; try again in a second.","type":"overloaded_error"}}"#;

/// Serves a connection to its end; why it was closed, if this side closed it.
pub(super) async fn serve(
    stream: TcpStream,
    peer: Peer,
    router: Router,
    serving: &Serving,
    stop: &Stop,
) -> Option<Closed> {
    send_without_delay(&stream);
    let mut first = [0; 1];
    if let Some(beacon) = &serving.beacon {
        match tokio::time::timeout(serving.bounds.head, stream.peek(&mut first)).await {
            Ok(Ok(1)) if Beacon::is_probe(first[0]) => {
                beacon.answer(stream).await;
                return None;
            }
            Ok(Ok(_)) => {}
            Ok(Err(_)) | Err(_) => return Some(Closed::Handshake),
        }
    }
    let activity = Activity::new(Instant::now());
    let socket_closed = CancellationToken::new();
    let socket = WatchedSocket::new(stream, Arc::clone(&activity), &socket_closed);
    let tracked = Tracked {
        router: TowerToHyperService::new(router),
        activity: Arc::clone(&activity),
        peer,
        leave: stop.leave.clone(),
    };
    let bounds = &serving.bounds;
    let closed = match &serving.tls {
        None => drive(socket, tracked, &activity, bounds, stop).await,
        Some(tls) => match tokio::time::timeout(bounds.head, tls.accept(socket)).await {
            Ok(Ok(socket)) => {
                activity.shaken();
                drive(socket, tracked, &activity, bounds, stop).await
            }
            Ok(Err(_)) | Err(_) => Some(Closed::Handshake),
        },
    };
    // A request may have taken the connection over: it counts until that ends.
    tokio::select! {
        () = socket_closed.cancelled() => {}
        () = stop.cut.cancelled() => {}
    }
    closed
}

/// Head and first event of a stream are two writes: with Nagle's algorithm the second waits for an ACK, about 40 ms.
fn send_without_delay(stream: &TcpStream) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY could not be set");
    }
}

/// Answers 503 to a client for which there is no connection left, without waiting for it.
pub(super) fn refuse(stream: &TcpStream) {
    let length = FULL.len();
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
         retry-after: 1\r\nconnection: close\r\n\r\n{FULL}"
    );
    // A socket that was just accepted has room; where it has not, the client sees a closed connection.
    let _ = stream.try_write(answer.as_bytes());
}

async fn drive(
    socket: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    service: Tracked,
    activity: &Activity,
    bounds: &Bounds,
    stop: &Stop,
) -> Option<Closed> {
    let builder = builder(bounds);
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(socket), service);
    let mut connection = std::pin::pin!(connection);
    let wakes = Wakes::new();
    let mut checks = tokio::time::interval(check_every(bounds));
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut closing = false;
    // A connection that begins after the renewal serves on.
    let is_new = stop.renew.is_cancelled();
    loop {
        let order_wakes = Wakes::new();
        let mut order = std::pin::pin!(order(stop, !closing, !closing && !is_new, &mut checks));
        let next = poll_fn(|context| match wakes.poll(connection.as_mut(), context) {
            Poll::Ready(result) => Poll::Ready(Err(result)),
            Poll::Pending => order_wakes.poll(order.as_mut(), context).map(Ok),
        });
        match next.await {
            Err(result) => {
                if let Err(error) = result {
                    tracing::debug!(%error, "a connection ended");
                }
                return None;
            }
            Ok(Order::Cut) => return None,
            Ok(Order::Close) => {
                closing = true;
                connection.as_mut().graceful_shutdown();
            }
            Ok(Order::Check) => {
                if let Some(reason) = activity.check(bounds) {
                    return Some(reason);
                }
            }
        }
        // What was done here may be something for it to do.
        wakes.poll_next();
    }
}

/// What a connection is told from outside.
enum Order {
    /// It is dropped.
    Cut,
    /// It ends with the answer it is giving.
    Close,
    /// It is checked for what it has not done in time.
    Check,
}

/// The next order.
async fn order(stop: &Stop, may_close: bool, may_renew: bool, checks: &mut Interval) -> Order {
    tokio::select! {
        biased;
        () = stop.cut.cancelled() => Order::Cut,
        () = stop.close.cancelled(), if may_close => Order::Close,
        () = stop.renew.cancelled(), if may_renew => Order::Close,
        _ = checks.tick() => Order::Check,
    }
}

fn builder(bounds: &Bounds) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    if !bounds.http2 {
        builder = builder.http1_only();
    }
    // `activity` watches for request heads; it also sees a connection whose protocol is not determined yet.
    builder
        .http1()
        .header_read_timeout(None)
        .max_buf_size(BUFFER_MAX_BYTES)
        .max_headers(HEADERS_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PONG_WITHIN)
        .max_concurrent_streams(STREAMS_MAX)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_send_buf_size(BUFFER_MAX_BYTES)
        .max_header_list_size(u32::try_from(BUFFER_MAX_BYTES).unwrap_or(u32::MAX));
    builder
}

fn check_every(bounds: &Bounds) -> Duration {
    let shortest = bounds.head.min(bounds.idle).min(bounds.stalled);
    (shortest / CHECKS_PER_BOUND).clamp(Duration::from_millis(1), CHECK_EVERY_MAX)
}

/// The router, as one connection calls it.
struct Tracked {
    router: TowerToHyperService<Router>,
    activity: Arc<Activity>,
    peer: Peer,
    leave: CancellationToken,
}

impl Service<Request<Incoming>> for Tracked {
    type Response = Response<Answer>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let multiplexed = request.version() == Version::HTTP_2;
        let open = self.activity.open(multiplexed);
        request.extensions_mut().insert(self.peer);
        let (head, body) = request.into_parts();
        let (body, unread) = unread::lend(&head.headers, body);
        let request = Request::from_parts(head, body);
        let (answer, activity) = (self.router.call(request), Arc::clone(&self.activity));
        let leave = self.leave.clone();
        Box::pin(async move {
            let mut answer = answer.await?;
            unread.discard(answer.status(), BodyTimes::default()).await;
            // A connection that is taken over serves no other request.
            let is_upgrade = answer.status() == StatusCode::SWITCHING_PROTOCOLS;
            if leave.is_cancelled() && !multiplexed && !is_upgrade {
                answer
                    .headers_mut()
                    .insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Ok(answer.map(|body| Answer::new(body, open, &activity, multiplexed)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn accepted_connections_send_without_delay() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let _client = TcpStream::connect(address).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        send_without_delay(&accepted);
        assert!(accepted.nodelay().unwrap());
    }
}
