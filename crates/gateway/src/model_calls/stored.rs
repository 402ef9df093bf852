//! Responses and Chat completions that the provider keeps, asked for by the id that the client saw.
//!
//! A loop is several responses of the provider and one of the client's: it shows the id of the first, and what the
//! provider keeps of the whole is under the id of the last. What the client sent is with the first. The saved turn of the
//! answer has both ids, and what the client is to see; while the loop runs, notes of its rounds stand for it. Without a
//! saved turn, which is lost with the cache, the id goes as it came: the provider has a response of that id, the loop's first
//! round.

mod answer_path;
mod chat;
mod held_page;
mod items;
mod provider_reader;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use futures::StreamExt as _;
use http::header::CONTENT_LENGTH;
use http::response::Parts;
use http::{Method, StatusCode, Uri};
use knack_memory::OverBudget;
use knack_wire::history::SavedTurn;
use knack_wire::{Fault, Format, StoredEvents, StoredForm, json};

use self::answer_path::{AnswerPath, StoredRequest};
use self::held_page::{in_place_of, respond, too_busy};
use self::provider_reader::ProviderReader;
use crate::http_server::budget::HeldBody;
use crate::http_server::fault::fault;
use crate::model_calls::exchange::{begins_event, coding, content_type, is_event_stream};
use crate::providers::provider::Api;
use crate::providers::proxy;
use crate::state::Gateway;

/// Most rounds that are deleted with an answer: more than a loop can have (`maxToolRounds` is at most 100).
const MAX_DELETED: usize = 128;
/// Rounds that are deleted at once.
const DELETED_AT_ONCE: usize = 4;
/// How long a client that deletes an answer waits for the rounds behind it.
const DELETE_TIMEOUT: Duration = Duration::from_secs(10);

/// A request about a stored answer whose saved turn is known.
struct StoredAnswer {
    reader: ProviderReader,
    answer_path: AnswerPath,
    saved: Arc<SavedTurn>,
}

/// Passes a request that is no model call to its provider. What a stored answer shows is what its client saw of it.
pub(crate) async fn pass(gateway: Arc<Gateway>, api: Api, request: Request) -> Response {
    let Some(asked) = StoredRequest::of(request.method(), request.uri()).filter(|_| api == Api::OpenAi) else {
        return proxy::pass(gateway, api, request).await;
    };
    let (parts, body) = request.into_parts();
    let reader = ProviderReader::of(gateway, api, &parts);
    let request = Request::from_parts(parts, body);
    if !reader.gateway.has_saved_turns(&reader.caller.bucket()) {
        return reader.pass(request).await;
    }
    let answer_path = match asked {
        StoredRequest::List => {
            let listed = chat::list(reader, request).await;
            return listed.unwrap_or_else(|over| too_busy(over, Format::Chat));
        }
        StoredRequest::One(answer_path) => answer_path,
    };
    let format = answer_path.format;
    let mut found = reader.saved_turns(std::slice::from_ref(&answer_path.id)).await;
    // A round that the client was not shown is the provider's own.
    let is_answer = |saved: &Arc<SavedTurn>| saved.stored.as_ref().is_none_or(|form| form.part_of.is_empty());
    match found.remove(&answer_path.id).filter(is_answer) {
        Some(saved) => {
            let answer = StoredAnswer {
                reader,
                answer_path,
                saved,
            }
            .answer(request)
            .await;
            answer.unwrap_or_else(|over| too_busy(over, format))
        }
        None => reader.pass(request).await,
    }
}

impl StoredAnswer {
    async fn answer(self, request: Request) -> Result<Response, OverBudget> {
        let method = request.method().clone();
        match (
            &method,
            self.answer_path.behind.trim_end_matches('/'),
            self.answer_path.format,
        ) {
            (&Method::GET, "", Format::Responses) if self.answer_path.asks_for_stream() && !self.form().streams => {
                Ok(self.no_stream())
            }
            (&Method::GET, "/input_items", Format::Responses) => self.items(request).await,
            (&Method::GET, "/messages", Format::Chat) => self.messages(request).await,
            (&Method::DELETE, "", _) => self.delete(request).await,
            _ => self.read(request).await,
        }
    }

    fn form(&self) -> &StoredForm {
        static NOTHING: StoredForm = StoredForm::new();
        self.saved.stored.as_ref().unwrap_or(&NOTHING)
    }

    /// The id under which the provider keeps the whole answer.
    fn state(&self) -> &str {
        match self.saved.state.as_str() {
            "" => &self.answer_path.id,
            state => state,
        }
    }

    /// Events of the provider would tell of one round what it has of it.
    fn no_stream(&self) -> Response {
        let id = &self.answer_path.id;
        let text = format!("The events of the response \"{id}\" are not kept: read it without \"stream\".");
        fault(&Fault::bad("stream", text), Format::Responses)
    }

    /// The whole answer in the client's terms.
    async fn read(&self, mut request: Request) -> Result<Response, OverBudget> {
        if self.state() != self.answer_path.id
            && let Some(path) = self.answer_path.with(self.state(), &self.answer_path.query.text())
        {
            set_path(&mut request, &path);
        }
        let is_deleted = request.method() == Method::DELETE;
        let answer = self.reader.pass(request).await;
        let kind = content_type(answer.headers()).unwrap_or_default();
        let is_good = answer.status().is_success();
        if is_good && is_event_stream(kind) && coding(answer.headers()).is_none() {
            return Ok(self.events(answer));
        }
        if !is_good && !is_json(kind) {
            return Ok(answer);
        }
        let (parts, read) = match self.reader.whole(answer, self.answer_path.format).await {
            Ok(read) => read,
            Err(refused) => return Ok(refused),
        };
        if is_good && begins_event(&read.bytes) {
            return Ok(self.events(respond(parts, read)));
        }
        // Whatever its type says: what cannot be read may have the text of skills in it. That something is gone has nothing.
        if is_good && !is_deleted && !read.bytes.trim_ascii().is_empty() && json::object(&read.bytes).is_err() {
            let unread = Fault::new(
                502,
                "The provider's stored answer is not a JSON object, so it is not shown.",
            );
            return Ok(fault(&unread, self.answer_path.format));
        }
        let shown = self.shown(&parts, &read);
        Ok(respond(parts, in_place_of(read, shown)?))
    }

    /// The events that the provider has of a response in the background; those of any other are refused.
    fn events(&self, answer: Response) -> Response {
        if !self.form().streams {
            return self.no_stream();
        }
        let events = StoredEvents::new(self.form().clone(), Some(self.answer_path.id.clone()));
        let (mut parts, body) = answer.into_parts();
        parts.headers.remove(CONTENT_LENGTH);
        let pieces = (body.into_data_stream(), Some(events));
        let shown = futures::stream::unfold(pieces, |(mut pieces, events)| async move {
            let mut events = events?;
            match pieces.next().await {
                Some(Ok(piece)) => Some((Ok(events.push(&piece)), (pieces, Some(events)))),
                Some(Err(error)) => Some((Err(error), (pieces, None))),
                None => Some((Ok(events.rest()), (pieces, None))),
            }
        });
        Response::from_parts(parts, Body::from_stream(shown))
    }

    /// The body for the client, made from the stored answer that was read, or from the provider's error.
    fn shown(&self, parts: &Parts, read: &HeldBody) -> Vec<u8> {
        let (form, id) = (self.form(), &self.answer_path.id);
        match self.answer_path.format {
            _ if !parts.status.is_success() => self.named(&read.bytes),
            Format::Chat => form.completion(&read.bytes, id),
            _ => form.response(&read.bytes, id),
        }
    }

    /// An error with the id that the client knows.
    fn named(&self, body: &[u8]) -> Vec<u8> {
        String::from_utf8_lossy(body)
            .replace(self.state(), &self.answer_path.id)
            .into_bytes()
    }

    /// Deletes the whole answer, and then the rounds that only the provider knows of. If the client leaves in between,
    /// some rounds may remain at the provider; its next request gets the error that the answer does not exist.
    async fn delete(&self, request: Request) -> Result<Response, OverBudget> {
        let answer = self.read(request).await?;
        if answer.status().is_success() || answer.status() == StatusCode::NOT_FOUND {
            self.delete_rounds().await;
        }
        Ok(answer)
    }

    /// Deletes the other rounds, as far as the provider does it in time.
    async fn delete_rounds(&self) {
        let rounds = &self.form().rounds;
        let mut left = rounds.len();
        let paths = rounds.iter().take(MAX_DELETED);
        let paths: Vec<String> = paths
            .filter_map(|id| self.answer_path.with(id, &self.answer_path.query.text()))
            .collect();
        let mut deleting = futures::stream::iter(paths)
            .map(|path| {
                let ProviderReader {
                    gateway, api, headers, ..
                } = &self.reader;
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
                "a stored answer was deleted, but the provider still stores some of its rounds"
            );
        }
    }
}

/// Whether a content type, whose words have any case, is that of JSON.
fn is_json(content_type: &str) -> bool {
    let kind = content_type.split(';').next().unwrap_or_default();
    kind.trim().eq_ignore_ascii_case("application/json")
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
