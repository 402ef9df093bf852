//! Responses and Chat completions that the provider keeps, asked for by the id that the client saw.
//!
//! A loop is several responses of the provider and one of the client's: it shows the id of the first, and what the
//! provider keeps of the whole is under the id of the last. What the client sent is with the first. The record of the
//! answer has both ids, and what the client is to see. Without a record, which is lost with the cache, the id goes as it
//! came: the provider has a response of that id, the loop's first round.

mod chat;
mod items;
mod place;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use futures::StreamExt as _;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::response::Parts;
use http::{HeaderMap, Method, StatusCode, Uri};
use knack_trust::read_answer;
use knack_wire::history::{Caller, Lookup, TurnRecord};
use knack_wire::{Fault, Format, ItemPage, StoredView};

use self::place::{Asked, Place};
use super::caller;
use super::exchange::{coding, compressed};
use super::fault::fault;
use super::forwarded_headers::forward_request_headers;
use super::provider::Api;
use super::proxy;
use super::state::Gateway;

/// Largest stored answer, or page of a list, that is read to put it into the client's terms: as much as a turn of a loop
/// may gather.
const MAX_BODY: usize = 8 << 20;
/// Most pages that are read for one page of the client's: more than all items that a view can hide.
const MAX_PAGES: usize = 16;
/// How long the provider may take for each of them, as far as the client does not wait for the provider itself: a page of a
/// list needs no model.
const PAGE_TIMEOUT: Duration = Duration::from_secs(30);
/// Records that other replicas are asked for at once: as many of the largest as one question reads.
const RECORDS_AT_ONCE: usize = 16;
/// Most rounds that are deleted with an answer: more than a loop can have (`maxToolRounds` is at most 100).
const MAX_DELETED: usize = 128;
/// Rounds that are deleted at once.
const DELETED_AT_ONCE: usize = 4;
/// How long a client that deletes an answer waits for the rounds behind it.
const DELETE_TIMEOUT: Duration = Duration::from_secs(10);

/// Who asks, and whom.
struct Asking {
    gateway: Arc<Gateway>,
    api: Api,
    caller: Caller,
    /// The client's headers as they go to the provider.
    headers: HeaderMap,
}

/// A request about a stored answer whose record is known.
struct Stored {
    asking: Asking,
    place: Place,
    record: Arc<TurnRecord>,
}

/// Passes a request that is no model call to its provider. What a stored answer shows is what its client saw of it.
pub async fn pass(gateway: Arc<Gateway>, api: Api, request: Request) -> Response {
    let Some(asked) = Asked::of(request.method(), request.uri()).filter(|_| api == Api::OpenAi) else {
        return proxy::pass(gateway, api, request).await;
    };
    let asking = Asking {
        caller: caller::identify(&gateway.secret.current(), request.headers(), request.uri()),
        headers: forward_request_headers(request.headers()),
        gateway,
        api,
    };
    if !asking.gateway.has_records(&asking.caller.bucket()) {
        return asking.pass(request).await;
    }
    let place = match asked {
        Asked::List => return chat::list(asking, request).await,
        Asked::One(place) => place,
    };
    let mut found = asking.records(std::slice::from_ref(&place.id)).await;
    // A round that the client was not shown is the provider's own.
    let is_answer = |record: &Arc<TurnRecord>| record.stored.as_ref().is_none_or(|view| view.part_of.is_empty());
    match found.remove(&place.id).filter(is_answer) {
        Some(record) => Stored { asking, place, record }.answer(request).await,
        None => asking.pass(request).await,
    }
}

impl Asking {
    async fn pass(&self, request: Request) -> Response {
        proxy::pass(Arc::clone(&self.gateway), self.api, request).await
    }

    /// The head and the body of an answer that is to be changed. Errors: one that goes to the client as it is.
    async fn pass_whole(&self, request: Request, format: Format) -> Result<(Parts, Bytes), Response> {
        let answer = self.pass(request).await;
        if !is_json(&answer) || !answer.status().is_success() {
            return Err(answer);
        }
        whole(answer, format).await
    }

    /// What else an answer to the client needs, of at most so many bytes; `None`: the provider did not give it in time.
    async fn get(&self, path: &str, most: usize) -> Option<Bytes> {
        let asked = self
            .gateway
            .upstreams
            .request(self.api, Method::GET, path, self.headers.clone());
        let answer = asked.timeout(PAGE_TIMEOUT).send().await;
        let mut answer = answer.ok().filter(|answer| answer.status().is_success())?;
        read_answer(&mut answer, most).await.ok()
    }

    /// The records of the answers with these ids, here or where other replicas keep theirs.
    async fn records(&self, ids: &[String]) -> HashMap<String, Arc<TurnRecord>> {
        let (gateway, bucket) = (&self.gateway, self.caller.bucket());
        let (mut found, mut missing) = (HashMap::new(), Vec::new());
        for (turn, id) in ids.iter().enumerate() {
            let key = self.caller.response_key(id);
            match gateway.records.get(&bucket, &key) {
                Some(record) => drop(found.insert(id.clone(), record)),
                None => missing.push(Lookup { turn, keys: vec![key] }),
            }
        }
        let Some(replicas) = &gateway.replicas else {
            return found;
        };
        for lookups in missing.chunks(RECORDS_AT_ONCE) {
            for one in replicas.records(&self.caller, lookups).await {
                found.extend(ids.get(one.turn).map(|id| (id.clone(), Arc::clone(&one.record))));
                gateway.records.put(bucket, one.opening, one.keys, one.record);
            }
        }
        found
    }
}

impl Stored {
    async fn answer(self, request: Request) -> Response {
        let method = request.method().clone();
        match (&method, self.place.behind.trim_end_matches('/'), self.place.format) {
            (&Method::GET, "", Format::Responses) if self.place.asks_for_stream() => self.no_stream(),
            (&Method::GET, "/input_items", Format::Responses) => self.items(request).await,
            (&Method::GET, "/messages", Format::Chat) => self.messages(request).await,
            (&Method::DELETE, "", _) => self.delete(request).await,
            _ => self.read(request).await,
        }
    }

    fn view(&self) -> &StoredView {
        static NOTHING: StoredView = StoredView::new();
        self.record.stored.as_ref().unwrap_or(&NOTHING)
    }

    /// The id under which the provider keeps the whole answer.
    fn state(&self) -> &str {
        match self.record.state.as_str() {
            "" => &self.place.id,
            state => state,
        }
    }

    /// Events of the provider would tell of one round what it has of it.
    fn no_stream(&self) -> Response {
        let id = &self.place.id;
        let text = format!("The events of the response \"{id}\" are not kept: read it without \"stream\".");
        fault(&Fault::bad("stream", text), Format::Responses)
    }

    /// The whole answer in the client's terms.
    async fn read(&self, mut request: Request) -> Response {
        if self.state() != self.place.id
            && let Some(path) = self.place.with(self.state(), &self.place.query.text())
        {
            set_path(&mut request, &path);
        }
        let answer = self.asking.pass(request).await;
        if !is_json(&answer) {
            return answer;
        }
        match whole(answer, self.place.format).await {
            Ok((parts, body)) if parts.status.is_success() => {
                let (view, id) = (self.view(), &self.place.id);
                let shown = match self.place.format {
                    Format::Chat => view.completion(&body, id),
                    _ => view.response(&body, id),
                };
                Response::from_parts(parts, Body::from(shown))
            }
            Ok((parts, body)) => Response::from_parts(parts, Body::from(self.named(&body))),
            Err(refused) => refused,
        }
    }

    /// An error with the id that the client knows.
    fn named(&self, body: &[u8]) -> Vec<u8> {
        String::from_utf8_lossy(body)
            .replace(self.state(), &self.place.id)
            .into_bytes()
    }

    /// Deletes the whole answer, and then the rounds that only the provider knows of. A client that left in between, or waited
    /// in vain, asks once more and is told that the answer is gone: the rounds may still be there.
    async fn delete(&self, request: Request) -> Response {
        let answer = self.read(request).await;
        if answer.status().is_success() || answer.status() == StatusCode::NOT_FOUND {
            self.delete_rounds().await;
        }
        answer
    }

    /// Deletes the other rounds, as far as the provider does it in time.
    async fn delete_rounds(&self) {
        let rounds = &self.view().rounds;
        let mut left = rounds.len();
        let paths = rounds.iter().take(MAX_DELETED);
        let paths: Vec<String> = paths
            .filter_map(|id| self.place.with(id, &self.place.query.text()))
            .collect();
        let mut deleting = futures::stream::iter(paths)
            .map(|path| {
                let Asking {
                    gateway, api, headers, ..
                } = &self.asking;
                let asked = gateway.upstreams.request(*api, Method::DELETE, &path, headers.clone());
                asked.send()
            })
            .buffer_unordered(DELETED_AT_ONCE);
        let all = async {
            while let Some(answer) = deleting.next().await {
                let status = answer.map(|answer| answer.status());
                if status.is_ok_and(|status| status.is_success() || status == StatusCode::NOT_FOUND) {
                    left -= 1;
                }
            }
        };
        let in_time = tokio::time::timeout(DELETE_TIMEOUT, all).await.is_ok();
        if left > 0 {
            tracing::warn!(
                left,
                in_time,
                "a stored answer was deleted, and rounds of it are left with the provider"
            );
        }
    }
}

/// A list of the provider's that is read in pages.
trait PagedList {
    /// The page behind an element, in the client's terms; `None`: the provider did not give it.
    fn next(&mut self, after: &str) -> impl Future<Output = Option<ItemPage>> + Send;
}

/// The first page that has something of the client's, from this one on; the others are passed over, since clients take a page
/// without elements for the last. `None`: the provider did not give one, or there were [`MAX_PAGES`].
async fn page_with_own(mut page: ItemPage, list: &mut impl PagedList) -> Option<ItemPage> {
    for _ in 1..MAX_PAGES {
        let Some(after) = page.next.take() else {
            return Some(page);
        };
        page = list.next(&after).await?;
    }
    page.next.is_none().then_some(page)
}

fn is_json(answer: &Response) -> bool {
    let kind = answer.headers().get(CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"))
}

/// The head and the body of an answer that is to be changed. Errors: it cannot be read, which the client is told.
async fn whole(answer: Response, format: Format) -> Result<(Parts, Bytes), Response> {
    if let Some(coding) = coding(answer.headers()) {
        return Err(fault(&Fault::new(502, compressed(&coding)), format));
    }
    let (mut parts, body) = answer.into_parts();
    let Ok(body) = to_bytes(body, MAX_BODY).await else {
        let text = format!("What the provider keeps is larger than {MAX_BODY} bytes, or was interrupted.");
        return Err(fault(&Fault::new(502, text), format));
    };
    parts.headers.remove(CONTENT_LENGTH);
    Ok((parts, body))
}

/// Sends a request on to another path and query.
fn set_path(request: &mut Request, path: &str) {
    let mut parts = request.uri().clone().into_parts();
    if let Ok(path) = path.parse() {
        parts.path_and_query = Some(path);
    }
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
    }
}
