//! Responses that the provider keeps, asked for by the id that the client saw.
//!
//! A loop is several responses of the provider and one of the client's: it shows the id of the first, and what the
//! provider keeps of the whole is under the id of the last. The record of the loop has both. Without a record, which is
//! lost with the cache, the id goes as it came: the provider has a response of that id, the loop's first round.

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::response::Response;
use http::Uri;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use knack_wire::history::Lookup;
use knack_wire::json::{self, Edits};
use knack_wire::{Fault, Format};

use super::caller;
use super::fault::fault;
use super::provider::Api;
use super::state::Gateway;

/// Largest stored response that is read to put the client's id into it: as much as a turn of a loop may gather.
const MAX_BODY: usize = 8 << 20;

/// A request about a stored response, on its way to the response that the provider knows.
#[derive(Debug)]
pub struct ShownResponse {
    /// The id that the client knows.
    id: String,
}

/// Finds the response that a path names, and points the request to the one that the provider keeps the whole under.
/// `None`: the request goes as it came.
pub async fn point(gateway: &Gateway, api: Api, request: &mut Request) -> Option<ShownResponse> {
    if api != Api::OpenAi {
        return None;
    }
    let (before, id, behind) = named(request.uri().path())?;
    let caller = caller::identify(&gateway.secret.current(), request.headers(), request.uri());
    let key = caller.response_key(id);
    let record = match (gateway.records.get(&caller.bucket(), &key), &gateway.replicas) {
        (Some(record), _) => record,
        (None, Some(replicas)) => {
            let lookup = Lookup {
                turn: 0,
                keys: vec![key],
            };
            replicas.records(&caller, &[lookup]).await.pop()?.record
        }
        (None, None) => return None,
    };
    let state = &record.state;
    if state.is_empty() || state == id {
        return None;
    }
    let query = request
        .uri()
        .query()
        .map(|query| format!("?{query}"))
        .unwrap_or_default();
    let mut parts = request.uri().clone().into_parts();
    parts.path_and_query = format!("{before}{state}{behind}{query}").parse().ok();
    let shown = ShownResponse { id: id.to_owned() };
    *request.uri_mut() = Uri::from_parts(parts).ok()?;
    Some(shown)
}

/// The parts of a path around the id of a response; `None` if it names none.
fn named(path: &str) -> Option<(&str, &str, &str)> {
    let at = path.rfind("/responses/")? + "/responses/".len();
    let (before, rest) = path.split_at(at);
    let (id, behind) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    id.starts_with("resp_").then_some((before, id, behind))
}

impl ShownResponse {
    /// The provider's answer under the id that the client knows. Streams and lists go as they came.
    pub async fn answer(self, response: Response) -> Response {
        let is_json = response
            .headers()
            .get(CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
        if !is_json || !response.status().is_success() {
            return response;
        }
        let (mut parts, body) = response.into_parts();
        let Ok(bytes) = to_bytes(body, MAX_BODY).await else {
            let text = format!("The stored response is larger than {MAX_BODY} bytes, or was interrupted.");
            return fault(&Fault::new(502, text), Format::Responses);
        };
        let body = renamed(&bytes, &self.id);
        parts.headers.remove(CONTENT_LENGTH);
        Response::from_parts(parts, Body::from(body))
    }
}

/// A response object with another id; anything else as it is.
fn renamed(body: &[u8], id: &str) -> Vec<u8> {
    let mut edits = Edits::new();
    let own = json::object(body).ok().and_then(|top| {
        let kind = json::member(body, &top, "object").and_then(|member| json::text(body, member.value));
        let is_response = kind.is_some_and(|kind| kind.starts_with("response"));
        is_response.then(|| json::member(body, &top, "id").map(|member| member.value))?
    });
    if let Some(own) = own {
        let mut quoted = Vec::with_capacity(id.len() + 2);
        json::push_string(&mut quoted, id);
        edits.replace(own, quoted);
    }
    edits.apply(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_a_response_or_none() {
        assert_eq!(
            named("/gw/v1/responses/resp_1/input_items"),
            Some(("/gw/v1/responses/", "resp_1", "/input_items"))
        );
        assert_eq!(named("/v1/responses/resp_1"), Some(("/v1/responses/", "resp_1", "")));
        for other in ["/v1/responses", "/v1/responses/compact", "/v1/models"] {
            assert_eq!(named(other), None);
        }
    }

    #[test]
    fn only_a_response_object_is_renamed() {
        let response = br#"{"id":"resp_2","object":"response","output":[{"id":"resp_2"}]}"#;
        let shown = renamed(response, "resp_1");
        assert_eq!(
            shown,
            br#"{"id":"resp_1","object":"response","output":[{"id":"resp_2"}]}"#
        );
        assert_eq!(renamed(b"[1]", "resp_1"), b"[1]");
    }
}
