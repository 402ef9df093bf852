//! A provider with fixed answers, which records the trace headers that it gets.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http::{HeaderMap, StatusCode, header};
use serde_json::{Value, json};

/// A running provider.
pub(crate) struct Provider {
    pub(crate) url: String,
    pub(crate) port: String,
    state: Arc<ReceivedRequest>,
}

struct ReceivedRequest {
    secret: &'static str,
    traceparents: Mutex<Vec<Option<String>>>,
}

impl ReceivedRequest {
    fn note(&self, headers: &HeaderMap) {
        let value = headers
            .get("traceparent")
            .map(|value| value.to_str().unwrap().to_owned());
        self.traceparents.lock().unwrap().push(value);
    }
}

impl Provider {
    /// Whose answers and calls hold the secret.
    pub(crate) async fn start(secret: &'static str) -> Self {
        let state = Arc::new(ReceivedRequest {
            secret,
            traceparents: Mutex::default(),
        });
        let router = Router::new()
            .route("/v1/chat/completions", post(chat))
            .route("/v1/messages", post(messages))
            .with_state(Arc::clone(&state));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self {
            url: format!("http://{address}"),
            port: address.port().to_string(),
            state,
        }
    }

    /// The header of each request, in order.
    pub(crate) fn traceparents(&self) -> Vec<Option<String>> {
        self.state.traceparents.lock().unwrap().clone()
    }
}

/// Asked to run: a call first, and an answer when its result is there. The model "busy" is busy.
async fn chat(State(seen): State<Arc<ReceivedRequest>>, headers: HeaderMap, body: Bytes) -> Response {
    seen.note(&headers);
    let body: Value = serde_json::from_slice(&body).unwrap();
    if body["model"] == "busy" {
        let error = json!({"error": {"message": "later", "type": "rate_limit"}});
        return (StatusCode::TOO_MANY_REQUESTS, axum::Json(error)).into_response();
    }
    let messages = body["messages"].to_string();
    let answered = messages.contains("\"role\":\"tool\"");
    let (id, input, reason, message) = if messages.contains("run ") && !answered {
        let arguments = json!({"code": format!("print('{}')", seen.secret)}).to_string();
        let call =
            json!({"id": "call_1", "type": "function", "function": {"name": "run_code", "arguments": arguments}});
        let message = json!({"role": "assistant", "content": null, "tool_calls": [call]});
        ("chatcmpl-1", 10, "tool_calls", message)
    } else {
        let message = json!({"role": "assistant", "content": format!("It says {}.", seen.secret)});
        ("chatcmpl-2", 20, "stop", message)
    };
    axum::Json(json!({
        "id": id, "object": "chat.completion", "created": 1, "model": "gpt-x-2026",
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": {"prompt_tokens": input, "completion_tokens": 5, "total_tokens": input + 5},
    }))
    .into_response()
}

async fn messages(State(seen): State<Arc<ReceivedRequest>>, headers: HeaderMap) -> Response {
    seen.note(&headers);
    let events = [
        json!({"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x-1",
            "content": [], "stop_reason": null, "stop_sequence": null,
            "usage": {"input_tokens": 3, "cache_read_input_tokens": 10, "output_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello."}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": null}, "usage": {"output_tokens": 2}}),
        json!({"type": "message_stop"}),
    ];
    let frames: String = events
        .iter()
        .map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()))
        .collect();
    ([(header::CONTENT_TYPE, "text/event-stream")], frames).into_response()
}
