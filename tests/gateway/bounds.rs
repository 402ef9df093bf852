//! Clients that hold connections without using them: they delay no other request, and are closed.

use std::time::{Duration, Instant};

use knack_gateway::callers::caller::identify;
use knack_gateway::files::FileEntry;
use knack_gateway::files::user_files::Bounds as FileBounds;
use knack_gateway::http_server::budget::BodyTimes;
use knack_gateway::http_server::server::BOUNDS;
use knack_memory::MemoryBudget;
use knack_serving::Bounds;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::support::{Running, Start, start};
use super::user_files::{Caller, Dialect, Hand, ids};

/// Longest wait for what must come.
const PATIENCE: Duration = Duration::from_mins(1);
/// What a busy machine may take of a request, beside ten times the usual: half of the shortest bound of a silent connection (10 s for its
/// head), which is what a request would take that waits for one.
const BUSY: Duration = Duration::from_secs(5);
/// How often something is tried that a machine can spoil which stands still meanwhile.
const ATTEMPTS: usize = 5;
const ECHO: &str = "turns:\n  - rounds:\n      - reply: {text: hi}\n";

async fn connect(knack: &Running, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(knack.url.trim_start_matches("http://"))
        .await
        .unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    stream
}

/// Connections that the gateway has closed for this reason.
fn closed(knack: &Running, reason: &str) -> u64 {
    let line = format!("knack_gateway_connections_closed_total{{reason=\"{reason}\"}} ");
    let text = knack.gateway.metrics.text();
    let count = text.lines().find_map(|found| found.strip_prefix(&line)?.parse().ok());
    count.unwrap_or_default()
}

fn head(path: &str, length: usize) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n")
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Reads to the end of the connection; a reset is an end too.
async fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes))
        .await
        .unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The second longest of a hundred requests, one after the other.
async fn p99(knack: &Running, body: &Value) -> Duration {
    let mut took = Vec::new();
    for _ in 0..100 {
        let begun = Instant::now();
        let answer = knack.send(knack.chat(body)).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        took.push(begun.elapsed());
    }
    took.sort();
    took[98]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_silent_sockets_delay_no_request() {
    let knack = start(Start {
        script: ECHO.to_owned(),
        ..Start::default()
    })
    .await;
    let body = json!({"model": "gpt-x", "messages": [{"role": "user", "content": "x".repeat(100 << 10)}]});
    // What they take here and now, without the sockets.
    let floor = p99(&knack, &body).await;
    let mut silent = Vec::new();
    for n in 0..200 {
        let text = match n % 4 {
            0 => String::new(),
            1 => "POST /v1/chat/completions HTTP/1.1\r\nhost: loc".to_owned(),
            2 => head("/v1/chat/completions", 32 << 20),
            _ => head("/v1/messages", 32 << 20) + "{",
        };
        silent.push(connect(&knack, &text).await);
    }
    let beside = p99(&knack, &body).await;
    assert!(beside < BUSY + 10 * floor, "{beside:?}, without them {floor:?}");
    let held = knack.gateway.requests.process().held_bytes();
    assert!(held < 1 << 20, "what is announced is not held: {held}");
    drop(silent);
    until("all is given back", || {
        knack.gateway.requests.process().held_bytes() == 0
    })
    .await;
}

#[tokio::test]
async fn a_missing_head_or_body_is_answered_and_closed() {
    // With this bound a head may be late whose client has sent it: of bodies another gateway is asked.
    let knack = start(Start {
        script: ECHO.to_owned(),
        bounds: Bounds {
            head: Duration::from_millis(300),
            ..BOUNDS
        },
        ..Start::default()
    })
    .await;
    let mut half = connect(&knack, "POST /v1/chat/completions HTTP/1.1\r\n").await;
    assert_eq!(rest(&mut half).await, "");
    until("counted", || closed(&knack, "Head") == 1).await;
    let knack = start(Start {
        script: ECHO.to_owned(),
        times: BodyTimes {
            arrive: Duration::from_secs(5),
            silence: Duration::from_millis(300),
        },
        ..Start::default()
    })
    .await;
    for (path, shape) in [
        ("/v1/chat/completions", "\"error\":{\"message\":"),
        ("/v1/messages", "\"type\":\"error\""),
    ] {
        let mut silent = connect(&knack, &(head(path, 1000) + "{\"model\"")).await;
        let text = rest(&mut silent).await;
        assert!(text.starts_with("HTTP/1.1 408") && text.contains(shape), "{text}");
        assert!(text.contains("did not arrive in time"), "{text}");
    }
    // A body that is passed on ends with its sender too.
    let mut proxied = connect(&knack, &(head("/v1/files", 1000) + "x")).await;
    let text = rest(&mut proxied).await;
    assert!(
        text.starts_with("HTTP/1.1 4") || text.starts_with("HTTP/1.1 502"),
        "{text}"
    );
}

#[tokio::test]
async fn readers_that_stop_are_closed_and_their_answers_end() {
    let upstream = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = upstream.local_addr().unwrap();
    // A provider that streams without end to every client.
    let endless = axum::Router::new().fallback(|| async {
        let event = bytes::Bytes::from(format!("data: {{\"x\":\"{}\"}}\n\n", "x".repeat(60 << 10)));
        let pieces = futures::stream::repeat_with(move || Ok::<_, std::io::Error>(event.clone()));
        (
            [("content-type", "text/event-stream")],
            axum::body::Body::from_stream(pieces),
        )
    });
    let serving = tokio::spawn(async move { axum::serve(upstream, endless).await });
    let knack = start(Start {
        upstream: Some(format!("http://{address}")),
        bounds: Bounds {
            stalled: Duration::from_millis(500),
            ..BOUNDS
        },
        ..Start::default()
    })
    .await;
    let body = json!({"model": "gpt-x", "stream": true, "messages": [{"role": "user", "content": "go"}]}).to_string();
    let mut stopped = Vec::new();
    for _ in 0..20 {
        let text = head("/v1/chat/completions", body.len()).replace("\r\n\r\n", "\r\nx-knack-skills: none\r\n\r\n");
        stopped.push(connect(&knack, &(text + &body)).await);
    }
    until("all are closed", || closed(&knack, "Stalled") == 20).await;
    until("all answers have ended", || {
        knack.lines.text().matches("client left").count() == 20
    })
    .await;
    until("all is given back", || {
        knack.gateway.requests.process().held_bytes() == 0
    })
    .await;
    serving.abort();
}

/// More than the buffers of a connection hold, so that the server is not done before somebody reads.
const LARGE_FILE_BYTES: usize = 7 << 20;

/// An MCP client that asks and never reads is closed, and holds up nobody meanwhile.
#[tokio::test]
async fn mcp_clients_that_never_read_are_closed_and_delay_nobody() {
    let large: &'static str = "x".repeat(LARGE_FILE_BYTES).leak();
    let knack = start(Start {
        skills: vec![
            ("big/SKILL.md", "---\nname: big\ndescription: d\n---\nx\n"),
            ("big/large.txt", large),
        ],
        bounds: Bounds {
            stalled: Duration::from_millis(500),
            ..BOUNDS
        },
        ..Start::default()
    })
    .await;
    let asked = |method: &str, params: serde_json::Value| {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
        let more = "accept: application/json, text/event-stream\r\ncontent-type: application/json\r\n\
                    mcp-protocol-version: 2025-06-18\r\n\r\n";
        head("/mcp", body.len()).trim_end().to_owned() + "\r\n" + more + &body
    };
    let read = asked("resources/read", json!({"uri": "skill://big/large.txt"}));
    let mut silent = Vec::new();
    for _ in 0..8 {
        silent.push(connect(&knack, &read).await);
    }
    // One more client of the same identity, which is served meanwhile.
    let mut other = connect(
        &knack,
        &asked("skills/list", json!({})).replacen("\r\n", "\r\nconnection: close\r\n", 1),
    )
    .await;
    let text = rest(&mut other).await;
    assert!(text.starts_with("HTTP/1.1 200") && text.contains("big"), "{text}");
    until("all are closed", || closed(&knack, "Stalled") == 8).await;
    until("all is given back", || {
        knack.gateway.requests.process().held_bytes() == 0
    })
    .await;
    drop(silent);
}

/// Contents count from when they are read until they are sent, and what has no room is refused.
#[tokio::test]
async fn readers_of_files_that_stop_hold_their_share_until_they_are_closed() {
    let knack = start(Start {
        bounds: Bounds {
            stalled: Duration::from_secs(5),
            ..BOUNDS
        },
        // A half of it for large contents: four of these, and no fifth.
        memory: MemoryBudget::new(64 << 20),
        user_files: Some((FileBounds::default(), Hand::new().clock())),
        ..Start::default()
    })
    .await;
    let caller = Caller::new(&knack, Dialect::OpenAi);
    let content = vec![b'x'; LARGE_FILE_BYTES];
    let upload = caller.upload("a.bin", &content).await;
    let made = caller
        .post("/v1/containers", &json!({"name": "n", "file_ids": [upload]}))
        .await;
    let files = format!("/v1/containers/{}/files", made.json()["id"].as_str().unwrap());
    let in_container = ids(&caller.get(&files).await.json())[0].clone();
    let headers = http::HeaderMap::from_iter([(http::header::AUTHORIZATION, "Bearer key-a".parse().unwrap())]);
    let identity = identify(&knack.gateway.secret.current(), &headers, &"/".parse().unwrap());
    let entry = FileEntry {
        name: "b.bin".to_owned(),
        mime_type: "application/octet-stream".to_owned(),
        size_bytes: LARGE_FILE_BYTES as u64,
        sha256: String::new(),
    };
    let files_made = vec![(entry, content.into())];
    knack
        .gateway
        .files
        .put(identity.bucket(), "resp_1", files_made)
        .await
        .unwrap();
    for path in [
        format!("/v1/files/{upload}/content"),
        format!("{files}/{in_container}/content"),
        "/knack/v1/responses/resp_1/files/b.bin".to_owned(),
    ] {
        let mut attempts = 0;
        while !stopped_readers_leave_no_room(&knack, &path).await {
            attempts += 1;
            assert!(attempts < ATTEMPTS, "{path}: this machine is too slow");
        }
        assert_eq!(caller.get(&path).await.text.len(), LARGE_FILE_BYTES, "{path}");
    }
}

/// False: the readers were closed before another one asked, or before all of them held their share.
async fn stopped_readers_leave_no_room(knack: &Running, path: &str) -> bool {
    let closed = || closed(knack, "Stalled");
    let held = || knack.gateway.requests.process().held_bytes();
    let before = closed();
    let get = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer key-a\r\n\r\n");
    let mut stopped = Vec::new();
    for _ in 0..4 {
        stopped.push(connect(knack, &get).await);
    }
    until("all are read", || held() >= 4 * LARGE_FILE_BYTES || closed() > before).await;
    let refused = Caller::new(knack, Dialect::OpenAi).get(path).await;
    let is_late = refused.status == 200 && closed() > before;
    if !is_late {
        assert_eq!(
            (refused.status, refused.headers.get("retry-after")),
            (503, Some(&"1".parse().unwrap())),
            "{path}"
        );
    }
    until("all are closed", || closed() == before + 4).await;
    until("all is given back", || held() == 0).await;
    !is_late
}

/// Proxies and meshes add to what a client sends.
#[tokio::test]
async fn a_head_of_many_lines_is_read() {
    let knack = start(Start {
        script: ECHO.to_owned(),
        ..Start::default()
    })
    .await;
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
    for (lines, status) in [(50, 200), (240, 200), (300, 431)] {
        // The gateway keeps them to itself: the provider may take less.
        let request = (0..lines).fold(knack.chat(&body), |request, at| {
            request.header(format!("x-knack-line-{at}"), "x")
        });
        assert_eq!(knack.send(request).await.status, status, "{lines}");
    }
}
