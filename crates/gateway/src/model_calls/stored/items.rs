//! The input items of a response that the provider keeps: what the client sent.

use axum::extract::Request;
use axum::response::Response;
use knack_memory::OverBudget;
use knack_wire::{Fault, Format, ItemsAsked};

use super::held_page::{HeldPage, PagedList, page_with_own, respond};
use super::provider_reader::MAX_BODY;
use super::{StoredAnswer, set_path};
use crate::http_server::fault::fault;

/// The items of a response, as far as they were asked for.
struct ItemList<'s> {
    stored: &'s StoredAnswer,
    asked: ItemsAsked,
}

impl StoredAnswer {
    /// A page of what the client sent.
    pub(super) async fn items(&self, mut request: Request) -> Result<Response, OverBudget> {
        let query = &self.answer_path.query;
        let behind = query.get("after").filter(|id| self.form().lists_run(id));
        let asked = ItemsAsked {
            behind: behind.map(str::to_owned),
            most: query.limit(),
            ascending: query.get("order") == Some("asc"),
        };
        let mut list = ItemList { stored: self, asked };
        // The provider does not know the run: its place is searched for from the beginning.
        let from_beginning = self.answer_path.with(&self.answer_path.id, &query.first_page().text());
        if let Some(path) = from_beginning.filter(|_| list.asked.behind.is_some()) {
            set_path(&mut request, &path);
        }
        let (parts, read) = match self.reader.pass_whole(request, Format::Responses).await {
            Ok(answer) => answer,
            Err(other) => return Ok(other),
        };
        let Some(first) = self.form().page(&read.bytes, &mut list.asked) else {
            let text = "The provider's list of items cannot be read, so it is not shown.";
            return Ok(fault(&Fault::new(502, text), Format::Responses));
        };
        let Some(page) = page_with_own(HeldPage::of(read, first)?, &mut list).await? else {
            let text = "The provider did not return the next page of the response's items.";
            return Ok(fault(&Fault::new(502, text), Format::Responses));
        };
        Ok(respond(parts, page.body))
    }
}

impl PagedList for ItemList<'_> {
    async fn next(&mut self, after: &str) -> Result<Option<HeldPage>, OverBudget> {
        let StoredAnswer {
            answer_path, reader, ..
        } = self.stored;
        let query = answer_path.query.page_after(after);
        let Some(path) = query.and_then(|query| answer_path.with(&answer_path.id, &query)) else {
            return Ok(None);
        };
        let Some(read) = reader.get(&path, MAX_BODY).await? else {
            return Ok(None);
        };
        let page = self.stored.form().page(&read.bytes, &mut self.asked);
        page.map(|page| HeldPage::of(read, page)).transpose()
    }
}
