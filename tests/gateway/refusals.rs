//! Bad requests: a clear error in the client's shape, and nothing else is disturbed.

use serde_json::json;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::support::{Start, client, start, with_script};

const ECHO: &str = "turns:\n  - rounds:\n      - reply: {text: hi}\n";

#[tokio::test]
async fn bodies_that_are_no_json_or_say_a_thing_twice_are_400_in_both_shapes() {
    let knack = with_script(ECHO).await;
    for body in [
        "",
        "{",
        "[]",
        "{\"messages\":[],\"messages\":[]}",
        "\u{0}",
        "{\"a\": \"\\ud800\"",
        "{\"messages\": 5, \"model\": \"m\"",
    ] {
        let answer = knack.send(knack.chat(&json!({})).body(body)).await;
        assert_eq!(answer.status, 400, "{body:?}: {}", answer.text);
        assert!(answer.json()["error"]["message"].is_string());
        let answer = knack.send(knack.messages(&json!({})).body(body)).await;
        assert_eq!(
            (answer.status, answer.json()["type"].clone()),
            (400, json!("error")),
            "{body:?}"
        );
    }
    assert!(knack.mock.handle.requests().is_empty(), "nothing of it went upstream");
    let deep = format!("{{\"messages\":{}{}}}", "[".repeat(500), "]".repeat(500));
    assert_eq!(knack.send(knack.chat(&json!({})).body(deep)).await.status, 400);
}

#[tokio::test]
async fn a_models_name_as_long_as_a_body_is_cut_in_the_log_and_not_upstream() {
    let knack = with_script(ECHO).await;
    let model = "m".repeat(1 << 20);
    let body = json!({"model": model, "messages": [{"role": "user", "content": "hi"}]});
    assert_eq!(knack.send(knack.chat(&body)).await.status, 200);
    let line = knack.told("200 chat mmm").await;
    assert!(line.len() < 1 << 10, "{} bytes", line.len());
    let sent: serde_json::Value = serde_json::from_slice(&knack.mock.handle.requests()[0].body).unwrap();
    assert_eq!(sent["model"], model);
}

#[tokio::test]
async fn a_body_over_32_mib_is_413() {
    let knack = with_script(ECHO).await;
    let answer = knack
        .send(knack.chat(&json!({})).body(vec![b' '; (32 << 20) + 1]))
        .await;
    assert_eq!(
        (answer.status, answer.headers["x-should-retry"].to_str().unwrap()),
        (413, "false")
    );
}

#[tokio::test]
async fn web_pages_and_foreign_hosts_are_refused_before_anything_is_read() {
    let knack = with_script(ECHO).await;
    let body = json!({"model": "m", "messages": []});
    for (name, value) in [
        ("host", "evil.example"),
        ("origin", "https://evil.example"),
        ("origin", "null"),
        ("sec-fetch-site", "cross-site"),
    ] {
        let answer = knack.send(knack.chat(&body).header(name, value)).await;
        assert_eq!(answer.status, 403, "{name}: {value}");
    }
    let health = knack
        .send(
            client()
                .get(format!("{}/healthz", knack.url))
                .header("host", "evil.example"),
        )
        .await;
    assert_eq!(health.status, 403);
    assert!(knack.mock.handle.requests().is_empty());
}

#[tokio::test]
async fn websockets_and_unknown_endpoints_of_ours_are_refused_plainly() {
    let knack = with_script(ECHO).await;
    let upgrade = |protocol: &str| {
        client()
            .get(format!("{}/gw/v1/responses/", knack.url))
            .header("connection", "upgrade")
            .header("upgrade", protocol)
    };
    for protocol in ["websocket", "WebSocket", "h2c, websocket"] {
        let refused = knack.send(upgrade(protocol)).await;
        assert_eq!(refused.status, 426, "{protocol}");
        let error = &refused.json()["error"];
        let text = error["message"].as_str().unwrap();
        assert!(
            text.contains("switch the client's websocket mode off"),
            "{protocol}: {error}"
        );
    }
    let unknown = knack
        .send(client().get(format!("{}/knack/v1/nothing", knack.url)))
        .await;
    assert_eq!(unknown.status, 404);
    assert!(unknown.text.contains("/knack/v1/nothing"));
}

/// As the HTTP client of Java's standard library does with every request without TLS.
#[tokio::test]
async fn an_offer_to_speak_http_2_is_left_aside() {
    let knack = with_script(ECHO).await;
    let offered = client()
        .get(format!("{}/v1/models", knack.url))
        .header("connection", "Upgrade, HTTP2-Settings")
        .header("upgrade", "h2c")
        .header("http2-settings", "AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA");
    let plain = knack.send(client().get(format!("{}/v1/models", knack.url))).await;
    assert_eq!(knack.send(offered).await.status, plain.status);
    let requests = knack.mock.handle.requests();
    assert_eq!(requests.len(), 2, "both arrive");
    for (name, value) in &requests[1].headers {
        assert!(
            !["upgrade", "http2-settings"].contains(&name.as_str()),
            "{name}: {value}"
        );
    }
}

/// They are of the connection: what is behind the gateway takes none.
#[tokio::test]
async fn tunnels_and_traces_are_refused_and_go_nowhere() {
    let knack = start(Start {
        script: ECHO.to_owned(),
        on_cluster: true,
        ..Start::default()
    })
    .await;
    for line in [
        "CONNECT example.com:443",
        "CONNECT /v1/models",
        "TRACE /v1/models",
        "TRACE /healthz",
    ] {
        let mut stream = tokio::net::TcpStream::connect(knack.url.trim_start_matches("http://"))
            .await
            .unwrap();
        let head = format!("{line} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 405 "), "{line}: {answer}");
        for part in [
            "\r\nallow: GET, ",
            "\r\nx-knack-request-id: ",
            "{\"error\":{\"message\":\"",
        ] {
            assert!(answer.contains(part), "{line}: {part}: {answer}");
        }
    }
    assert!(knack.mock.handle.requests().is_empty());
}
