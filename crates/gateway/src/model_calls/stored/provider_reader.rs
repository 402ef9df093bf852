//! Asking the provider for what it keeps, and for the saved turns of it, in the name of a client.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use http::header::CONTENT_LENGTH;
use http::request;
use http::response::Parts;
use http::{HeaderMap, Method};
use knack_memory::OverBudget;
use knack_wire::history::{Caller, Lookup, SavedTurn};
use knack_wire::{Fault, Format};

use super::held_page::too_busy;
use crate::callers::caller;
use crate::http_server::budget::{BodyError, HeldBody};
use crate::http_server::fault::fault;
use crate::model_calls::exchange::{coding, compressed};
use crate::model_calls::turn_store::KeyedHash;
use crate::providers::forwarded_headers::forward_request_headers;
use crate::providers::provider::Api;
use crate::providers::proxy;
use crate::state::Gateway;

/// Largest stored answer, or page of a list, that is read to put it into the client's terms: as much as a turn of a loop
/// may gather.
pub(super) const MAX_BODY: usize = 8 << 20;
/// How long the provider may take for a page, as far as the client does not wait for the provider itself: a page of a list
/// needs no model.
const PAGE_TIMEOUT: Duration = Duration::from_secs(30);
/// Saved turns that other replicas are asked for at once: as many of the largest as one question reads.
const SAVED_TURNS_AT_ONCE: usize = 16;

/// Reads from the provider on behalf of a client.
pub(super) struct ProviderReader {
    pub(super) gateway: Arc<Gateway>,
    pub(super) api: Api,
    pub(super) caller: Caller,
    /// Account charged for this memory.
    counted: KeyedHash,
    /// The client's headers as they go to the provider.
    pub(super) headers: HeaderMap,
}

impl ProviderReader {
    /// In the name of who sent a request.
    pub(super) fn of(gateway: Arc<Gateway>, api: Api, parts: &request::Parts) -> Self {
        let secret = gateway.secret.current();
        let caller = caller::identify(&secret, &parts.headers, &parts.uri);
        Self {
            counted: caller::counted_beside(&caller, &secret, parts).bucket(),
            caller,
            headers: forward_request_headers(&parts.headers),
            gateway,
            api,
        }
    }

    pub(super) async fn pass(&self, request: Request) -> Response {
        proxy::pass(Arc::clone(&self.gateway), self.api, request).await
    }

    /// The saved turns of the answers with these ids, here or where other replicas keep theirs.
    pub(super) async fn saved_turns(&self, ids: &[String]) -> HashMap<String, Arc<SavedTurn>> {
        let (gateway, bucket) = (&self.gateway, self.caller.bucket());
        let (mut found, mut missing) = (HashMap::new(), Vec::new());
        for (turn, id) in ids.iter().enumerate() {
            let key = self.caller.response_key(id);
            match gateway.turn_store.get(&bucket, &key) {
                Some(saved) => drop(found.insert(id.clone(), saved)),
                None => missing.push(Lookup { turn, keys: vec![key] }),
            }
        }
        let Some(replicas) = &gateway.replicas else {
            return found;
        };
        for lookups in missing.chunks(SAVED_TURNS_AT_ONCE) {
            for one in replicas.saved_turns(&self.caller, lookups).await {
                found.extend(ids.get(one.turn).map(|id| (id.clone(), Arc::clone(&one.saved))));
                gateway.keep_found(bucket, one);
            }
        }
        found
    }

    /// The head and the body of an answer that is to be changed. Errors: one that goes to the client as it is.
    pub(super) async fn pass_whole(&self, request: Request, format: Format) -> Result<(Parts, HeldBody), Response> {
        let answer = self.pass(request).await;
        // A good one is read whatever its type says it is.
        if !answer.status().is_success() {
            return Err(answer);
        }
        self.whole(answer, format).await
    }

    /// The head and the body of an answer that is to be changed. Errors: it cannot be read, which the client's answer
    /// says.
    pub(super) async fn whole(&self, answer: Response, format: Format) -> Result<(Parts, HeldBody), Response> {
        if let Some(coding) = coding(answer.headers()) {
            return Err(fault(&Fault::new(502, compressed(&coding)), format));
        }
        let (mut parts, body) = answer.into_parts();
        let read = self.take(&parts.headers, body, MAX_BODY).await.map_err(|error| {
            if let BodyError::Busy(over) = error {
                return too_busy(over, format);
            }
            let text = format!(
                "The stored answer of the provider is larger than {MAX_BODY} bytes, or its transfer was interrupted."
            );
            fault(&Fault::new(502, text), format)
        })?;
        parts.headers.remove(CONTENT_LENGTH);
        Ok((parts, read))
    }

    /// Reads a further body that the answer needs, of at most `most` bytes; `None`: the provider did not return it in time.
    pub(super) async fn get(&self, path: &str, most: usize) -> Result<Option<HeldBody>, OverBudget> {
        let asked = self
            .gateway
            .upstreams
            .request(self.api, Method::GET, path, self.headers.clone());
        let answer = asked.timeout(PAGE_TIMEOUT).send().await;
        let Some(answer) = answer.ok().filter(|answer| answer.status().is_success()) else {
            return Ok(None);
        };
        let headers = answer.headers().clone();
        match self
            .take(&headers, Body::from_stream(answer.bytes_stream()), most)
            .await
        {
            Err(BodyError::Busy(over)) => Err(over),
            read => Ok(read.ok()),
        }
    }

    async fn take(&self, headers: &HeaderMap, body: Body, most: usize) -> Result<HeldBody, BodyError> {
        self.gateway
            .requests
            .read_answer(most, &self.counted, headers, body)
            .await
    }

    /// Counts a new body that was made of bodies that were dropped.
    pub(super) fn hold(&self, made: Vec<u8>) -> Result<HeldBody, OverBudget> {
        let holding = self.gateway.requests.hold(&self.counted, made.len())?;
        let bytes = made.into();
        Ok(HeldBody { bytes, holding })
    }
}
