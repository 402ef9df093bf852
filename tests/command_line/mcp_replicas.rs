//! A client of MCP whose requests arrive at two replicas of a gateway: what it cancels at one ends where it runs.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{delete, get, post, put};
use axum::{Json, Router};
use futures::StreamExt as _;
use http::StatusCode;
use knack_hub_api::{
    AcceptedFrame, ExecutionFrame, ExecutionPost, KeptHello, KeptKey, KeptLine, KeptValue, PROTOCOL, read_keys,
};
use serde_json::{Value, json};
use tokio::sync::broadcast;

use super::gateway::{Gateway, client};
use super::saved_catalog::{cluster, until};

/// What a hub keeps for the replicas of a gateway, and runs that never end by themselves.
#[derive(Clone)]
struct Owner {
    news: broadcast::Sender<KeptValue>,
    /// Method and id of each request about a run.
    asked: Arc<Mutex<Vec<String>>>,
    /// Whether the replicas have no link.
    is_away: Arc<AtomicBool>,
}

impl Owner {
    fn new() -> Self {
        Self {
            news: broadcast::channel(16).0,
            asked: Arc::default(),
            is_away: Arc::default(),
        }
    }

    fn routes(&self) -> Router {
        Router::new()
            .route("/v1/kept", get(follow))
            .route("/v1/kept/{client}/{keys}", put(keep))
            .route("/v1/executions", post(run))
            .route("/v1/executions/{id}", delete(end))
            .with_state(self.clone())
    }

    fn note(&self, method: &str, id: &str) {
        self.asked.lock().unwrap().push(format!("{method} {id}"));
    }

    fn is_away(&self) -> bool {
        self.is_away.load(Ordering::SeqCst)
    }

    /// Ids of runs that were asked for by a method, each once: what is not answered in time is sent again.
    fn of(&self, method: &str) -> BTreeSet<String> {
        let asked = self.asked.lock().unwrap();
        let ids = asked.iter().filter_map(|line| line.strip_prefix(method));
        ids.map(|id| id.trim().to_owned()).collect()
    }
}

fn line(value: &impl serde::Serialize) -> Bytes {
    Bytes::from(serde_json::to_string(value).unwrap() + "\n")
}

async fn follow(State(owner): State<Owner>) -> Response {
    if owner.is_away() {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    let secret = KeptKey([5; 32]);
    let first = [KeptLine::Hello(KeptHello { secret }), KeptLine::Synced];
    let news = futures::stream::unfold((owner.news.subscribe(), owner), |(mut news, owner)| async move {
        let next = tokio::time::timeout(Duration::from_secs(1), news.recv()).await;
        let next = match next {
            Ok(value) => KeptLine::Kept(value.ok()?),
            Err(_) if owner.is_away() => return None,
            Err(_) => KeptLine::Ping,
        };
        Some((line(&next), (news, owner)))
    });
    let first = futures::stream::iter(first.map(|next| line(&next)));
    Body::from_stream(first.chain(news).map(Ok::<_, Infallible>)).into_response()
}

async fn keep(State(owner): State<Owner>, Path((client, keys)): Path<(String, String)>, sealed: Bytes) -> StatusCode {
    if owner.is_away() {
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    let value = KeptValue {
        client: client.parse().unwrap(),
        keys: read_keys(&keys).unwrap(),
        opening: None,
        bytes: sealed.len() as u64,
    };
    // It is no error if there is no receiver.
    let _ = owner.news.send(value);
    StatusCode::NO_CONTENT
}

async fn run(State(owner): State<Owner>, Json(post): Json<ExecutionPost>) -> Response {
    owner.note("POST", &post.id);
    let accepted = ExecutionFrame::Accepted(AcceptedFrame {
        protocol: PROTOCOL,
        id: post.id,
    });
    let lines = futures::stream::iter([line(&accepted)]).chain(futures::stream::pending());
    Body::from_stream(lines.map(Ok::<_, Infallible>)).into_response()
}

async fn end(State(owner): State<Owner>, Path(id): Path<String>) -> StatusCode {
    owner.note("DELETE", &id);
    StatusCode::NO_CONTENT
}

/// A message to `/mcp` of a client with a credential, within a session if it has one.
fn message(gateway: &Gateway, key: &str, session: Option<&str>, body: &Value) -> reqwest::RequestBuilder {
    let url = gateway.url.strip_suffix("/v1").unwrap();
    let request = client()
        .post(format!("{url}/mcp"))
        .bearer_auth(key)
        .header("accept", "application/json, text/event-stream")
        .header("content-type", "application/json")
        .header("mcp-protocol-version", "2025-06-18")
        .body(body.to_string());
    match session {
        Some(session) => request.header("mcp-session-id", session),
        None => request,
    }
}

/// The id of a new session of the client `sk-a`.
async fn session(gateway: &Gateway) -> String {
    let params =
        json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}});
    let body = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
    let opened = message(gateway, "sk-a", None, &body).send().await.unwrap();
    opened.headers()["mcp-session-id"].to_str().unwrap().to_owned()
}

async fn cancel(gateway: &Gateway, key: &str, session: &str, id: u64) {
    let params = json!({"requestId": id, "reason": "r"});
    let body = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
    let answer = message(gateway, key, Some(session), &body).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::ACCEPTED);
}

/// Waits until a gateway serves the skill and is linked, or is not.
async fn linked(gateway: &Gateway, is_linked: bool) {
    until(
        "the skill is served, and the link is as it is meant to be",
        async || {
            let (_, metrics) = gateway.probe("metrics").await;
            let expected = format!("\nknack_gateway_kept_linked {}\n", u8::from(is_linked));
            metrics.contains(&expected) && gateway.ready().await.1.contains("skills=1")
        },
    )
    .await;
}

#[tokio::test]
async fn a_call_is_cancelled_once_the_link_is_back_that_was_down() {
    let (folder, model, mut hub) = cluster(&[("token", "a token")]).await;
    let owner = Owner::new();
    hub.more = owner.routes();
    hub.start();
    let start = || Gateway::start(folder.path(), &model.url, &hub.url, &[("KNACK_MCP", "true")]);
    let (mut one, mut other) = (start(), start());
    for gateway in [&mut one, &mut other] {
        gateway.healthy().await;
        linked(gateway, true).await;
    }
    let session = session(&other).await;
    let params = json!({"name": "run_code", "arguments": {"code": "import time\ntime.sleep(60)"}});
    let body = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params});
    let call = tokio::spawn(message(&one, "sk-a", Some(&session), &body).send());
    until("it runs", async || owner.of("POST").len() == 1).await;
    owner.is_away.store(true, Ordering::SeqCst);
    for gateway in [&one, &other] {
        linked(gateway, false).await;
    }
    cancel(&other, "sk-a", &session, 7).await;
    assert_eq!(owner.of("DELETE").len(), 0);
    owner.is_away.store(false, Ordering::SeqCst);
    until("the run is ended", async || owner.of("DELETE").len() == 1).await;
    assert_eq!(call.await.unwrap().unwrap().status(), 200);
}

#[tokio::test]
async fn a_call_is_cancelled_at_another_replica_than_the_one_that_serves_it() {
    let (folder, model, mut hub) = cluster(&[("token", "a token")]).await;
    let owner = Owner::new();
    hub.more = owner.routes();
    hub.start();
    let start = || Gateway::start(folder.path(), &model.url, &hub.url, &[("KNACK_MCP", "true")]);
    let (mut one, mut other) = (start(), start());
    for gateway in [&mut one, &mut other] {
        gateway.healthy().await;
        linked(gateway, true).await;
    }
    let session = session(&other).await;
    let call = |id: u64| {
        let params = json!({"name": "run_code", "arguments": {"code": "import time\ntime.sleep(60)"}});
        let body = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
        tokio::spawn(message(&one, "sk-a", Some(&session), &body).send())
    };
    let (first, second) = (call(7), call(8));
    until("both run", async || owner.of("POST").len() == 2).await;
    // Another client, another session, another request.
    cancel(&other, "sk-b", &session, 7).await;
    cancel(&other, "sk-a", "6f0c2d43-6f6f-4b86-b0a5-6b8ab1b3a9c1", 7).await;
    cancel(&other, "sk-a", &session, 9).await;
    cancel(&other, "sk-a", &session, 7).await;
    let answer = first.await.unwrap().unwrap();
    assert_eq!(answer.status(), 200);
    let answer: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(7), &json!(-32_000)));
    until("the run is ended", async || owner.of("DELETE").len() == 1).await;
    assert!(!second.is_finished(), "the other request goes on");
    assert!(owner.of("DELETE").is_subset(&owner.of("POST")));
    cancel(&other, "sk-a", &session, 8).await;
    second.await.unwrap().unwrap();
    until("both are ended", async || owner.of("DELETE").len() == 2).await;
    // What the replicas tell each other of this is no value that a conversation could ask for.
    for gateway in [&one, &other] {
        let (_, metrics) = gateway.probe("metrics").await;
        assert!(metrics.contains("\nknack_gateway_kept_known 0\n"), "{metrics}");
    }
}
