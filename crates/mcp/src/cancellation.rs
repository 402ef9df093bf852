//! Requests that their client cancels by a message of its own (`notifications/cancelled`).
//!
//! Clients with one credential number their requests alike. So each gets the id of a session, which it sends with all that follows;
//! nothing else is kept of a session, and an id that this process did not make is as good.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::Response;
use futures::future::{AbortHandle, AbortRegistration, Abortable};
use knack_gateway::model_calls::turn_store::KeyedHash;
use serde::Deserialize;
use serde_json::Value;
use uuid::Uuid;

/// The header of a session.
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
/// Bytes of the id of a request that can be cancelled; clients count, or make a UUID.
const ID_MAX_BYTES: usize = 128;

/// The session that a request names.
pub(crate) fn session_of(headers: &HeaderMap) -> Option<Uuid> {
    Uuid::try_parse(headers.get(SESSION)?.to_str().ok()?).ok()
}

/// The answer to a handshake, with a new session.
pub(crate) fn opened(mut response: Response) -> Response {
    let id = HeaderValue::from_str(&Uuid::new_v4().to_string());
    if let (true, Ok(id)) = (response.status().is_success(), id) {
        response.headers_mut().insert(SESSION, id);
    }
    response
}

/// The members of a message that say what it is.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Message {
    #[serde(default)]
    method: Option<String>,
    #[serde(default)]
    id: Option<Value>,
    #[serde(default)]
    params: Option<Params>,
}

#[derive(Debug, Default, Deserialize)]
struct Params {
    #[serde(default, rename = "requestId")]
    request: Option<Value>,
}

impl Message {
    /// Reads a message; what is none has nothing of one.
    pub(crate) fn read(body: &[u8]) -> Self {
        serde_json::from_slice(body).unwrap_or_default()
    }

    /// Whether it opens a session.
    pub(crate) fn is_initialize(&self) -> bool {
        self.method.as_deref() == Some("initialize")
    }

    /// The id of a request.
    pub(crate) const fn id(&self) -> Option<&Value> {
        self.id.as_ref()
    }

    /// The id of the request that it cancels.
    pub(crate) fn cancels(&self) -> Option<&Value> {
        let is_cancellation = self.method.as_deref() == Some("notifications/cancelled");
        self.params.as_ref()?.request.as_ref().filter(|_| is_cancellation)
    }
}

/// Caller, session, and the id of the request as JSON.
type RequestKey = (KeyedHash, Uuid, String);

/// The key of a request. `None`: no client has such an id.
pub(crate) fn request_key(caller: &KeyedHash, session: Option<Uuid>, id: Option<&Value>) -> Option<RequestKey> {
    let (session, id) = session.zip(id)?;
    let is_legal = match id {
        Value::String(text) => text.len() <= ID_MAX_BYTES,
        other => other.is_number(),
    };
    is_legal.then(|| (*caller, session, id.to_string()))
}

/// Requests in progress that can be cancelled.
#[derive(Debug, Default)]
pub(crate) struct Cancellations(Mutex<HashMap<RequestKey, AbortHandle>>);

/// A request in progress, until it is dropped.
struct InProgress<'a> {
    cancellations: &'a Cancellations,
    key: RequestKey,
}

impl Cancellations {
    /// Does the work of a request. `None`: it was cancelled, and the work is dropped. Of two requests in progress with one key the
    /// first can be cancelled.
    pub(crate) async fn run<T>(&self, key: Option<RequestKey>, work: impl Future<Output = T>) -> Option<T> {
        let Some((in_progress, registration)) = key.and_then(|key| self.add(key)) else {
            return Some(work.await);
        };
        let done = Abortable::new(work, registration).await.ok();
        drop(in_progress);
        done
    }

    fn add(&self, key: RequestKey) -> Option<(InProgress<'_>, AbortRegistration)> {
        let (handle, registration) = AbortHandle::new_pair();
        match self.all().entry(key.clone()) {
            Entry::Occupied(_) => return None,
            Entry::Vacant(free) => free.insert(handle),
        };
        let cancellations = self;
        Some((InProgress { cancellations, key }, registration))
    }

    /// Cancels a request, if it is in progress.
    pub(crate) fn cancel(&self, key: &RequestKey) {
        if let Some(handle) = self.all().get(key) {
            handle.abort();
        }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<RequestKey, AbortHandle>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for InProgress<'_> {
    fn drop(&mut self) {
        self.cancellations.all().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures::FutureExt as _;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_message_is_read_by_what_it_cancels() {
        let cancels = |message: Value| Message::read(message.to_string().as_bytes()).cancels().cloned();
        let named = |method: &str| json!({"method": method, "params": {"requestId": 7, "reason": "r"}});
        assert_eq!(cancels(named("notifications/cancelled")), Some(json!(7)));
        assert_eq!(cancels(named("tools/call")), None);
        assert_eq!(cancels(json!({"method": "notifications/cancelled"})), None);
        assert_eq!(cancels(json!([1])), None);
    }

    #[test]
    fn one_request_of_one_session_of_one_caller_is_cancelled_while_it_is_in_progress() {
        let all = Cancellations::default();
        let (session, other) = (Uuid::new_v4(), Uuid::new_v4());
        let key = |caller: u8, session, id: Value| request_key(&[caller; 32], Some(session), Some(&id));
        let own = key(1, session, json!(7));
        let mut running = Box::pin(all.run(own.clone(), pending::<()>()));
        assert_eq!(running.as_mut().now_or_never(), None);
        for not_it in [
            key(2, session, json!(7)),
            key(1, other, json!(7)),
            key(1, session, json!("7")),
        ] {
            all.cancel(&not_it.unwrap());
            assert_eq!(running.as_mut().now_or_never(), None);
        }
        // Another one of the same key is served, and takes nothing from the first.
        assert_eq!(all.run(own.clone(), ready(1)).now_or_never(), Some(Some(1)));
        all.cancel(&own.clone().unwrap());
        assert_eq!(running.as_mut().now_or_never(), Some(None));
        drop(running);
        assert!(all.all().is_empty());
        all.cancel(&own.unwrap());
        for id in [json!(null), json!({}), json!("x".repeat(ID_MAX_BYTES + 1))] {
            assert_eq!(key(1, session, id), None);
        }
        assert_eq!(request_key(&[1; 32], None, Some(&json!(7))), None);
    }
}
