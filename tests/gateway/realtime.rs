//! Websockets of the provider's: joined in both directions, counted, and ended with the gateway.

use std::time::Duration;

use knack_gateway::http_server::server::{BOUNDS, Stopping};
use knack_serving::Bounds;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::support::{Running, Start, start};

/// Longest wait for what must come.
const PATIENCE: Duration = Duration::from_mins(1);
/// The bytes of a frame, which are no text.
const FRAME: &[u8] = &[0x82, 0x05, 0x00, 0xff, b'\r', b'\n', 0x80];
/// The frame after which this provider closes.
const BYE: &[u8] = &[0x88, 0x00];

/// What the provider saw.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    /// The head of a request, in lower case.
    Head(String),
    /// A connection has ended.
    End,
}

/// A provider that grants websockets at `/v1/realtime` and sends back what it gets, and refuses them elsewhere.
async fn provider() -> (String, mpsc::UnboundedReceiver<Seen>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (seen, sees) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let seen = seen.clone();
            tokio::spawn(async move {
                let head = read_head(&mut stream).await;
                let is_granted = head.starts_with("get /v1/realtime");
                let _ = seen.send(Seen::Head(head));
                let answer = if is_granted {
                    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: granted\r\n\r\n"
                } else {
                    "HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"
                };
                stream.write_all(answer.as_bytes()).await.unwrap();
                let mut piece = [0; 1 << 10];
                while let Ok(read @ 1..) = stream.read(&mut piece).await {
                    if &piece[..read] == BYE || stream.write_all(&piece[..read]).await.is_err() {
                        break;
                    }
                }
                let _ = seen.send(Seen::End);
            });
        }
    });
    (url, sees)
}

/// Reads to the end of a head, in lower case.
async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let byte = tokio::time::timeout(PATIENCE, stream.read_u8()).await.unwrap();
        match byte {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8_lossy(&head).to_lowercase()
}

/// Asks for a websocket, and returns the connection with the head of the answer.
async fn ask(knack: &Running, path: &str) -> (TcpStream, String) {
    let address = knack.url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "GET {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer key-a\r\nconnection: keep-alive, Upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: a2V5\r\nsec-websocket-protocol: realtime\r\nx-knack-skills: none\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let answer = read_head(&mut stream).await;
    (stream, answer)
}

async fn echoes(stream: &mut TcpStream) {
    stream.write_all(FRAME).await.unwrap();
    let mut back = [0; FRAME.len()];
    tokio::time::timeout(PATIENCE, stream.read_exact(&mut back))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(back, FRAME);
}

/// Waits for the end of the connection.
async fn ends(stream: &mut TcpStream) {
    let mut rest = Vec::new();
    // A reset is an end too.
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest))
        .await
        .unwrap();
    assert_eq!(rest, b"");
}

async fn next(sees: &mut mpsc::UnboundedReceiver<Seen>) -> Seen {
    tokio::time::timeout(PATIENCE, sees.recv()).await.unwrap().unwrap()
}

#[tokio::test]
async fn a_session_is_joined_in_both_directions_until_either_side_closes_it() {
    let (url, mut sees) = provider().await;
    let knack = start(Start {
        upstream: Some(url),
        ..Start::default()
    })
    .await;
    for provider_closes in [false, true] {
        let (mut stream, answer) = ask(&knack, "/v1/realtime?model=gpt-realtime").await;
        for part in [
            "http/1.1 101 ",
            "\r\nconnection: upgrade\r\n",
            "\r\nupgrade: websocket\r\n",
            "\r\nsec-websocket-accept: granted\r\n",
            "\r\nx-knack-request-id: ",
        ] {
            assert!(answer.contains(part), "{part:?}: {answer}");
        }
        let Seen::Head(head) = next(&mut sees).await else {
            panic!("a head comes first")
        };
        for part in [
            "get /v1/realtime?model=gpt-realtime http/1.1\r\n",
            "\r\nconnection: upgrade\r\n",
            "\r\nupgrade: websocket\r\n",
            "\r\nsec-websocket-key: a2v5\r\n",
            "\r\nsec-websocket-protocol: realtime\r\n",
            "\r\nauthorization: bearer key-a\r\n",
        ] {
            assert!(head.contains(part), "{part:?}: {head}");
        }
        // The mark of a gateway goes to upstreams on its machine alone.
        assert!(!head.replace("x-knack-hop", "").contains("x-knack"), "{head}");
        echoes(&mut stream).await;
        echoes(&mut stream).await;
        if provider_closes {
            stream.write_all(BYE).await.unwrap();
            ends(&mut stream).await;
        }
        drop(stream);
        assert_eq!(next(&mut sees).await, Seen::End);
    }
    let lines = knack.told_times("101 proxy /v1/realtime |", 2).await;
    assert!(!lines.contains("gpt-realtime"), "{lines}");
}

#[tokio::test]
async fn a_refusal_of_the_provider_is_passed_and_its_connection_serves_on() {
    let (url, mut sees) = provider().await;
    let knack = start(Start {
        upstream: Some(url),
        ..Start::default()
    })
    .await;
    let (mut stream, answer) = ask(&knack, "/v1/other").await;
    assert!(answer.starts_with("http/1.1 401 "), "{answer}");
    assert!(matches!(next(&mut sees).await, Seen::Head(_)));
    let mut body = [0; 2];
    stream.read_exact(&mut body).await.unwrap();
    stream
        .write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await
        .unwrap();
    assert!(read_head(&mut stream).await.starts_with("http/1.1 200 "));
}

/// It is a connection of its peer's as long as it lasts, and no longer.
#[tokio::test]
async fn a_session_counts_among_the_connections_of_its_peer() {
    let (url, _sees) = provider().await;
    let knack = start(Start {
        upstream: Some(url),
        bounds: Bounds {
            connections_per_peer: 1,
            ..BOUNDS
        },
        ..Start::default()
    })
    .await;
    let (mut stream, answer) = ask(&knack, "/v1/realtime").await;
    assert!(answer.starts_with("http/1.1 101 "), "{answer}");
    echoes(&mut stream).await;
    let (_, refused) = ask(&knack, "/v1/realtime").await;
    assert!(refused.is_empty() || refused.starts_with("http/1.1 503 "), "{refused}");
    echoes(&mut stream).await;
    drop(stream);
    let again = async {
        while !ask(&knack, "/v1/realtime").await.1.starts_with("http/1.1 101 ") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, again).await.unwrap();
}

/// A session has no end of its own that a drain could wait for.
#[tokio::test]
async fn a_session_ends_when_the_gateway_stops() {
    let (url, mut sees) = provider().await;
    let mut knack = start(Start {
        upstream: Some(url),
        stopping: Stopping {
            pause: Duration::ZERO,
            drain: PATIENCE * 2,
        },
        ..Start::default()
    })
    .await;
    let (mut stream, _) = ask(&knack, "/v1/realtime").await;
    assert!(matches!(next(&mut sees).await, Seen::Head(_)));
    echoes(&mut stream).await;
    knack.stop.take().unwrap().send(()).unwrap();
    ends(&mut stream).await;
    assert_eq!(next(&mut sees).await, Seen::End);
    tokio::time::timeout(PATIENCE, &mut knack.server)
        .await
        .unwrap()
        .unwrap();
    knack.told("the gateway stops").await;
}
