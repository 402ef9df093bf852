//! Chat completions that the provider keeps: their list, and the messages of one. One by its id is as a response.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::Request;
use axum::response::Response;
use knack_memory::OverBudget;
use knack_wire::history::SavedTurn;
use knack_wire::json::{self, Span};
use knack_wire::stored::{self, ListedCompletion};
use knack_wire::{Fault, Format, ItemPage};

use super::answer_path::Query;
use super::held_page::{HeldPage, MAX_PAGES, PagedList, page_with_own, respond};
use super::provider_reader::{MAX_BODY, ProviderReader};
use super::{StoredAnswer, set_path};
use crate::http_server::budget::{HeldBody, Holding};
use crate::http_server::fault::fault;

/// All messages that a completion was asked with, as the provider lists them.
struct Messages {
    all: Vec<Vec<u8>>,
    /// Their share of the memory budget, of each page.
    _held: Vec<Holding>,
}

/// A list of completions that is asked for.
struct Listing {
    reader: ProviderReader,
    path: String,
    query: Query,
}

/// Passes a list of completions: each answer once, as its client was shown it.
pub(super) async fn list(reader: ProviderReader, mut request: Request) -> Result<Response, OverBudget> {
    let mut listing = Listing {
        reader,
        path: request.uri().path().to_owned(),
        query: Query::of(request.uri()),
    };
    if let Some(query) = listing.behind_answer().await {
        set_path(&mut request, &format!("{}{query}", listing.path));
    }
    let (parts, read) = match listing.reader.pass_whole(request, Format::Chat).await {
        Ok(answer) => answer,
        Err(other) => return Ok(other),
    };
    let Some(first) = listing.page(&read.bytes, usize::MAX).await else {
        return Ok(incomplete("The provider's list cannot be read, so it is not shown."));
    };
    let Some(page) = page_with_own(HeldPage::of(read, first)?, &mut listing).await? else {
        return Ok(incomplete("The provider did not return the next page of completions."));
    };
    Ok(respond(parts, page.body))
}

impl Listing {
    /// The client's query, if it goes on behind an answer that is under another id: behind the last of its rounds.
    async fn behind_answer(&self) -> Option<String> {
        let after = self.query.get("after")?.to_owned();
        let saved = self
            .reader
            .saved_turns(std::slice::from_ref(&after))
            .await
            .remove(&after)?;
        (saved.state != after)
            .then(|| self.query.behind(&saved.state))
            .flatten()
    }

    /// A page in the client's terms, and at most `most` of it; `None`: it is no list.
    async fn page(&self, body: &[u8], most: usize) -> Option<ItemPage> {
        let mut known = self.reader.saved_turns(&stored::list_ids(body)).await;
        // Only the last round of an answer counts here: the saved turn of the answer has the answer's own id.
        let ended = |(id, saved): (&String, &Arc<SavedTurn>)| {
            let answer = &saved.stored.as_ref()?.part_of;
            (saved.state == *id && !answer.is_empty() && !known.contains_key(answer)).then(|| answer.clone())
        };
        let answers: Vec<String> = known.iter().filter_map(ended).collect();
        known.extend(self.reader.saved_turns(&answers).await);
        stored::completions_page(body, most, |id| listed(&known, id))
    }
}

impl PagedList for Listing {
    async fn next(&mut self, after: &str) -> Result<Option<HeldPage>, OverBudget> {
        let Some(query) = self.query.page_after(after) else {
            return Ok(None);
        };
        let path = format!("{}{query}", self.path);
        let Some(read) = self.reader.get(&path, MAX_BODY).await? else {
            return Ok(None);
        };
        let page = self.page(&read.bytes, self.query.limit()).await;
        page.map(|page| HeldPage::of(read, page)).transpose()
    }
}

/// What is known of a completion that the provider lists.
fn listed<'v>(known: &'v HashMap<String, Arc<SavedTurn>>, id: &str) -> Option<ListedCompletion<'v>> {
    let (own, saved) = known.get_key_value(id)?;
    let form = saved.stored.as_ref()?;
    if saved.state != id {
        return Some(ListedCompletion::Round);
    }
    if form.part_of.is_empty() {
        return Some(ListedCompletion::Answer(own, form));
    }
    let answer = known.get_key_value(&form.part_of);
    let shown = answer.and_then(|(own, saved)| Some(ListedCompletion::Answer(own, saved.stored.as_ref()?)));
    Some(shown.unwrap_or(ListedCompletion::Round))
}

impl StoredAnswer {
    /// The messages that the client sent, in Knack's pages: which of the provider's are not the client's is known by
    /// their places only.
    pub(super) async fn messages(&self, mut request: Request) -> Result<Response, OverBudget> {
        let form = self.form();
        if form.messages.is_none() {
            return Ok(self.reader.pass(request).await);
        }
        if let Some(path) = self
            .answer_path
            .with(&self.answer_path.id, &self.answer_path.query.all().text())
        {
            set_path(&mut request, &path);
        }
        let (parts, read) = match self.reader.pass_whole(request, Format::Chat).await {
            Ok(answer) => answer,
            Err(other) => return Ok(other),
        };
        let Some(first) = stored::list_elements(&read.bytes) else {
            return Ok(incomplete("The provider's list cannot be read, so it is not shown."));
        };
        let Some(listed) = self.all_messages(first, read).await? else {
            let text = "The provider did not return all messages of the completion's request.";
            return Ok(incomplete(text));
        };
        let Some(shown) = form.sent_messages(&listed.all) else {
            let text = "The messages that the provider lists are not those of the completion's request.";
            return Ok(incomplete(text));
        };
        let Some(page) = page_of(shown, &self.answer_path.query) else {
            let text = "\"after\" names no message of the completion.";
            return Ok(fault(&Fault::bad("after", text), Format::Chat));
        };
        drop(listed);
        Ok(respond(parts, self.reader.hold(page)?))
    }

    /// All messages that the provider lists, oldest first, from those of the first page on, within [`MAX_BODY`]. `None`: the
    /// provider did not give all of them.
    async fn all_messages(
        &self,
        (mut all, mut next): (Vec<Vec<u8>>, Option<String>),
        read: HeldBody,
    ) -> Result<Option<Messages>, OverBudget> {
        let query = self.answer_path.query.all();
        let mut room = MAX_BODY - read.bytes.len();
        // The messages replace the body that they were read from.
        let mut held = vec![read.holding];
        while let Some(after) = next {
            if held.len() == MAX_PAGES {
                return Ok(None);
            }
            let query = query.behind(&after);
            let Some(path) = query.and_then(|query| self.answer_path.with(&self.answer_path.id, &query)) else {
                return Ok(None);
            };
            let Some(read) = self.reader.get(&path, room).await? else {
                return Ok(None);
            };
            let Some((more, behind)) = stored::list_elements(&read.bytes) else {
                return Ok(None);
            };
            all.extend(more);
            room -= read.bytes.len();
            held.push(read.holding);
            next = behind;
        }
        Ok(Some(Messages { all, _held: held }))
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
