//! A shared gateway that holds the providers' keys: it authenticates its clients, and no token leaves it.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::routing::post;
use cluster_support::run;
use http::HeaderMap;
use serde_json::json;

use super::support::{Installation, Process, SOON, free_port, listening};

/// A provider that remembers the headers it got.
async fn provider() -> (u16, Arc<Mutex<Vec<HeaderMap>>>) {
    let seen: Arc<Mutex<Vec<HeaderMap>>> = Arc::default();
    let answer = async |State(seen): State<Arc<Mutex<Vec<HeaderMap>>>>, headers: HeaderMap| {
        seen.lock().unwrap().push(headers);
        axum::Json(json!({
            "id": "c", "object": "chat.completion", "created": 1, "model": "m",
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hello"}}],
        }))
    };
    let router = axum::Router::new()
        .route("/v1/chat/completions", post(answer))
        .with_state(Arc::clone(&seen));
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move { axum::serve(listener, router).await });
    (port, seen)
}

/// The answer to a client that shows this. 503: the API server had no time to look at it, so it is asked again.
async fn ask(port: u16, header: &str, value: &str) -> (u16, String) {
    let begun = Instant::now();
    loop {
        match ask_once(port, header, value).await {
            (503, _) if begun.elapsed() < SOON => tokio::time::sleep(Duration::from_millis(500)).await,
            answer => return answer,
        }
    }
}

async fn ask_once(port: u16, header: &str, value: &str) -> (u16, String) {
    let response = reqwest::Client::new()
        .post(format!("http://127.0.0.1:{port}/v1/chat/completions"))
        .header(header, value)
        .header("x-knack-client", "kube-system/admin/1")
        .header("content-type", "application/json")
        .timeout(SOON)
        .body(json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).to_string())
        .send()
        .await
        .unwrap();
    (response.status().as_u16(), response.text().await.unwrap())
}

#[test]
fn clients_show_a_token_and_the_provider_sees_the_operators_key_only() {
    run(
        "clients_show_a_token_and_the_provider_sees_the_operators_key_only",
        async |cluster| {
            let installation = Installation::start(cluster, 1, json!({})).await;
            let tenant = installation.tenants[0].name().to_owned();
            let folder = installation.folder.path().to_owned();
            let keys = folder.join("keys");
            std::fs::create_dir(&keys).unwrap();
            std::fs::write(keys.join("openai"), "operators-key\n").unwrap();
            std::fs::write(
                folder.join("token"),
                installation.token(&tenant, "default", "knack").await,
            )
            .unwrap();
            let ((upstream, seen), port) = (provider().await, free_port());
            let words = [
                "gateway".to_owned(),
                format!("--listen=127.0.0.1:{port}"),
                format!("--hub={}", installation.url()),
                format!("--hub-ca={}", installation.authorities_file().display()),
                format!("--token-file={}", folder.join("token").display()),
                format!("--runtime={}", installation.runtime()),
                format!("--upstream-openai=http://127.0.0.1:{upstream}"),
                format!("--provider-keys-dir={}", keys.display()),
                "--client-auth=token-review".to_owned(),
                "--metrics-listen=127.0.0.1:0".to_owned(),
            ];
            let _gateway = Process::start(cluster, &folder, "gateway", &words);
            listening(port).await;
            let client = installation.token(&tenant, "default", "knack-gateway").await;
            let for_hub = installation.token(&tenant, "default", "knack").await;
            let stranger = installation
                .token(&installation.system, "default", "knack-gateway")
                .await;
            for (header, value) in [
                ("x-nothing", "x".to_owned()),
                ("authorization", "Bearer sk-own-key".to_owned()),
                ("authorization", format!("Bearer {for_hub}")),
                ("authorization", format!("Bearer {stranger}")),
            ] {
                let (status, body) = ask(port, header, &value).await;
                assert_eq!(status, 401, "{header}: {body}");
            }
            assert!(
                seen.lock().unwrap().is_empty(),
                "nothing of a stranger reaches the provider"
            );
            for (header, value) in [
                ("authorization", format!("Bearer {client}")),
                ("x-knack-token", client.clone()),
            ] {
                let (status, body) = ask(port, header, &value).await;
                assert_eq!(status, 200, "{header}: {body}");
            }
            let seen = seen.lock().unwrap();
            assert_eq!(seen.len(), 2);
            for headers in seen.iter() {
                assert_eq!(headers["authorization"], "Bearer operators-key");
                assert!(
                    // The provider of this test is on the gateway's machine, and gets its mark.
                    headers
                        .keys()
                        .all(|name| !name.as_str().starts_with("x-knack") || name == "x-knack-hop"),
                    "{headers:?}"
                );
                assert!(!format!("{headers:?}").contains(&client));
            }
        },
    );
}

/// Anyone who reaches an open port could use the operator's key.
#[test]
fn a_key_on_an_open_listener_without_client_authentication_is_refused_at_start() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("anthropic"), "key").unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_knack"))
        .args([
            "gateway",
            "--listen=0.0.0.0:0",
            "--hub=https://127.0.0.1:1",
            "--hub-ca=/none",
            "--runtime=a/b",
        ])
        .arg(format!("--provider-keys-dir={}", folder.path().display()))
        .output()
        .unwrap();
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        text.contains("anthropic") && text.contains("--client-auth token-review"),
        "{text}"
    );
}
