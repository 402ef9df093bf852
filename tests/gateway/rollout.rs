//! `knack gateway` as a process that is told to end while answers are under way.

use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use serde_json::json;
use tokio::sync::watch;

use super::port::free_port;
use super::support::client;

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_mins(3);
/// How long the gateway takes requests after the signal, seconds: long enough for what the test does meanwhile.
const PAUSE_SECONDS: u64 = 10;

/// A provider whose answers begin at once and end on request.
async fn provider() -> (String, watch::Sender<bool>) {
    let (end, ends) = watch::channel(false);
    let answer = move || {
        let mut ends = ends.clone();
        async move {
            let event = |text: &str| {
                let chunk = json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "gpt-x",
                    "choices": [{"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": null}]});
                Ok::<_, std::io::Error>(bytes::Bytes::from(format!("data: {chunk}\n\n")))
            };
            let first = futures::stream::once(std::future::ready(event("begun")));
            let last = futures::stream::once(async move {
                let _ = ends.wait_for(|end| *end).await;
                event("whole")
            });
            let done = futures::stream::once(std::future::ready(Ok(bytes::Bytes::from_static(b"data: [DONE]\n\n"))));
            let body = futures::StreamExt::chain(first, futures::StreamExt::chain(last, done));
            (
                [("content-type", "text/event-stream")],
                axum::body::Body::from_stream(body),
            )
        }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, axum::Router::new().fallback(answer)).await });
    (url, end)
}

/// Killed when dropped.
struct Gateway(Child);

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Gateway {
    async fn end(&mut self) -> ExitStatus {
        let ended = async {
            loop {
                if let Some(status) = self.0.try_wait().unwrap() {
                    return status;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, ended).await.expect("it ends")
    }
}

/// The status and body of `/readyz`, once it has this status.
async fn readiness(url: &str, status: u16) -> String {
    let asked = async {
        loop {
            if let Ok(answer) = client().get(format!("{url}/readyz")).send().await
                && answer.status().as_u16() == status
            {
                return answer.text().await.unwrap();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, asked)
        .await
        .expect("its readiness changes")
}

/// After SIGTERM: not ready, and still serving new requests, whose answers close the connection; the answer in progress
/// is completed; the process exits with 0.
#[tokio::test]
async fn a_gateway_that_ends_cuts_no_answer() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("token"), "a token").unwrap();
    // There is no hub at this address: requests are passed on without skills.
    std::fs::write(folder.path().join("ca.crt"), "").unwrap();
    let ((upstream, end), serves, probes) = (provider().await, free_port(), free_port());
    let child = Command::new(env!("CARGO_BIN_EXE_knack"))
        .env("KNACK_LOG", "error")
        .args([
            "gateway",
            "--hub=https://127.0.0.1:1",
            "--runtime=team/default",
            "--drain-seconds=120",
        ])
        .args([
            format!("--shutdown-pause-seconds={PAUSE_SECONDS}"),
            format!("--listen=127.0.0.1:{serves}"),
            format!("--metrics-listen=127.0.0.1:{probes}"),
            format!("--hub-ca={}", folder.path().join("ca.crt").display()),
            format!("--token-file={}", folder.path().join("token").display()),
            format!("--upstream-openai={upstream}"),
        ])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let mut gateway = Gateway(child);
    let (url, probes) = (
        format!("http://127.0.0.1:{serves}"),
        format!("http://127.0.0.1:{probes}"),
    );
    readiness(&probes, 200).await;
    let ask = || {
        let body = json!({"model": "gpt-x", "stream": true, "messages": [{"role": "user", "content": "go"}]});
        let request = client().post(format!("{url}/v1/chat/completions")).bearer_auth("key");
        request
            .header("content-type", "application/json")
            .body(body.to_string())
            .send()
    };
    let mut under_way = ask().await.unwrap();
    let mut text = String::from_utf8(under_way.chunk().await.unwrap().unwrap().to_vec()).unwrap();
    assert!(text.contains("begun"), "{text}");
    assert!(!under_way.headers().contains_key("connection"));

    let pid = rustix::process::Pid::from_raw(gateway.0.id().try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(readiness(&probes, 503).await, "draining\n");
    let late = ask().await.unwrap();
    assert_eq!(late.status().as_u16(), 200);
    assert_eq!(late.headers()["connection"], "close");

    // New requests are refused after the pause; running ones continue.
    let refused = async {
        while tokio::net::TcpStream::connect(("127.0.0.1", serves)).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, refused)
        .await
        .expect("nobody new is taken");
    assert!(gateway.0.try_wait().unwrap().is_none(), "answers are under way");
    end.send_replace(true);
    text += &under_way.text().await.unwrap();
    assert!(text.contains("whole") && text.ends_with("data: [DONE]\n\n"), "{text}");
    let text = late.text().await.unwrap();
    assert!(text.contains("whole") && text.ends_with("data: [DONE]\n\n"), "{text}");
    let status = gateway.end().await;
    assert!(status.success(), "{status}");
}
