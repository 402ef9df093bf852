//! Calls that their client gives up: by its connection, or by a message.

use std::sync::Arc;

use knack_execution::{ExecutionStatus, Executor};
use serde_json::{Value, json};

use super::{Observed, Running, Start, read, request, send, skills, start};

/// A gateway whose runs are watched.
pub(super) async fn watched(observed: &Arc<Observed>) -> Running {
    let executor = Arc::clone(observed) as Arc<dyn Executor>;
    let skills = skills();
    start(Start {
        skills,
        executor,
        ..Start::default()
    })
    .await
}

#[tokio::test]
async fn a_client_that_leaves_ends_its_run() {
    let observed = Observed::new().await;
    let knack = watched(&observed).await;
    // To its end it would be a success.
    let params = json!({"name": "run_code", "arguments": {"code": "import time\ntime.sleep(50)"}});
    let leaving = tokio::spawn(request(&knack, "tools/call", &params).send());
    let run = observed.running_after(0).await;
    leaving.abort();
    let line = knack.told("499 mcp run_code").await;
    assert!(line.contains("client left") && !line.contains("tools/call"), "{line}");
    assert_eq!(observed.ended(&run).await, Some(ExecutionStatus::Error));
}

/// As clients send it that keep the connection of a request that they give up, such as the TypeScript SDK.
#[tokio::test]
async fn a_client_that_cancels_a_request_ends_its_run_and_no_other_clients() {
    let observed = Observed::new().await;
    let knack = watched(&observed).await;
    let params =
        json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}});
    let mut sessions = Vec::new();
    for _ in 0..2 {
        let opened = send(request(&knack, "initialize", &params)).await;
        sessions.push(opened.headers["mcp-session-id"].clone());
    }
    assert_ne!(sessions[0], sessions[1]);
    let params = json!({"name": "run_code", "arguments": {"code": "import time\ntime.sleep(50)"}});
    let call = request(&knack, "tools/call", &params).header("mcp-session-id", &sessions[0]);
    let running = tokio::spawn(call.send());
    let run = observed.running_after(0).await;
    let cancel = async |session: Option<&reqwest::header::HeaderValue>, id: Value| {
        let message =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id, "reason": "r"}});
        let mut request = request(&knack, "", &Value::Null).body(message.to_string());
        if let Some(session) = session {
            request = request.header("mcp-session-id", session);
        }
        let answer = send(request).await;
        assert_eq!((answer.status, answer.text.as_str()), (202, ""));
    };
    // Another client of the same credential numbers its requests alike.
    cancel(Some(&sessions[1]), json!(7)).await;
    cancel(None, json!(7)).await;
    cancel(Some(&sessions[0]), json!(8)).await;
    cancel(Some(&sessions[0]), json!("7")).await;
    assert!(!running.is_finished());
    cancel(Some(&sessions[0]), json!(7)).await;
    let answer = read(running.await.unwrap().unwrap()).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let (id, error) = (answer.json()["id"].clone(), answer.json()["error"].clone());
    assert_eq!((id, &error["code"]), (json!(7), &json!(-32_000)), "{error}");
    assert_eq!(observed.ended(&run).await, Some(ExecutionStatus::Error));
    knack.told("499 mcp run_code").await;
}
