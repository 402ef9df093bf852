//! Chat completions that the provider keeps: their list, and the messages of one. One by its id is as a response.

use std::collections::HashMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use knack_wire::history::TurnRecord;
use knack_wire::json::{self, Span};
use knack_wire::stored::{self, ListedCompletion};
use knack_wire::{Fault, Format, ItemPage};

use super::place::Query;
use super::{Asking, MAX_BODY, MAX_PAGES, PagedList, Stored, page_with_own, set_path};
use crate::fault::fault;

/// A list of completions that is asked for.
struct Listing {
    asking: Asking,
    path: String,
    query: Query,
}

/// Passes a list of completions: each answer once, as its client was shown it.
pub(super) async fn list(asking: Asking, mut request: Request) -> Response {
    let mut listing = Listing {
        asking,
        path: request.uri().path().to_owned(),
        query: Query::of(request.uri()),
    };
    if let Some(query) = listing.behind_answer().await {
        set_path(&mut request, &format!("{}{query}", listing.path));
    }
    let (parts, body) = match listing.asking.pass_whole(request, Format::Chat).await {
        Ok(answer) => answer,
        Err(other) => return other,
    };
    let Some(page) = listing.page(&body, usize::MAX).await else {
        return Response::from_parts(parts, Body::from(body));
    };
    let Some(page) = page_with_own(page, &mut listing).await else {
        return incomplete("The provider did not give the next completions of the list.");
    };
    Response::from_parts(parts, Body::from(page.body))
}

impl Listing {
    /// The client's query, if it goes on behind an answer that is under another id: behind the last of its rounds.
    async fn behind_answer(&self) -> Option<String> {
        let after = self.query.get("after")?.to_owned();
        let record = self.asking.records(std::slice::from_ref(&after)).await.remove(&after)?;
        (record.state != after)
            .then(|| self.query.behind(&record.state))
            .flatten()
    }

    /// A page in the client's terms, and at most `most` of it; `None`: it is no list.
    async fn page(&self, body: &[u8], most: usize) -> Option<ItemPage> {
        let mut known = self.asking.records(&stored::list_ids(body)).await;
        // The last round of an answer stands for all of it: what is known of the answer is under its own id.
        let ended = |(id, record): (&String, &Arc<TurnRecord>)| {
            let answer = &record.stored.as_ref()?.part_of;
            (record.state == *id && !answer.is_empty() && !known.contains_key(answer)).then(|| answer.clone())
        };
        let answers: Vec<String> = known.iter().filter_map(ended).collect();
        known.extend(self.asking.records(&answers).await);
        stored::completions_page(body, most, |id| listed(&known, id))
    }
}

impl PagedList for Listing {
    async fn next(&mut self, after: &str) -> Option<ItemPage> {
        let path = format!("{}{}", self.path, self.query.page_after(after)?);
        let body = self.asking.get(&path, MAX_BODY).await?;
        self.page(&body, self.query.limit()).await
    }
}

/// What is known of a completion that the provider lists.
fn listed<'v>(known: &'v HashMap<String, Arc<TurnRecord>>, id: &str) -> Option<ListedCompletion<'v>> {
    let (own, record) = known.get_key_value(id)?;
    let view = record.stored.as_ref()?;
    if record.state != id {
        return Some(ListedCompletion::Round);
    }
    if view.part_of.is_empty() {
        return Some(ListedCompletion::Answer(own, view));
    }
    let answer = known.get_key_value(&view.part_of);
    let shown = answer.and_then(|(own, record)| Some(ListedCompletion::Answer(own, record.stored.as_ref()?)));
    Some(shown.unwrap_or(ListedCompletion::Round))
}

impl Stored {
    /// The messages that the client sent, in pages of ours: which of the provider's are not the client's is known by
    /// their places only.
    pub(super) async fn messages(&self, mut request: Request) -> Response {
        let view = self.view();
        if view.messages.is_none() {
            return self.asking.pass(request).await;
        }
        if let Some(path) = self.place.with(&self.place.id, &self.place.query.all().text()) {
            set_path(&mut request, &path);
        }
        let (parts, body) = match self.asking.pass_whole(request, Format::Chat).await {
            Ok(answer) => answer,
            Err(other) => return other,
        };
        let Some(first) = stored::list_elements(&body) else {
            return Response::from_parts(parts, Body::from(body));
        };
        let Some(listed) = self.all_messages(first, MAX_BODY - body.len()).await else {
            return incomplete("The provider did not give all messages that the completion was asked with.");
        };
        let Some(shown) = view.sent_messages(&listed) else {
            return incomplete("The provider lists other messages than the completion was asked with.");
        };
        let Some(page) = page_of(shown, &self.place.query) else {
            let text = "\"after\" names no message of the completion.";
            return fault(&Fault::bad("after", text), Format::Chat);
        };
        Response::from_parts(parts, Body::from(page))
    }

    /// All messages that the provider lists, oldest first, from those of the first page on, and within so many bytes.
    async fn all_messages(
        &self,
        (mut all, mut next): (Vec<Vec<u8>>, Option<String>),
        mut room: usize,
    ) -> Option<Vec<Vec<u8>>> {
        let query = self.place.query.all();
        let mut pages = 1;
        while let Some(after) = next {
            if pages == MAX_PAGES {
                return None;
            }
            let path = self.place.with(&self.place.id, &query.behind(&after)?)?;
            let body = self.asking.get(&path, room).await?;
            let (more, behind) = stored::list_elements(&body)?;
            all.extend(more);
            (room, pages, next) = (room - body.len(), pages + 1, behind);
        }
        Some(all)
    }
}

/// The page of these messages that the client asks for; `None`: its cursor is none of them.
fn page_of(mut all: Vec<Vec<u8>>, asked: &Query) -> Option<Vec<u8>> {
    if asked.get("order") == Some("desc") {
        all.reverse();
    }
    if let Some(after) = asked.get("after").filter(|after| !after.is_empty()) {
        let is_named = |one: &Vec<u8>| json::get_text(one, Span::new(0, one.len()), "id").as_deref() == Some(after);
        let at = all.iter().position(is_named)?;
        all.drain(..=at);
    }
    let page = &all[..all.len().min(asked.limit())];
    Some(stored::list(page, page.len() < all.len()))
}

fn incomplete(text: &str) -> Response {
    fault(&Fault::new(502, text), Format::Chat)
}
