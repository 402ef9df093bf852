//! Requests with the operator's provider key, and requests that are passed on: what reaches the provider, and what is
//! logged.

use std::sync::{Arc, Mutex};

use http::{HeaderMap, Method};
use serde_json::json;

use super::support::{Running, Start, client, start};

/// What a provider saw: method, path with query, headers, body.
type Seen = Arc<Mutex<Vec<(String, HeaderMap, bytes::Bytes)>>>;

/// A provider that writes down what comes and answers with 12 bytes after a moment, of which the last six never come at `/left`.
async fn recording() -> (String, Seen) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/tenant-a", listener.local_addr().unwrap());
    let seen = Seen::default();
    let record = Arc::clone(&seen);
    let router = axum::Router::new().fallback(move |request: axum::extract::Request| {
        let record = Arc::clone(&record);
        async move {
            let (parts, body) = request.into_parts();
            let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
            let line = format!("{} {}", parts.method, parts.uri);
            let ends = !parts.uri.path().ends_with("/left");
            record.lock().unwrap().push((line, parts.headers, body));
            let pieces = futures::stream::iter(["first,", "second"]);
            let pieces = futures::StreamExt::then(pieces, move |piece| async move {
                if piece == "second" && !ends {
                    std::future::pending::<()>().await;
                }
                tokio::time::sleep(std::time::Duration::from_millis(150)).await;
                Ok::<_, std::io::Error>(piece)
            });
            ([("content-length", "12")], axum::body::Body::from_stream(pieces))
        }
    });
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, seen)
}

async fn gateway(operator_key: Option<&'static str>) -> (Running, Seen) {
    let (url, seen) = recording().await;
    let knack = start(Start {
        upstream: Some(url),
        operator_key,
        ..Start::default()
    })
    .await;
    (knack, seen)
}

/// Sends a path as written: an HTTP library would resolve its dot segments.
async fn raw(knack: &Running, line: &str, headers: &str) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let address = knack.url.trim_start_matches("http://");
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let text = format!("{line} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\r\n");
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn with_the_operators_key_only_models_are_asked_and_the_rest_is_refused_by_name() {
    let (knack, seen) = gateway(Some("sk-operator")).await;
    let claude = "anthropic-version: 2023-06-01\r\n";
    for (line, headers, shape) in [
        ("GET /v1/files", "", "\"error\":{\"message\":"),
        ("DELETE /v1/files/file-1", "", "\"error\":{\"message\":"),
        ("GET /v1/responses/resp-1", "", "\"error\":{\"message\":"),
        ("GET /v1/batches", "", "\"error\":{\"message\":"),
        ("GET /v1/messages/batches", claude, "\"type\":\"error\""),
        ("GET /v1/files", claude, "\"type\":\"error\""),
        ("GET /v1beta/cachedContents", "x-goog-api-key: k\r\n", "\"error\":{"),
        (
            "GET /v1beta/models/g/operations",
            "x-goog-api-key: k\r\n",
            "\"error\":{",
        ),
        (
            "GET /v1beta/models/g/operations/o",
            "x-goog-api-key: k\r\n",
            "\"error\":{",
        ),
        ("GET /v1/models/claude/more", claude, "\"type\":\"error\""),
        (
            "POST /other/v1/chat/completions",
            "content-length: 0\r\n",
            "\"error\":{\"message\":",
        ),
    ] {
        let answer = raw(&knack, line, headers).await;
        let path = line.split_once(' ').unwrap().1;
        assert!(answer.starts_with("HTTP/1.1 403"), "{line}: {answer}");
        assert!(answer.contains(shape) && answer.contains(path), "{line}: {answer}");
        assert!(
            !answer.contains("tenant-a") && !answer.contains("sk-operator"),
            "{answer}"
        );
    }
    for line in [
        "GET /v1/models/../files",
        "GET /v1/models/%2e%2e/files",
        "GET /v1/models/..%2ffiles",
        "GET /v1/models/%252E%252E/files",
        "GET /v1/models\\gpt-x",
    ] {
        assert!(raw(&knack, line, "").await.starts_with("HTTP/1.1 400"), "{line}");
    }
    assert!(seen.lock().unwrap().is_empty(), "nothing of it went upstream");
    let headers = "authorization: Bearer sk-client\r\nopenai-organization: org-other\r\nopenai-project: p\r\n\
        cookie: a=b\r\nx-portkey-custom-host: https://elsewhere.example\r\napi-key: k\r\nx-unknown: u\r\n\
        anthropic-beta: b\r\nx-stainless-lang: python\r\ntraceparent: t\r\nidempotency-key: i\r\n";
    assert!(
        raw(&knack, "GET /v1/models?key=mine&limit=2", headers)
            .await
            .starts_with("HTTP/1.1 200")
    );
    let chat = json!({"model": "gpt-x", "messages": [{"role": "user", "content": "hi"}]});
    let answer = knack
        .chat(&chat)
        .header("openai-organization", "org-other")
        .header("x-knack-skills", "none")
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 200);
    let seen = seen.lock().unwrap();
    assert_eq!(seen[0].0, "GET /tenant-a/v1/models?limit=2");
    assert_eq!(seen[1].0, "POST /tenant-a/v1/chat/completions");
    for (line, headers, _) in &*seen {
        assert_eq!(headers["authorization"], "Bearer sk-operator", "{line}");
        for name in [
            "openai-organization",
            "openai-project",
            "cookie",
            "x-portkey-custom-host",
            "api-key",
            "x-unknown",
        ] {
            assert!(!headers.contains_key(name), "{line}: {name}");
        }
    }
    for name in ["anthropic-beta", "x-stainless-lang", "traceparent", "idempotency-key"] {
        assert!(seen[0].1.contains_key(name), "{name}");
    }
    assert_eq!(seen[1].1["content-type"], "application/json");
}

#[tokio::test]
async fn with_the_clients_key_everything_is_passed_on_but_dot_segments() {
    let (knack, seen) = gateway(None).await;
    assert!(raw(&knack, "GET /v1/../../other", "").await.starts_with("HTTP/1.1 400"));
    let headers = "authorization: Bearer sk-client\r\nopenai-organization: mine\r\n";
    assert!(
        raw(&knack, "GET /v1/files?limit=2", headers)
            .await
            .starts_with("HTTP/1.1 200")
    );
    {
        let mut seen = seen.lock().unwrap();
        assert_eq!(seen.len(), 1);
        assert_eq!(seen[0].0, "GET /tenant-a/v1/files?limit=2");
        assert_eq!(seen[0].1["openai-organization"], "mine");
        seen.clear();
    }
    // What is no question to a model that takes skills goes as it came, with models and conversations in it.
    let body = r#"{ "model" : "m","messages":[{"role":"user","content":"h\u0069"}],"input":"x", "contents":[],"requests":[] }"#;
    for path in [
        "/v1/embeddings",
        "/v1/completions",
        "/v1/moderations",
        "/v1/images/generations",
        "/v1/audio/speech",
        "/v1/audio/transcriptions",
        "/v1/realtime/client_secrets",
        "/v1/batches",
        "/v1/responses/compact",
        "/v1/responses/resp_1/cancel",
        "/v1/messages/batches",
        "/v1/threads/t/messages",
        "/v1beta/models/m:embedContent",
        "/v1beta/models/m:batchGenerateContent",
        "/v1beta/models/m:predict",
        "/v1beta/cachedContents",
    ] {
        let post = client()
            .post(format!("{}{path}?a=b", knack.url))
            .bearer_auth("sk-client");
        let answer = post
            .header("content-type", "application/json")
            .body(body)
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), 200, "{path}");
        let (line, _, sent) = seen.lock().unwrap().pop().unwrap();
        assert_eq!(
            (line, &sent[..]),
            (format!("POST /tenant-a{path}?a=b"), body.as_bytes())
        );
    }
}

/// HTTP/2 has no Transfer-Encoding and demands no Content-Length.
#[tokio::test]
async fn a_body_of_http_2_without_a_length_is_passed_on() {
    let (knack, seen) = gateway(None).await;
    let http2 = reqwest::Client::builder()
        .no_proxy()
        .http2_prior_knowledge()
        .build()
        .unwrap();
    let pieces = ["{\"input\":", "\"x\"}"].map(Ok::<_, std::io::Error>);
    let post = http2
        .post(format!("{}/v1/embeddings", knack.url))
        .header("content-type", "application/json")
        .body(reqwest::Body::wrap_stream(futures::stream::iter(pieces)));
    assert_eq!(post.send().await.unwrap().status(), 200);
    assert_eq!(
        http2
            .get(format!("{}/v1/models", knack.url))
            .send()
            .await
            .unwrap()
            .status(),
        200
    );
    let seen = seen.lock().unwrap();
    assert_eq!(seen[0].2, r#"{"input":"x"}"#);
    assert!(!seen[1].1.contains_key("transfer-encoding"), "{:?}", seen[1].1);
}

#[tokio::test]
async fn what_is_passed_on_keeps_its_length_both_ways_and_is_measured_to_its_end() {
    let (knack, seen) = gateway(None).await;
    let upload = client()
        .request(Method::POST, format!("{}/v1/files", knack.url))
        .body(vec![b'x'; 300 << 10]);
    let answer = upload.send().await.unwrap();
    assert_eq!(answer.headers()["content-length"], "12");
    assert!(!knack.lines.text().contains("/v1/files"), "not told before its end");
    assert_eq!(answer.text().await.unwrap(), "first,second");
    let line = knack.told("200 proxy /v1/files").await;
    let took: u64 = line
        .split(" ms ")
        .next()
        .unwrap()
        .rsplit(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    assert!(took >= 300, "{line}");
    assert!(!line.contains("client left"), "{line}");
    {
        let seen = seen.lock().unwrap();
        assert_eq!(seen[0].1["content-length"], (300 << 10).to_string());
        assert!(!seen[0].1.contains_key("transfer-encoding"));
        assert_eq!(seen[0].2.len(), 300 << 10);
    }
    let mut left = client().get(format!("{}/v1/left", knack.url)).send().await.unwrap();
    assert!(left.chunk().await.unwrap().is_some());
    drop(left);
    knack.told("client left").await;
}
