//! The I/O edge of the mock: an axum router, and ways to run it.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::serve::ListenerExt as _;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::exchange::Exchange;
use super::intake::{format_of, header_list, refusal_of};
use super::log::{MockHandle, RecordedRequest};
use super::route::{self, GeminiCall, Route};
use super::rules::ProviderRefusal;
use super::script::{FormatName, Script};
use super::state::{Clock, Inner};
use super::stored::{Completions, ConversationStates};

/// Largest request body in bytes, as the gateway's own limit.
const MAX_BODY_BYTES: usize = 32 * 1024 * 1024;
/// A mock provider: a script, a clock, and the little state that it keeps. Clones share everything.
#[derive(Clone)]
pub struct Mock {
    inner: Arc<Inner>,
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
            stored: ConversationStates::default(),
            completions: Completions::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Reads what the mock has seen.
    pub fn handle(&self) -> MockHandle {
        self.inner.handle.clone()
    }

    /// The routes, with any path prefix: `…/chat/completions`, `…/responses`, `…/responses/input_tokens`,
    /// `…/responses/compact`, `…/responses/{id}`, `…/messages`, `…/messages/count_tokens`, `…/models/{model}:generateContent` and its like,
    /// `…/models`.
    pub fn router(&self) -> Router {
        Router::new().fallback(answer).with_state(self.clone())
    }

    /// Serves on a listener until the future is dropped.
    pub async fn serve(self, listener: TcpListener) -> io::Result<()> {
        // Without this, Nagle's algorithm holds the first event back until the head is acknowledged (40 ms).
        let listener = listener.tap_io(|stream| {
            // A socket that does not take the option still works, only slower.
            let _ = stream.set_nodelay(true);
        });
        axum::serve(listener, self.router()).await
    }
}

/// Serves a script on a listener until the future is dropped.
pub async fn serve(script: Arc<Script>, listener: TcpListener) -> io::Result<()> {
    Mock::new(script).serve(listener).await
}

/// A mock on its own loopback port; it stops when this value is dropped.
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
        asked: GeminiCall::read(&path, parts.uri.query().unwrap_or_default()),
        query: parts.uri.query().unwrap_or_default().to_owned(),
    };
    let Ok(bytes) = bytes else {
        let message = format!("Request exceeds the maximum size of {MAX_BODY_BYTES} bytes or was cut off");
        return exchange.refuse(&ProviderRefusal {
            status: 413,
            kind: route::kind_of(exchange.format, 413),
            ..ProviderRefusal::invalid(message)
        });
    };
    mock.inner.handle.record(RecordedRequest {
        method: parts.method.to_string(),
        path: parts.uri.path_and_query().map_or(path, ToString::to_string),
        headers: headers.clone(),
        body: bytes.clone(),
    });
    let query = parts.uri.query().unwrap_or_default();
    let (method, path) = (parts.method.as_str(), parts.uri.path());
    let answered = match route {
        Route::Models => Ok(exchange.json(&route::models(
            &mock.inner.script.models,
            exchange.format == FormatName::Messages,
        ))),
        Route::Unknown => Err(refusal_of(
            exchange.format,
            404,
            "Not found: the mock serves chat/completions, responses, messages, models/{model}:generateContent, their token counts, and models",
        )),
        Route::WrongMethod(format) => Err(refusal_of(format, 405, "Method not allowed")),
        Route::Stored => exchange.stored(method, path),
        Route::ConversationItems => mock.inner.stored.items(path, query).map(|body| exchange.json(&body)),
        Route::StoredChat => mock
            .inner
            .completions
            .serve(method, path, query, &bytes)
            .map(|body| exchange.json(&body)),
        Route::Compact => mock
            .inner
            .stored
            .compact(&bytes, number)
            .map(|body| exchange.json(&body)),
        Route::CountTokens(_) => exchange.count(&bytes, headers),
        Route::Complete(_) => exchange.complete(&bytes, headers).await,
    };
    answered.unwrap_or_else(|refusal| exchange.refuse(&refusal))
}
