//! Responses that the provider keeps, asked for by the id that the client saw.
//!
//! A loop is several responses of the provider and one of the client's: it shows the id of the first, and what the
//! provider keeps of the whole is under the id of the last. What the client sent is with the first. The record of the
//! answer has both ids, and what the client is to see. Without a record, which is lost with the cache, the id goes as it
//! came: the provider has a response of that id, the loop's first round.

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

use super::caller;
use super::exchange::{coding, compressed};
use super::fault::fault;
use super::forwarded_headers::forward_request_headers;
use super::provider::Api;
use super::proxy;
use super::state::Gateway;

/// Largest stored response, or page of its input, that is read to put it into the client's terms: as much as a turn of a
/// loop may gather.
const MAX_BODY: usize = 8 << 20;
/// Most pages of input items that are read for one page of the client's: more than all items that a view can hide.
const MAX_PAGES: usize = 16;
/// Items of such a page: the most that the API gives.
const PAGE: usize = 100;
/// Items of a page where the client names no limit.
const DEFAULT_LIMIT: usize = 20;
/// Most rounds that are deleted with a response: far more than a loop has by default.
const MAX_DELETED: usize = 64;
/// Rounds that are deleted at once.
const DELETED_AT_ONCE: usize = 4;
/// How long a client that deletes a response waits for the rounds behind it.
const DELETE_TIMEOUT: Duration = Duration::from_secs(10);

/// The parts of a path around the id of a response.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    before: String,
    id: String,
    behind: String,
    query: String,
}

/// A request about a stored response whose record is known.
struct Stored {
    gateway: Arc<Gateway>,
    api: Api,
    place: Place,
    record: Arc<TurnRecord>,
    /// The client's headers as they go to the provider.
    headers: HeaderMap,
}

/// Passes a request that is no model call to its provider. What a stored response shows is what its client saw of it.
pub async fn pass(gateway: Arc<Gateway>, api: Api, request: Request) -> Response {
    let known = match Place::of(request.uri()).filter(|_| api == Api::OpenAi) {
        Some(place) => {
            let caller = caller::identify(&gateway.secret.current(), request.headers(), request.uri());
            let record = record(&gateway, &caller, &place.id).await;
            record.map(|record| (place, record))
        }
        None => None,
    };
    let Some((place, record)) = known else {
        return proxy::pass(gateway, api, request).await;
    };
    let method = request.method().clone();
    let headers = forward_request_headers(request.headers());
    let stored = Stored {
        gateway,
        api,
        place,
        record,
        headers,
    };
    match (&method, stored.place.behind.trim_end_matches('/')) {
        (&Method::GET, "") if stored.place.asks_for_stream() => stored.no_stream(),
        (&Method::GET, "/input_items") => stored.items(request).await,
        (&Method::DELETE, "") => stored.delete(request).await,
        _ => stored.read(request).await,
    }
}

/// The record of the response with this id, here or where other replicas keep theirs.
async fn record(gateway: &Gateway, caller: &Caller, id: &str) -> Option<Arc<TurnRecord>> {
    let key = caller.response_key(id);
    match (gateway.records.get(&caller.bucket(), &key), &gateway.replicas) {
        (None, Some(replicas)) => {
            let lookup = Lookup {
                turn: 0,
                keys: vec![key],
            };
            replicas
                .records(caller, &[lookup])
                .await
                .pop()
                .map(|found| found.record)
        }
        (here, _) => here,
    }
}

impl Place {
    /// `None`: the path names no response.
    fn of(uri: &Uri) -> Option<Self> {
        let path = uri.path();
        let at = path.rfind("/responses/")? + "/responses/".len();
        let (before, rest) = path.split_at(at);
        let (id, behind) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        id.starts_with("resp_").then(|| Self {
            before: before.to_owned(),
            id: id.to_owned(),
            behind: behind.to_owned(),
            query: uri.query().unwrap_or_default().to_owned(),
        })
    }

    /// The same place of another response; `None` if its id is none for a path.
    fn with(&self, id: &str, query: &str) -> Option<String> {
        let mark = if query.is_empty() { "" } else { "?" };
        is_plain(id).then(|| format!("{}{id}{}{mark}{query}", self.before, self.behind))
    }

    fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        let pairs = self.query.split('&').filter(|pair| !pair.is_empty());
        pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
    }

    fn asks_for_stream(&self) -> bool {
        self.pairs()
            .any(|(name, value)| name == "stream" && !matches!(value.to_ascii_lowercase().as_str(), "" | "0" | "false"))
    }

    /// Most items of a page that the client asks for, if it says so.
    fn limit(&self) -> Option<usize> {
        self.pairs()
            .find(|(name, _)| *name == "limit")
            .and_then(|(_, limit)| limit.parse().ok())
    }

    /// The query of the page behind an item.
    fn page_after(&self, item: &str) -> Option<String> {
        let kept = self.pairs().filter(|(name, _)| !matches!(*name, "after" | "limit"));
        let kept: String = kept.map(|(name, value)| format!("{name}={value}&")).collect();
        is_plain(item).then(|| format!("{kept}limit={PAGE}&after={item}"))
    }
}

/// Whether an id is what it is in a URL, too.
fn is_plain(id: &str) -> bool {
    !id.is_empty()
        && id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
}

impl Stored {
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
            && let Some(Ok(path)) = self
                .place
                .with(self.state(), &self.place.query)
                .map(|path| path.parse())
        {
            let mut parts = request.uri().clone().into_parts();
            parts.path_and_query = Some(path);
            if let Ok(uri) = Uri::from_parts(parts) {
                *request.uri_mut() = uri;
            }
        }
        let answer = proxy::pass(Arc::clone(&self.gateway), self.api, request).await;
        if !is_json(&answer) {
            return answer;
        }
        match whole(answer).await {
            Ok((parts, body)) if parts.status.is_success() => {
                Response::from_parts(parts, Body::from(self.view().response(&body, &self.place.id)))
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

    /// A page of what the client sent. A page of the provider's that has nothing of it is passed over: clients take one
    /// without items for the last.
    async fn items(&self, request: Request) -> Response {
        let answer = proxy::pass(Arc::clone(&self.gateway), self.api, request).await;
        if !is_json(&answer) || !answer.status().is_success() {
            return answer;
        }
        let (parts, body) = match whole(answer).await {
            Ok(answer) => answer,
            Err(refused) => return refused,
        };
        let Some(mut page) = self.view().page(&body, usize::MAX) else {
            return Response::from_parts(parts, Body::from(body));
        };
        let mut pages = 1;
        while let Some(after) = &page.next {
            let next = if pages < MAX_PAGES {
                self.page(after).await
            } else {
                None
            };
            let Some(next) = next else {
                let text = "The provider did not give the next items of the response.";
                return fault(&Fault::new(502, text), Format::Responses);
            };
            (page, pages) = (next, pages + 1);
        }
        Response::from_parts(parts, Body::from(page.body))
    }

    /// The page behind an item.
    async fn page(&self, after: &str) -> Option<ItemPage> {
        let path = self.place.with(&self.place.id, &self.place.page_after(after)?)?;
        let headers = self.headers.clone();
        let asked = self.gateway.upstreams.request(self.api, Method::GET, &path, headers);
        let mut answer = asked.send().await.ok().filter(|answer| answer.status().is_success())?;
        let body = read_answer(&mut answer, MAX_BODY).await.ok()?;
        self.view()
            .page(&body, self.place.limit().unwrap_or(DEFAULT_LIMIT).max(1))
    }

    /// Deletes the whole answer, and then the rounds that only the provider knows of.
    async fn delete(&self, request: Request) -> Response {
        let answer = self.read(request).await;
        if answer.status().is_success() {
            self.delete_rounds().await;
        }
        answer
    }

    /// Deletes the other rounds, as far as the provider does it in time.
    async fn delete_rounds(&self) {
        let rounds = self.view().rounds.iter().take(MAX_DELETED);
        let paths: Vec<String> = rounds.filter_map(|id| self.place.with(id, &self.place.query)).collect();
        let mut left = paths.len();
        let mut deleting = futures::stream::iter(paths)
            .map(|path| {
                let headers = self.headers.clone();
                self.gateway
                    .upstreams
                    .request(self.api, Method::DELETE, &path, headers)
                    .send()
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
                "a response was deleted, and rounds of it are left with the provider"
            );
        }
    }
}

fn is_json(answer: &Response) -> bool {
    let kind = answer.headers().get(CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"))
}

/// The head and the body of an answer that is to be changed. Errors: it cannot be read, which the client is told.
async fn whole(answer: Response) -> Result<(Parts, Bytes), Response> {
    if let Some(coding) = coding(answer.headers()) {
        return Err(fault(&Fault::new(502, compressed(&coding)), Format::Responses));
    }
    let (mut parts, body) = answer.into_parts();
    let Ok(body) = to_bytes(body, MAX_BODY).await else {
        let text = format!("The stored response is larger than {MAX_BODY} bytes, or was interrupted.");
        return Err(fault(&Fault::new(502, text), Format::Responses));
    };
    parts.headers.remove(CONTENT_LENGTH);
    Ok((parts, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(uri: &'static str) -> Option<Place> {
        Place::of(&Uri::from_static(uri))
    }

    #[test]
    fn a_path_names_a_response_or_none() {
        let found = place("/gw/v1/responses/resp_1/input_items?limit=3").unwrap();
        assert_eq!(
            (&*found.before, &*found.id, &*found.behind),
            ("/gw/v1/responses/", "resp_1", "/input_items")
        );
        assert_eq!(
            found.with("resp_2", "").as_deref(),
            Some("/gw/v1/responses/resp_2/input_items")
        );
        assert_eq!(found.with("resp_2/../x", ""), None);
        assert_eq!(
            place("/v1/responses/resp_1").unwrap().with("resp_2", "a=b").as_deref(),
            Some("/v1/responses/resp_2?a=b")
        );
        for other in ["/v1/responses", "/v1/responses/compact", "/v1/models"] {
            assert_eq!(place(other), None);
        }
    }

    #[test]
    fn the_next_page_keeps_the_order_and_what_else_was_asked() {
        let found = place("/v1/responses/resp_1/input_items?order=asc&after=a&limit=2&include[]=x").unwrap();
        assert_eq!(
            found.page_after("item_9").as_deref(),
            Some("order=asc&include[]=x&limit=100&after=item_9")
        );
        assert_eq!((found.limit(), found.page_after("a&b")), (Some(2), None));
    }

    #[test]
    fn a_stream_is_asked_for_by_its_word() {
        for (query, asked) in [
            ("/v1/responses/resp_1?stream=true", true),
            ("/v1/responses/resp_1?starting_after=4&stream=1", true),
            ("/v1/responses/resp_1?stream=false", false),
            ("/v1/responses/resp_1", false),
        ] {
            assert_eq!(place(query).unwrap().asks_for_stream(), asked, "{query}");
        }
    }
}
