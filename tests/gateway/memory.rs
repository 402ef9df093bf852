//! Memory under the limit of a control group: large bodies are answered or refused, and the process lives.

use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::response::IntoResponse as _;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use super::background::Background;
use super::cgroup::{Group, resident_mib};
use super::runner;
use super::skip::skip;
use super::support::{client, write};

const MIB: usize = 1 << 20;
/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_mins(3);

/// A gateway ends a connection whose client does not send for this long, and not sooner: its bound on the head of a request is 10 s,
/// that on a body 15 s between two pieces.
const TOO_SLOW: Duration = Duration::from_secs(10);
/// What a busy machine may take of a small request, beside ten times the usual: half of what one takes that waits until the gateway has
/// closed a silent client.
const BUSY: Duration = Duration::from_secs(5);
/// How often a client that was too slow begins anew.
const ATTEMPTS: usize = 5;

/// Connections that send the begin of a request and no more.
const SILENT: usize = 200;
/// Connections that ask for [`LARGE`] and read nothing.
const STOPPED: usize = 20;
/// A file of the provider, of [`LARGE_BYTES`].
const LARGE: &str = "/v1/files/large/content";
const LARGE_BYTES: usize = 16 * MIB;

/// A provider that reads bodies and keeps nothing.
async fn provider() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let answer = |request: axum::extract::Request| async move {
        use futures::StreamExt as _;
        if request.uri().path() == LARGE {
            return vec![0; LARGE_BYTES].into_response();
        }
        let mut pieces = request.into_body().into_data_stream();
        while let Some(Ok(_)) = pieces.next().await {}
        let text = r#"{"id":"r","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"read"}}]}"#;
        ([("content-type", "application/json")], text).into_response()
    };
    tokio::spawn(async move { axum::serve(listener, axum::Router::new().fallback(answer)).await });
    url
}

struct Limited {
    child: Child,
    url: String,
    _folder: tempfile::TempDir,
    group: Group,
}

async fn limited(group: Group, upstream: &str) -> Limited {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "skills/always/SKILL.md", super::support::ALWAYS);
    let [shell, words @ ..] = group.words();
    let child = Command::new(shell)
        .args(words)
        .arg(super::released::knack())
        .args(["dev", "skills", "--listen", "127.0.0.1:0"])
        .args([
            "--no-local-executor",
            "--print-port-file",
            "port",
            "--upstream",
            upstream,
        ])
        .current_dir(folder.path())
        .env("KNACK_RUNNER", runner::binary())
        .env(Group::ENVIRONMENT.0, Group::ENVIRONMENT.1)
        .env("XDG_STATE_HOME", folder.path().join("state"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let begun = Instant::now();
    let port = loop {
        match std::fs::read_to_string(folder.path().join("port")) {
            Ok(port) if port.ends_with('\n') => break port.trim().to_owned(),
            _ => assert!(begun.elapsed() < PATIENCE, "no port"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    Limited {
        child,
        url: format!("http://127.0.0.1:{port}"),
        _folder: folder,
        group,
    }
}

impl Limited {
    async fn chat(&self, body: bytes::Bytes) -> Result<reqwest::Response, reqwest::Error> {
        let request = client().post(format!("{}/v1/chat/completions", self.url));
        request.bearer_auth("k").body(body).send().await
    }

    /// Status, whether there is a `retry-after`, and text of the answer to a large body. The clients that send them give way to all
    /// other programs of the machine: one that got no time to send is cut off, and begins anew. No other answer is missing.
    async fn flood(&self, body: bytes::Bytes) -> (u16, bool, String) {
        for _ in 0..ATTEMPTS {
            let begun = Instant::now();
            let error = match self.chat(body.clone()).await {
                Ok(answer) if answer.status() == 408 => answer.text().await.unwrap(),
                Ok(answer) => {
                    let retry = answer.headers().contains_key("retry-after");
                    return (answer.status().as_u16(), retry, answer.text().await.unwrap());
                }
                Err(error) => format!("{error:?}"),
            };
            assert!(begun.elapsed() > TOO_SLOW, "after {:?}: {error}", begun.elapsed());
        }
        panic!("a client was too slow {ATTEMPTS} times");
    }

    /// How long each of these small requests takes, the shortest first.
    async fn small(&self, body: &bytes::Bytes, mut goes_on: impl FnMut(usize) -> bool) -> Vec<Duration> {
        let mut took = Vec::new();
        while goes_on(took.len()) {
            let begun = Instant::now();
            let answer = self.chat(body.clone()).await.unwrap();
            assert_eq!(answer.status(), 200, "{}", answer.text().await.unwrap());
            took.push(begun.elapsed());
        }
        took.sort();
        took
    }

    /// Connections on which this is sent and nothing is read.
    async fn silent(&self, count: usize, text: &str) -> Vec<TcpStream> {
        let address = self.url.trim_start_matches("http://");
        let mut silent = Vec::new();
        for _ in 0..count {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(text.as_bytes()).await.unwrap();
            silent.push(stream);
        }
        silent
    }

    async fn held(&self) -> u64 {
        let text = client().get(format!("{}/metrics", self.url)).send().await.unwrap();
        let text = text.text().await.unwrap();
        let line = text.lines().find(|line| line.starts_with("knack_gateway_memory_bytes"));
        line.and_then(|line| line.split(' ').nth(1)).unwrap().parse().unwrap()
    }

    fn resident_mib(&self) -> usize {
        resident_mib(self.child.id().unwrap())
    }
}

fn body(bytes: usize) -> bytes::Bytes {
    let text = "x".repeat(bytes - 100);
    format!(r#"{{"model":"gpt-x","messages":[{{"role":"user","content":"{text}"}}]}}"#).into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_bodies_of_32_mib_beside_silent_clients_under_256_mib_are_answered_or_refused() {
    let Some(group) = Group::new(256 * MIB) else {
        return skip(
            "sixty_four_bodies_of_32_mib_under_256_mib_are_answered_or_refused",
            "no memory control group can be made here (root, and a writable /sys/fs/cgroup)",
        );
    };
    let knack = Arc::new(limited(group, &provider().await).await);
    let head = |line: String| format!("{line} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer other\r\n");
    let post = head("POST /v1/chat/completions".to_owned()) + "content-length: 1000\r\n\r\n{";
    let silent = knack.silent(SILENT, &post).await;
    let stopped = knack.silent(STOPPED, &(head(format!("GET {LARGE}")) + "\r\n")).await;
    let [large, small] = [31 * MIB, 20 << 10].map(body);
    let percentile = |took: &[Duration], percent: usize| took[took.len() * percent / 100];
    // What small requests take here and now, without the flood.
    let floor = percentile(&knack.small(&small, |sent| sent < 200).await, 99);
    let background = Background::new();
    let sending: Vec<_> = (0..64)
        .map(|_| {
            let (knack, body) = (Arc::clone(&knack), large.clone());
            background.handle().spawn(async move { knack.flood(body).await })
        })
        .collect();
    // One more client meanwhile.
    let goes_on = |sent| sent < 200 || (sending.iter().any(|sending| !sending.is_finished()) && sent < 5000);
    let took = knack.small(&small, goes_on).await;
    let mut counts = [0, 0];
    for sending in sending {
        match tokio::time::timeout(PATIENCE, sending).await.unwrap().unwrap() {
            (200, _, text) => {
                assert!(text.contains("read"), "{text}");
                counts[0] += 1;
            }
            (503, true, text) => {
                assert!(text.contains("too many large requests"), "{text}");
                counts[1] += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(counts[0] + counts[1], 64);
    let [p50, p99] = [50, 99].map(|percent| percentile(&took, percent));
    eprintln!(
        "answered and refused: {counts:?}; small ones: {} with p50 {p50:?} and p99 {p99:?}, alone {floor:?}; {} MiB",
        took.len(),
        knack.resident_mib()
    );
    assert!(p99 < BUSY + 10 * floor, "{p99:?}, alone {floor:?}");
    assert_eq!(knack.group.killed(), 0);
    drop((silent, stopped));
    let begun = Instant::now();
    while knack.held().await > 0 {
        assert!(begun.elapsed() < PATIENCE, "the budget is given back");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let alone = knack.chat(large).await.unwrap();
    assert_eq!(alone.status(), 200, "who tries again later is answered");
    drop(alone);
    assert!(knack.resident_mib() < 128, "{} MiB stay", knack.resident_mib());
}

#[test]
fn the_chart_sets_the_c_library_as_the_tests_do() {
    let (name, value) = Group::ENVIRONMENT;
    let chart = concat!(env!("CARGO_MANIFEST_DIR"), "/charts/knack/templates/_helpers.tpl");
    let chart = std::fs::read_to_string(chart).unwrap();
    assert!(chart.contains(&format!("- name: {name}\n  value: \"{value}\"\n")));
}
