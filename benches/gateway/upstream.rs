//! The upstream: answers from memory, as fast as a server in this process can.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::serve::ListenerExt;
use bytes::Bytes;
use serde_json::{Value, json};

use super::wire::Wire;

/// A running upstream.
#[derive(Debug)]
pub(crate) struct Upstream {
    /// Base URL.
    pub url: String,
    last: Arc<Mutex<Bytes>>,
}

/// A request with this text is answered by the beginning of a stream that does not go on.
pub(crate) const WAIT: &str = "say one word and wait";
/// A request with this text is answered by a call of `load_skill` first, so that the gateway has something to remember.
const FILL: &str = "fill the turn store";
/// Bytes of one remembered turn: near the cap of a saved turn, so that few requests fill the store.
const FILL_TEXT: usize = 200 << 10;
/// Requests that fill the 4 MiB of a sidecar's store, with room to spare.
const FILL_REQUESTS: usize = 30;

impl Upstream {
    /// Starts it on a free loopback port.
    pub(crate) async fn start() -> Self {
        let last = Arc::new(Mutex::new(Bytes::new()));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a loopback port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
        let app = Router::new().fallback(answer).with_state(Arc::clone(&last));
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { url, last }
    }

    /// The system text that the gateway adds: what the floor has to add as well.
    pub(crate) async fn learn_system_text(&self, gateway: &str) -> String {
        post(
            gateway,
            json!({"model": "bench", "messages": [{"role": "user", "content": "hello"}]}),
        )
        .await;
        let body = self.last.lock().expect("no panic holds it").clone();
        let value: Value = serde_json::from_slice(&body).expect("the gateway sends JSON");
        let text = value["messages"][0]["content"]
            .as_str()
            .expect("a system text was added");
        assert!(text.contains("skill-099"), "100 skills are listed");
        text.to_owned()
    }

    /// Fills the saved turn store of the bench's caller.
    pub(crate) async fn fill_records(&self, gateway: &str) {
        for n in 0..FILL_REQUESTS {
            post(
                gateway,
                json!({"model": "bench", "messages": [{"role": "user", "content": format!("{FILL} {n}")}]}),
            )
            .await;
        }
    }
}

async fn post(base: &str, body: Value) {
    let response = reqwest::Client::new()
        .post(format!("{base}/v1/chat/completions"))
        .bearer_auth("bench")
        .header("content-type", "application/json")
        .body(body.to_string())
        .send()
        .await;
    let response = response.expect("the gateway answers");
    assert!(
        response.status().is_success(),
        "{}",
        response.text().await.unwrap_or_default()
    );
    response.bytes().await.expect("a whole answer");
}

async fn answer(State(last): State<Arc<Mutex<Bytes>>>, uri: http::Uri, body: Bytes) -> Response {
    let wire = Wire::of_path(uri.path());
    let streams =
        uri.path().ends_with(":streamGenerateContent") || memchr::memmem::find(&body, b"\"stream\":true").is_some();
    let fills = body.len() < 64 << 10 && memchr::memmem::find(&body, FILL.as_bytes()).is_some();
    if body.len() < 64 << 10 && memchr::memmem::find(&body, WAIT.as_bytes()).is_some() {
        return waiting_answer(wire);
    }
    if fills && memchr::memmem::find(&body, b"\"role\":\"tool\"").is_none() {
        return json_answer(&fill_turn());
    }
    *last.lock().expect("no panic holds it") = body;
    if streams {
        stream_answer(wire)
    } else {
        json_answer(&wire.answer(TEXT).to_string())
    }
}

const TEXT: &str = "Sales rose by four percent in the last quarter, most of it in the north.";

fn fill_turn() -> String {
    let call = json!({"id": "call_aaaaaaaaaaaaaaaaaaaaaaaa", "type": "function", "function": {"name": "load_skill", "arguments": "{\"skill\":\"skill-001\"}"}});
    let message = json!({"role": "assistant", "content": "x".repeat(FILL_TEXT), "tool_calls": [call]});
    json!({"id": "chatcmpl-fill", "object": "chat.completion", "created": 1_763_760_000, "model": "bench",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}], "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}})
    .to_string()
}

fn json_answer(text: &str) -> Response {
    ([(http::header::CONTENT_TYPE, "application/json")], text.to_owned()).into_response()
}

/// The first events of a stream, and nothing behind them.
fn waiting_answer(wire: Wire) -> Response {
    let events = wire.stream(&["word".to_owned()]).into_iter().take(2).map(Bytes::from);
    let begun = futures::stream::iter(events.map(Ok::<_, std::convert::Infallible>));
    let body = Body::from_stream(futures::StreamExt::chain(begun, futures::stream::pending()));
    ([(http::header::CONTENT_TYPE, "text/event-stream; charset=utf-8")], body).into_response()
}

/// A short stream of eight pieces of text, each event as one provider write.
fn stream_answer(wire: Wire) -> Response {
    let words: Vec<String> = (0..8).map(|n| format!("word {n} ")).collect();
    let events = wire.stream(&words).into_iter().map(Bytes::from);
    let body = Body::from_stream(futures::stream::iter(events.map(Ok::<_, std::convert::Infallible>)));
    ([(http::header::CONTENT_TYPE, "text/event-stream; charset=utf-8")], body).into_response()
}
