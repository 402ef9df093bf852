//! Clients that leave, and a gateway that stops.

use std::time::Duration;

use futures::StreamExt;
use serde_json::{Value, json};

use super::support::{with_sandbox, with_script};

fn chat(text: &str, stream: bool) -> Value {
    json!({"model": "gpt-x", "stream": stream, "messages": [{"role": "user", "content": text}]})
}

#[tokio::test]
async fn a_client_that_leaves_in_mid_loop_ends_its_run() {
    let script = "turns:\n  - rounds:\n      - reply: {calls: [{tool: run_code, arguments: {code: 'import time; time.sleep(9)'}}]}\n      - reply: {text: never}\n";
    let knack = with_sandbox(script).await;
    let leaving = tokio::spawn(knack.chat(&chat("go", false)).send());
    tokio::time::sleep(Duration::from_millis(700)).await;
    leaving.abort();
    let line = knack.told("client left").await;
    assert!(line.starts_with("499"), "{line}");
    assert_eq!(knack.mock.handle.requests().len(), 1, "no second round");
}

#[tokio::test]
async fn a_stop_finishes_running_streams_and_turns_new_traffic_away() {
    let script = "turns:\n  - rounds:\n      - reply: {text: one two three four five six seven eight nine ten}\n        stream: {delay_ms: 60}\n";
    let mut knack = with_script(script).await;
    let response = knack.chat(&chat("go", true)).send().await.unwrap();
    let mut stream = response.bytes_stream();
    let first = stream.next().await.unwrap().unwrap();
    knack.stop.take().unwrap().send(()).unwrap();
    let mut text = String::from_utf8_lossy(&first).into_owned();
    while let Some(chunk) = stream.next().await {
        text.push_str(&String::from_utf8_lossy(&chunk.unwrap()));
    }
    assert!(text.contains("[DONE]"), "{text}");
    assert!(knack.gateway.is_draining());
    tokio::time::timeout(Duration::from_secs(10), &mut knack.server)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
}
