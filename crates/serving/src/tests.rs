use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Body;
use axum::routing::get;
use bytes::Bytes;
use futures::StreamExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::*;
use crate::beacon::{Beacon, ProbeTarget};

/// Longest wait for what must come.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bounds that a test can wait for.
const BOUNDS: Bounds = Bounds {
    connections: 8,
    connections_per_peer: 8,
    head: Duration::from_millis(500),
    idle: Duration::from_millis(900),
    stalled: Duration::from_millis(700),
    http2: true,
};

struct Server {
    address: std::net::SocketAddr,
    metrics: ConnectionMetrics,
    stop: Stop,
    /// Endless answers that were dropped.
    dropped: Arc<AtomicUsize>,
    serving: tokio::task::JoinHandle<()>,
}

impl Server {
    /// Connections that were closed for this reason.
    fn closed(&self, reason: Closed) -> u64 {
        self.metrics.closed.get_or_create(&ClosedLabels { reason }).get()
    }
}

struct CountDrop(Arc<AtomicUsize>);

impl Drop for CountDrop {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

async fn start(bounds: Bounds) -> Server {
    start_with(bounds, None).await
}

async fn start_with(bounds: Bounds, beacon: Option<Beacon>) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (metrics, stop, dropped) = (ConnectionMetrics::default(), Stop::default(), Arc::default());
    let counted = Arc::clone(&dropped);
    let endless = move || {
        let guard = CountDrop(Arc::clone(&counted));
        async move {
            let pieces = futures::stream::repeat_with(move || {
                let _ = &guard;
                Ok::<_, std::io::Error>(Bytes::from_static(&[b'x'; 16 << 10]))
            });
            Body::from_stream(pieces)
        }
    };
    let slow = || async {
        let pieces = futures::stream::iter(0..5).then(|n| async move {
            tokio::time::sleep(Duration::from_millis(200)).await;
            Ok::<_, std::io::Error>(format!("{n}"))
        });
        Body::from_stream(pieces)
    };
    let pieces = || async {
        let pieces = [Bytes::from(vec![b'x'; PIECE]), Bytes::from(vec![b'y'; PIECE])];
        Body::from_stream(futures::stream::iter(pieces.map(Ok::<_, std::io::Error>)))
    };
    let router = Router::new()
        .route("/", get(|| async { "ok" }))
        .route(
            "/peer",
            get(|axum::Extension(peer): axum::Extension<Peer>| async move { peer.address.to_string() }),
        )
        .route(
            "/refused",
            axum::routing::post(|| async { http::StatusCode::TOO_MANY_REQUESTS }),
        )
        .route("/slow", get(slow))
        .route("/large", get(|| async { vec![b'x'; LARGE] }))
        .route("/pieces", get(pieces))
        .route("/endless", get(endless));
    let serving = Serving {
        bounds,
        tls: None,
        metrics: metrics.clone(),
        beacon,
    };
    let serving = tokio::spawn(serve(listener, router, serving, stop.clone()));
    Server {
        address,
        metrics,
        stop,
        dropped,
        serving,
    }
}

impl Server {
    async fn connect(&self, text: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        stream
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

/// Reads to the end of the connection.
async fn read(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    // A reset is an end too.
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes))
        .await
        .unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting)
        .await
        .unwrap_or_else(|_| panic!("{what}"));
}

fn client(http2: bool) -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = reqwest::Client::builder().no_proxy();
    let builder = if http2 {
        builder.http2_prior_knowledge()
    } else {
        builder
    };
    builder.build().unwrap()
}

#[tokio::test]
async fn connections_that_send_nothing_half_a_head_or_no_second_request_are_closed() {
    let server = start(BOUNDS).await;
    let whole = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";
    for (sent, answers, reason) in [
        ("", 0, Closed::Head),
        ("GE", 0, Closed::Head),
        ("PRI * HTTP/2.0\r\n", 0, Closed::Head),
        ("GET / HTTP/1.1\r\nhost: x\r\n", 0, Closed::Head),
        (whole, 1, Closed::Idle),
        (&format!("{whole}{whole}"), 2, Closed::Idle),
    ] {
        let before = server.closed(reason);
        let mut stream = server.connect(sent).await;
        let text = read(&mut stream).await;
        assert_eq!(text.matches("200 OK").count(), answers, "{sent:?}: {text}");
        until(sent, || server.closed(reason) == before + 1).await;
    }
}

#[tokio::test]
async fn half_a_second_head_is_given_less_time_than_an_idle_connection() {
    let bounds = Bounds {
        idle: PATIENCE * 2,
        ..BOUNDS
    };
    let server = start(bounds).await;
    let mut stream = server.connect("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let mut answer = [0; 1024];
    let count = stream.read(&mut answer).await.unwrap();
    assert!(count > 0);
    stream.write_all(b"GET /").await.unwrap();
    read(&mut stream).await;
    assert_eq!(server.closed(Closed::Head), 1);
}

/// A slow answer comes to its end, in both versions of HTTP.
async fn slow_answers_are_whole(server: &Server) {
    for http2 in [false, true] {
        let text = client(http2)
            .get(server.url("/slow"))
            .send()
            .await
            .unwrap()
            .text()
            .await;
        assert_eq!(text.unwrap(), "01234", "http2: {http2}");
    }
}

#[tokio::test]
async fn an_answer_that_takes_longer_than_every_bound_is_given() {
    let server = start(Bounds {
        idle: BOUNDS.head,
        ..BOUNDS
    })
    .await;
    slow_answers_are_whole(&server).await;
}

#[tokio::test]
async fn a_reader_that_stops_is_closed_and_its_answer_is_dropped() {
    let server = start(BOUNDS).await;
    let stream = server.connect("GET /endless HTTP/1.1\r\nhost: x\r\n\r\n").await;
    until("the answer is dropped", || server.dropped.load(Ordering::SeqCst) == 1).await;
    assert_eq!(server.closed(Closed::Stalled), 1);
    drop(stream);
}

#[tokio::test]
async fn one_stream_of_a_connection_that_stops_loses_its_answer_and_the_others_go_on() {
    let server = start(Bounds {
        stalled: Duration::from_secs(3),
        ..BOUNDS
    })
    .await;
    let client = client(true);
    let mut stopped = client.get(server.url("/endless")).send().await.unwrap();
    assert!(stopped.chunk().await.unwrap().is_some());
    until("the answer is dropped", || server.dropped.load(Ordering::SeqCst) == 1).await;
    let text = client.get(server.url("/")).send().await.unwrap().text().await.unwrap();
    assert_eq!(text, "ok");
    assert_eq!(server.closed(Closed::Stalled), 0, "the connection stays");
    let rest = async { while let Ok(Some(_)) = stopped.chunk().await {} };
    tokio::time::timeout(PATIENCE, rest)
        .await
        .expect("the stopped stream ends with an error");
}

/// Bytes of each of the two pieces of `/pieces`.
const PIECE: usize = 128 << 10;

/// A client of HTTP/2 that gives room as the test says: at first none.
struct Reader {
    stream: TcpStream,
    /// Bytes of frames that came.
    came: Vec<u8>,
}

impl Reader {
    /// Asks for a path as stream 1.
    async fn ask(server: &Server, path: &str) -> Self {
        // SETTINGS_INITIAL_WINDOW_SIZE is 4.
        let settings = [0, 4, 0, 0, 0, 0];
        // GET, http, a path and an authority: RFC 7541, without a table of its own.
        let mut head = vec![0x82, 0x86, 0x04, u8::try_from(path.len()).unwrap()];
        head.extend(path.as_bytes());
        head.extend([0x01, 1, b'x']);
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        bytes.extend(Self::frame(4, 0, 0, &settings));
        bytes.extend(Self::frame(1, 5, 1, &head));
        let mut stream = server.connect("").await;
        stream.write_all(&bytes).await.unwrap();
        Self {
            stream,
            came: Vec::new(),
        }
    }

    fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
        let length = u8::try_from(payload.len()).unwrap();
        [&[0, 0, length, kind, flags, 0, 0, 0, stream], payload].concat()
    }

    /// Gives room for more bytes: the connection has it, and the stream.
    async fn give(&mut self, bytes: u32) {
        for stream in [0, 1] {
            let frame = Self::frame(8, 0, stream, &bytes.to_be_bytes());
            // The reader notices a connection that was closed.
            let _ = self.stream.write_all(&frame).await;
        }
    }

    /// Reads until the answer has this many bytes.
    async fn read(&mut self, bytes: usize) -> Result<(), String> {
        let reading = async {
            while self.answered()? < bytes {
                let mut more = [0; 4096];
                let count = self.stream.read(&mut more).await.map_err(|error| error.to_string())?;
                if count == 0 {
                    return Err(format!("the connection ended after {:?} bytes", self.answered()));
                }
                self.came.extend(&more[..count]);
            }
            Ok(())
        };
        tokio::time::timeout(PATIENCE, reading).await.expect("the answer")
    }

    /// Bytes of the answer that came in whole frames.
    fn answered(&self) -> Result<usize, String> {
        let (mut at, mut answered) = (0, 0);
        while let Some([high, middle, low, kind]) = self.came.get(at..at + 4) {
            let length = usize::from(*high) << 16 | usize::from(*middle) << 8 | usize::from(*low);
            at += 9 + length;
            if *kind == 3 {
                return Err(format!("the stream was reset after {answered} bytes"));
            }
            if *kind == 0 && at <= self.came.len() {
                answered += length;
            }
        }
        Ok(answered)
    }
}

#[tokio::test]
async fn an_http_2_reader_that_gives_no_room_loses_answer_and_connection() {
    for (path, dropped) in [("/endless", 1), ("/", 0)] {
        let server = start(BOUNDS).await;
        let mut reader = Reader::ask(&server, path).await;
        until(path, || server.closed(Closed::Stalled) == 1).await;
        read(&mut reader.stream).await;
        assert_eq!(server.dropped.load(Ordering::SeqCst), dropped, "{path}");
    }
}

/// Whether a reader gets its whole answer that needs for each piece longer than it may stop, which is `stalled`.
async fn is_read_slowly(stalled: Duration) -> Result<(), String> {
    let server = start(Bounds { stalled, ..BOUNDS }).await;
    let mut reader = Reader::ask(&server, "/pieces").await;
    // Each of the two pieces takes five steps.
    let step = 2 * PIECE / 10;
    for steps in 1..=10 {
        tokio::time::sleep(stalled / 4).await;
        reader.give(u32::try_from(step).unwrap()).await;
        reader.read(steps * step).await?;
    }
    reader.give(1 << 10).await;
    reader.read(2 * PIECE).await?;
    assert_eq!(server.closed(Closed::Stalled), 0);
    Ok(())
}

#[tokio::test]
async fn a_slow_http_2_reader_keeps_its_answer() {
    // A machine that stands still stops the reader too: then it may stop for longer.
    let mut ended = Vec::new();
    for seconds in [2, 8, 32] {
        match is_read_slowly(Duration::from_secs(seconds)).await {
            Ok(()) => return,
            Err(why) => ended.push(why),
        }
    }
    panic!("{ended:?}");
}

/// The whole answer waits in the connection, of which the program has nothing left.
#[tokio::test]
async fn a_slow_download_is_not_an_idle_connection() {
    let server = start(Bounds {
        stalled: PATIENCE,
        ..BOUNDS
    })
    .await;
    let mut stream = server.connect("GET /large HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let (mut came, mut buffer) = (0, vec![0; LARGE / 12]);
    while came < LARGE {
        tokio::time::sleep(Duration::from_millis(150)).await;
        let count = stream
            .read_exact(&mut buffer)
            .await
            .unwrap_or_else(|error| panic!("{error} after {came} bytes"));
        came += count;
    }
}

/// More than the sockets of both sides hold.
const LARGE: usize = 24 << 20;

#[tokio::test]
async fn a_client_refused_while_it_sends_gets_the_answer() {
    let server = start(BOUNDS).await;
    for (expects, sent) in [(false, LARGE), (true, 0)] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let expect = if expects { "expect: 100-continue\r\n" } else { "" };
        let head = format!("POST /refused HTTP/1.1\r\nhost: x\r\n{expect}content-length: {LARGE}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        // Sent to its end before anything is read, as simple clients do.
        let body = vec![b'x'; sent];
        tokio::time::timeout(PATIENCE, stream.write_all(&body))
            .await
            .unwrap()
            .unwrap();
        let mut answer = vec![0; 12];
        tokio::time::timeout(PATIENCE, stream.read_exact(&mut answer))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(answer, b"HTTP/1.1 429", "expects: {expects}");
    }
}

#[tokio::test]
async fn a_peer_without_a_place_gets_the_reason_and_another_has_one() {
    let bounds = Bounds {
        connections_per_peer: 2,
        head: PATIENCE,
        ..BOUNDS
    };
    let server = start(bounds).await;
    let held = [server.connect("").await, server.connect("").await];
    let mut refused = server.connect("").await;
    let text = read(&mut refused).await;
    assert!(text.starts_with("HTTP/1.1 503") && text.ends_with('}'), "{text}");
    assert_eq!(server.closed(Closed::Full), 1);
    let other = tokio::net::TcpSocket::new_v4().unwrap();
    other.bind("127.0.0.9:0".parse().unwrap()).unwrap();
    let mut other = other.connect(server.address).await.unwrap();
    other
        .write_all(b"GET /peer HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        .await
        .unwrap();
    assert!(read(&mut other).await.ends_with("127.0.0.9"));
    drop(held);
}

#[tokio::test]
async fn a_stopping_server_says_so_and_still_serves_new_requests() {
    let server = start(Bounds {
        idle: PATIENCE,
        ..BOUNDS
    })
    .await;
    let mut kept = server.connect("GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let mut first = [0; 1];
    kept.read_exact(&mut first).await.unwrap();
    let mut idle = server.connect("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    idle.read_exact(&mut first).await.unwrap();

    server.stop.leave.cancel();
    // Only this answer announces it, and its connection ends with it.
    let mut connection = server.connect("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let text = read(&mut connection).await;
    assert!(text.contains("connection: close") && text.ends_with("ok"), "{text}");

    server.stop.renew.cancel();
    assert!(read(&mut idle).await.ends_with("ok"), "an idle connection is closed");
    let text = read(&mut kept).await;
    assert!(
        text.contains("\r\n4\r\n") && text.ends_with("0\r\n\r\n"),
        "an answer is given to its end: {text}"
    );
    slow_answers_are_whole(&server).await;
    assert!(!server.serving.is_finished());
}

#[tokio::test]
async fn a_stop_lets_answers_end_and_a_cut_does_not() {
    let server = start(Bounds {
        stalled: PATIENCE,
        ..BOUNDS
    })
    .await;
    let client = client(false);
    let slow = client.get(server.url("/slow")).send().await.unwrap();
    let endless = client.get(server.url("/endless")).send().await.unwrap();
    server.stop.close.cancel();
    until("nothing is accepted", || {
        std::net::TcpStream::connect(server.address).is_err()
    })
    .await;
    assert_eq!(slow.text().await.unwrap(), "01234");
    assert!(!server.serving.is_finished());
    server.stop.cut.cancel();
    tokio::time::timeout(PATIENCE, server.serving).await.unwrap().unwrap();
    assert_eq!(server.dropped.load(Ordering::SeqCst), 1);
    assert!(endless.bytes().await.is_err());
}

/// The probe uses a port that others use too, and is distinguished by its first byte.
#[tokio::test]
async fn a_probe_is_answered_at_the_port_of_everybody_else() {
    for (beacon, other) in [(Some(Beacon::default()), Beacon::default()), (None, Beacon::default())] {
        let server = start_with(BOUNDS, beacon.clone()).await;
        let of = |beacon: Beacon| ProbeTarget {
            address: server.address,
            beacon,
        };
        assert_eq!(of(beacon.clone().unwrap_or_default()).answers().await, beacon.is_some());
        assert!(!of(other).answers().await, "a question of another process");
        let answer = client(false).get(server.url("/")).send().await.unwrap();
        assert_eq!(answer.text().await.unwrap(), "ok");
        // A silent connection is closed in time nevertheless.
        let mut silent = server.connect("").await;
        assert_eq!(read(&mut silent).await, "");
    }
}

#[test]
fn a_peer_is_local_if_both_ends_are_loopback_addresses() {
    for (called, address, expected) in [
        ("127.0.0.1", "127.0.0.1", true),
        ("::1", "::1", true),
        ("10.0.0.7", "10.0.0.8", false),
        // Itself by its own address, and a proxy of a mesh that hands on what came from the network.
        ("10.0.0.7", "10.0.0.7", false),
        ("10.0.0.7", "127.0.0.6", false),
        ("127.0.0.1", "10.0.0.8", false),
    ] {
        let peer = Peer {
            address: address.parse().unwrap(),
            called: Some(called.parse().unwrap()),
        };
        assert_eq!(peer.is_local(), expected, "{address} to {called}");
    }
}
