//! The input items of a response that the provider keeps: what the client sent.

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use knack_wire::{Fault, Format, ItemPage, ItemsAsked};

use super::{MAX_BODY, PagedList, Stored, page_with_own, set_path};
use crate::fault::fault;

/// The items of a response, as far as they were asked for.
struct ItemList<'s> {
    stored: &'s Stored,
    asked: ItemsAsked,
}

impl Stored {
    /// A page of what the client sent.
    pub(super) async fn items(&self, mut request: Request) -> Response {
        let query = &self.place.query;
        let behind = query.get("after").filter(|id| self.view().lists_run(id));
        let asked = ItemsAsked {
            behind: behind.map(str::to_owned),
            most: query.limit(),
            ascending: query.get("order") == Some("asc"),
        };
        let mut list = ItemList { stored: self, asked };
        // The provider does not know the run: its place is looked for from the beginning.
        let from_beginning = self.place.with(&self.place.id, &query.first_page().text());
        if let Some(path) = from_beginning.filter(|_| list.asked.behind.is_some()) {
            set_path(&mut request, &path);
        }
        let (parts, body) = match self.asking.pass_whole(request, Format::Responses).await {
            Ok(answer) => answer,
            Err(other) => return other,
        };
        let Some(first) = self.view().page(&body, &mut list.asked) else {
            return Response::from_parts(parts, Body::from(body));
        };
        let Some(page) = page_with_own(first, &mut list).await else {
            let text = "The provider did not give the next items of the response.";
            return fault(&Fault::new(502, text), Format::Responses);
        };
        Response::from_parts(parts, Body::from(page.body))
    }
}

impl PagedList for ItemList<'_> {
    async fn next(&mut self, after: &str) -> Option<ItemPage> {
        let place = &self.stored.place;
        let path = place.with(&place.id, &place.query.page_after(after)?)?;
        let body = self.stored.asking.get(&path, MAX_BODY).await?;
        self.stored.view().page(&body, &mut self.asked)
    }
}
