//! Requests that their client cancels by a message of its own (`notifications/cancelled`).
//!
//! Clients with one credential number their requests alike. So each gets the id of a session, which it sends with all that follows;
//! nothing else is kept of a session, and an id that this process did not make is as good.

use ::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::Response;
use knack_gateway::model_calls::turn_store::KeyedHash;
use knack_wire::history::Caller;
use serde::Deserialize;
use serde_json::Value;
use uuid::Uuid;

use crate::server::METHODS;

/// The header of a session.
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
/// What clients send to see whether the server lives.
const PING: &str = "ping";
/// Further methods that the log names.
const WITHOUT_ANSWER: [&str; 2] = ["notifications/cancelled", "notifications/initialized"];
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

    /// The name of its method for the log, if it is one of MCP's; another one is text of the client.
    pub(crate) fn known_method(&self) -> &str {
        let method = self.method.as_deref();
        let is_known = |method: &&str| *method == PING || METHODS.contains(method) || WITHOUT_ANSWER.contains(method);
        method.filter(is_known).unwrap_or_default()
    }

    /// Whether it asks for nothing: clients send pings in intervals, and notifications get no answer.
    pub(crate) fn is_sign_of_life(&self) -> bool {
        self.method.as_deref() == Some(PING) || (self.method.is_some() && self.id.is_none())
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

/// The key of a request. `None`: no client has such an id.
pub(crate) fn request_key(caller: &Caller, session: Option<Uuid>, id: Option<&Value>) -> Option<KeyedHash> {
    let (session, id) = session.zip(id)?;
    let is_legal = match id {
        Value::String(text) => text.len() <= ID_MAX_BYTES,
        other => other.is_number(),
    };
    // A session has one length, so that no other pair has the same name.
    let name = [session.as_bytes(), id.to_string().as_bytes()].concat();
    is_legal.then(|| caller.derived_key("mcp request", &name))
}

#[cfg(test)]
mod tests {
    use knack_wire::history::HistorySecret;
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
    fn the_key_of_a_request_is_of_its_caller_its_session_and_its_id() {
        let caller = |credential: &str| Caller::new(&HistorySecret::new([1; 32]), credential.as_bytes());
        let (session, other) = (Uuid::new_v4(), Uuid::new_v4());
        let key = |credential: &str, session, id: Value| request_key(&caller(credential), Some(session), Some(&id));
        let own = key("a", session, json!(7));
        assert!(own.is_some() && own == key("a", session, json!(7)));
        for not_it in [
            key("b", session, json!(7)),
            key("a", other, json!(7)),
            key("a", session, json!("7")),
            key("a", session, json!(8)),
        ] {
            assert!(not_it.is_some() && not_it != own);
        }
        for id in [json!(null), json!({}), json!("x".repeat(ID_MAX_BYTES + 1))] {
            assert_eq!(key("a", session, id), None);
        }
        assert_eq!(request_key(&caller("a"), None, Some(&json!(7))), None);
    }
}
