//! The I/O edge of the mock: an axum router, and ways to run it.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::serve::ListenerExt as _;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::completion::{self, Stamp};
use super::delivery;
use super::log::{MockHandle, RecordedRequest};
use super::received::Received;
use super::render;
use super::render::chat::StreamOptions;
use super::route::{self, Route};
use super::rules::{self, Refusal, Subject};
use super::script::{Delivery, Fail, FormatName, Script, Step};
use super::select;

/// Largest request body in bytes, as the gateway's own limit.
const MAX_BODY_BYTES: usize = 32 * 1024 * 1024;
/// Most keys of failures with `times` that are counted; a script with more starts to count anew.
const MAX_COUNTED_FAILURES: usize = 10_000;

/// Gives seconds since 1970.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// A mock provider: a script, a clock, and the little state that it keeps. Clones share everything.
#[derive(Clone)]
pub struct Mock {
    inner: Arc<Inner>,
}

struct Inner {
    script: Arc<Script>,
    clock: Clock,
    handle: MockHandle,
    answers: AtomicU64,
    failed: Mutex<HashMap<(String, Bytes), usize>>,
}

impl std::fmt::Debug for Mock {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Mock")
            .field("handle", &self.inner.handle)
            .finish_non_exhaustive()
    }
}

impl Mock {
    /// A mock with the system's clock.
    pub fn new(script: Arc<Script>) -> Self {
        Self::with_clock(script, Arc::new(system_seconds))
    }

    /// A mock with a clock of the caller's.
    pub fn with_clock(script: Arc<Script>, clock: Clock) -> Self {
        let inner = Inner {
            script,
            clock,
            handle: MockHandle::default(),
            answers: AtomicU64::new(0),
            failed: Mutex::new(HashMap::new()),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Reads what the mock has seen.
    pub fn handle(&self) -> MockHandle {
        self.inner.handle.clone()
    }

    /// The routes, with any path prefix: `…/chat/completions`, `…/messages`, `…/messages/count_tokens`, `…/models`.
    pub fn router(&self) -> Router {
        Router::new().fallback(answer).with_state(self.clone())
    }

    /// Serves on a listener until the future is dropped.
    pub async fn serve(self, listener: TcpListener) -> io::Result<()> {
        // Without this, Nagle's algorithm holds the first event back until the head is acknowledged (40 ms).
        let listener = listener.tap_io(|stream| {
            // A socket that cannot be told this still works, only slower.
            let _ = stream.set_nodelay(true);
        });
        axum::serve(listener, self.router()).await
    }
}

/// The router of a mock with the system's clock.
pub fn router(script: Arc<Script>) -> Router {
    Mock::new(script).router()
}

/// Serves a script on a listener until the future is dropped.
pub async fn serve(script: Arc<Script>, listener: TcpListener) -> io::Result<()> {
    Mock::new(script).serve(listener).await
}

/// A mock that runs on a loopback port of its own; it stops when this value is dropped.
#[derive(Debug)]
pub struct MockServer {
    /// Base URL without `/v1`, for instance `http://127.0.0.1:40123`.
    pub url: String,
    /// Reads what the mock has seen.
    pub handle: MockHandle,
    task: JoinHandle<io::Result<()>>,
}

impl Drop for MockServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Starts a mock on a free loopback port, within the current tokio runtime.
pub async fn spawn(script: Script) -> io::Result<MockServer> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let url = format!("http://{}", listener.local_addr()?);
    let mock = Mock::new(Arc::new(script));
    let handle = mock.handle();
    Ok(MockServer {
        url,
        handle,
        task: tokio::spawn(mock.serve(listener)),
    })
}

fn system_seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

async fn answer(State(mock): State<Mock>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().to_owned();
    let route = route::route(parts.method.as_str(), &path);
    let number = mock.inner.answers.fetch_add(1, Ordering::Relaxed);
    let headers = header_list(&parts.headers);
    let bytes = to_bytes(body, MAX_BODY_BYTES).await;
    let exchange = Exchange {
        mock: &mock.inner,
        number,
        format: format_of(route, &headers),
    };
    let Ok(bytes) = bytes else {
        let message = format!("Request exceeds the maximum size of {MAX_BODY_BYTES} bytes or was cut off");
        return exchange.refuse(&Refusal {
            status: 413,
            kind: route::kind_of(exchange.format, 413),
            ..Refusal::invalid(message)
        });
    };
    mock.inner.handle.record(RecordedRequest {
        method: parts.method.to_string(),
        path: parts.uri.path_and_query().map_or(path, ToString::to_string),
        headers: headers.clone(),
        body: bytes.clone(),
    });
    let answered = match route {
        Route::Models => Ok(exchange.json(&route::models(
            &mock.inner.script.models,
            exchange.format == FormatName::Messages,
        ))),
        Route::Unknown => Err(refusal_of(
            exchange.format,
            404,
            "Not found: the mock serves chat/completions, messages, messages/count_tokens and models",
        )),
        Route::WrongMethod(format) => Err(refusal_of(format, 405, "Method not allowed")),
        Route::CountTokens => exchange.count(&bytes, headers),
        Route::Complete(_) => exchange.complete(&bytes, headers).await,
    };
    answered.unwrap_or_else(|refusal| exchange.refuse(&refusal))
}

/// One request being answered.
struct Exchange<'a> {
    mock: &'a Inner,
    number: u64,
    format: FormatName,
}

impl Exchange<'_> {
    fn count(&self, bytes: &Bytes, headers: Vec<(String, String)>) -> Result<Response, Refusal> {
        let (_, received) = self.receive(bytes, headers, true)?;
        Ok(self.json(&json!({"input_tokens": completion::input_tokens(&received)})))
    }

    async fn complete(&self, bytes: &Bytes, headers: Vec<(String, String)>) -> Result<Response, Refusal> {
        let (body, received) = self.receive(bytes, headers, false)?;
        let (step, key) =
            select::select(&self.mock.script, &received).map_err(|text| self.script_failure("", &text))?;
        if let Some(unmet) = select::unmet(&step.expect, &received) {
            return Err(self.script_failure(&key, &unmet));
        }
        if step.stream.head_ms > 0 {
            tokio::time::sleep(Duration::from_millis(step.stream.head_ms)).await;
        }
        if let Some(fail) = step.fail.as_ref().filter(|fail| self.still_fails(fail, &key, bytes)) {
            return Ok(self.failure(fail));
        }
        self.say(step, &received, &body)
            .map_err(|text| self.script_failure(&key, &text))
    }

    /// Parses a body and applies the rules.
    fn receive(
        &self,
        bytes: &Bytes,
        headers: Vec<(String, String)>,
        counting: bool,
    ) -> Result<(Value, Received), Refusal> {
        if let Some((name, _)) = headers.iter().find(|(name, _)| name.starts_with("x-knack")) {
            return Err(self.script_failure("", &format!("expected no header of the gateway's own, came {name}")));
        }
        let provider = &self.mock.script.provider;
        authorized(provider.api_key.as_deref(), &headers, self.format)?;
        let body = parse(bytes)?;
        let subject = Subject {
            headers: &headers,
            body: &body,
            provider,
            counting,
        };
        rules::check(self.format, &subject).inspect_err(|refusal| {
            self.mock
                .handle
                .refuse(refusal.rule.unwrap_or_default(), refusal.message.clone());
        })?;
        let received = Received::read(self.format, &body, bytes, headers);
        Ok((body, received))
    }

    fn say(&self, step: &Step, received: &Received, body: &Value) -> Result<Response, String> {
        let stamp = Stamp {
            seed: self.mock.script.seed,
            number: self.number,
            created: (self.mock.clock)(),
        };
        let mut said = completion::complete(step, received, stamp)?;
        if self.format == FormatName::Messages && !said.extra.contains_key("container") {
            said.extra
                .extend(container_of(body).map(|container| ("container".to_owned(), container)));
        }
        let delivery = &step.stream;
        if !received.stream {
            let body = match self.format {
                FormatName::Chat => render::chat::body(&said),
                FormatName::Messages => render::messages::body(&said)?,
            };
            return Ok(self.deliver("application/json", &[body.to_string().into_bytes()], delivery));
        }
        let frames = match self.format {
            FormatName::Chat => chat_frames(&said, delivery, StreamOptions::of(body)),
            FormatName::Messages => messages_frames(&said, delivery),
        };
        Ok(self.deliver("text/event-stream; charset=utf-8", &frames, delivery))
    }

    fn deliver(&self, content_type: &'static str, frames: &[Vec<u8>], delivery: &Delivery) -> Response {
        let mut response = Response::new(delivery::body_of(delivery::plan(frames, delivery)));
        self.set_headers(&mut response, content_type);
        response
    }

    /// Counts failures that end after some tries; the same body on the same step is the same try.
    fn still_fails(&self, fail: &Fail, key: &str, bytes: &Bytes) -> bool {
        let Some(times) = fail.times else { return true };
        let mut failed = self.mock.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if failed.len() >= MAX_COUNTED_FAILURES {
            failed.clear();
        }
        let tries = failed.entry((key.to_owned(), bytes.clone())).or_insert(0);
        *tries += 1;
        *tries <= times
    }

    fn failure(&self, fail: &Fail) -> Response {
        let (body, content_type) = match (&fail.raw_body, &fail.body) {
            (Some(raw), _) => (raw.clone(), "text/html; charset=utf-8"),
            (None, Some(body)) => (body.to_string(), "application/json"),
            (None, None) => {
                let kind = route::kind_of(self.format, fail.status);
                let message = fail
                    .message
                    .clone()
                    .unwrap_or_else(|| format!("The script answers {}.", fail.status));
                let mut body = route::error_body(self.format, &Refusal::invalid(message), &self.request_id());
                body["error"]["type"] = json!(fail.kind.as_deref().unwrap_or(kind));
                (body.to_string(), "application/json")
            }
        };
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = StatusCode::from_u16(fail.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        self.set_headers(&mut response, content_type);
        let seconds = fail
            .retry_after
            .as_ref()
            .map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
        let retry_after = seconds.as_ref().map(|value| ("retry-after", value.as_str()));
        let more = fail.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in retry_after.into_iter().chain(more) {
            if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
                response.headers_mut().insert(name, value);
            }
        }
        response
    }

    /// Records a failure of the script's expectations and makes the 400 of it.
    fn script_failure(&self, key: &str, text: &str) -> Refusal {
        let message = if key.is_empty() {
            format!("script: {text}")
        } else {
            format!("script: {key}: {text}")
        };
        self.mock.handle.fail(message.clone());
        Refusal::invalid(message)
    }

    fn refuse(&self, refusal: &Refusal) -> Response {
        let body = route::error_body(self.format, refusal, &self.request_id());
        let mut response = self.json(&body);
        *response.status_mut() = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::BAD_REQUEST);
        if let Some(rule) = refusal.rule {
            response
                .headers_mut()
                .insert(HeaderName::from_static("x-mock-rule"), HeaderValue::from_static(rule));
        }
        response
    }

    fn json(&self, body: &Value) -> Response {
        let mut response = Response::new(Body::from(body.to_string()));
        self.set_headers(&mut response, "application/json");
        response
    }

    fn set_headers(&self, response: &mut Response, content_type: &'static str) {
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        if content_type.starts_with("text/event-stream") {
            headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        }
        let name = match self.format {
            FormatName::Chat => HeaderName::from_static("x-request-id"),
            FormatName::Messages => HeaderName::from_static("request-id"),
        };
        if let Ok(id) = HeaderValue::try_from(self.request_id()) {
            headers.insert(name, id);
        }
    }

    fn request_id(&self) -> String {
        format!("req_mock{}x{}", self.mock.script.seed, self.number)
    }
}

/// The dialect of a route; paths of both are told apart by the version header.
fn format_of(route: Route, headers: &[(String, String)]) -> FormatName {
    match route {
        Route::Complete(format) | Route::WrongMethod(format) => format,
        Route::CountTokens => FormatName::Messages,
        Route::Models | Route::Unknown if headers.iter().any(|(name, _)| name == "anthropic-version") => {
            FormatName::Messages
        }
        Route::Models | Route::Unknown => FormatName::Chat,
    }
}

fn header_list(headers: &HeaderMap) -> Vec<(String, String)> {
    headers
        .iter()
        .map(|(name, value)| {
            (
                name.as_str().to_owned(),
                String::from_utf8_lossy(value.as_bytes()).into_owned(),
            )
        })
        .collect()
}

fn refusal_of(format: FormatName, status: u16, message: &str) -> Refusal {
    Refusal {
        status,
        kind: route::kind_of(format, status),
        ..Refusal::invalid(message)
    }
}

fn authorized(key: Option<&str>, headers: &[(String, String)], format: FormatName) -> Result<(), Refusal> {
    let Some(key) = key else { return Ok(()) };
    let bearer = format!("Bearer {key}");
    let holds = headers.iter().any(|(name, value)| {
        (name == "authorization" && *value == bearer)
            || (format == FormatName::Messages && name == "x-api-key" && value == key)
    });
    if holds {
        return Ok(());
    }
    let code = (format == FormatName::Chat).then_some("invalid_api_key");
    Err(Refusal {
        code,
        ..refusal_of(format, 401, "Incorrect API key provided.")
    })
}

/// Parses a body: one JSON object whose top-level members occur once.
fn parse(bytes: &[u8]) -> Result<Value, Refusal> {
    let body: Value = serde_json::from_slice(bytes)
        .map_err(|error| Refusal::invalid(format!("We could not parse the JSON body of your request: {error}")))?;
    let Value::Object(members) = &body else {
        return Err(Refusal::invalid("The JSON body of your request is not an object."));
    };
    let written = rules::member_count(bytes);
    if written != members.len() {
        return Err(Refusal::invalid(
            "The JSON body of your request has the same member twice.",
        ));
    }
    Ok(body)
}

/// The container that an answer names: the requested one, with its skills.
fn container_of(body: &Value) -> Option<Value> {
    let expires = "2026-12-31T00:00:00Z";
    match &body["container"] {
        Value::String(id) => Some(json!({"id": id, "expires_at": expires, "skills": null})),
        Value::Object(container) => {
            let id = container
                .get("id")
                .and_then(Value::as_str)
                .unwrap_or("container_01mock");
            Some(json!({"id": id, "expires_at": expires, "skills": container.get("skills")}))
        }
        _ => None,
    }
}

fn chat_frames(said: &completion::Completion, delivery: &Delivery, options: StreamOptions) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for (index, event) in render::chat::events(said, delivery, options).iter().enumerate() {
        frames.push(delivery::frame(None, event, delivery.line_end));
        if delivery.ping_every.is_some_and(|every| (index + 1) % every == 0) && event != "[DONE]" {
            frames.push(b": ping\n\n".to_vec());
        }
    }
    frames
}

fn messages_frames(said: &completion::Completion, delivery: &Delivery) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for (index, (kind, event)) in render::messages::events(said, delivery).iter().enumerate() {
        frames.push(delivery::frame(Some(kind), &event.to_string(), delivery.line_end));
        if delivery.ping_every.is_some_and(|every| (index + 1) % every == 0) && *kind != "message_stop" {
            let (kind, ping) = render::messages::ping();
            frames.push(delivery::frame(Some(kind), &ping.to_string(), delivery.line_end));
        }
    }
    frames
}
