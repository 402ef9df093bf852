//! The input items of a response that the provider keeps: what the client sent.

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use knack_wire::{Fault, Format, ItemPage, ItemsAsked};

use super::{MAX_BODY, MAX_PAGES, Stored, set_path};
use crate::fault::fault;

impl Stored {
    /// A page of what the client sent. Pages of the provider's without any of it are passed over, since clients take a page
    /// without items for the last.
    pub(super) async fn items(&self, mut request: Request) -> Response {
        let query = &self.place.query;
        let behind = query.get("after").filter(|id| self.view().lists_run(id));
        let mut asked = ItemsAsked {
            behind: behind.map(str::to_owned),
            most: query.limit(),
            ascending: query.get("order") == Some("asc"),
        };
        // The provider does not know the run: its place is looked for from the beginning.
        let from_beginning = self.place.with(&self.place.id, &query.first_page().text());
        if let Some(path) = from_beginning.filter(|_| asked.behind.is_some()) {
            set_path(&mut request, &path);
        }
        let (parts, body) = match self.asking.pass_whole(request, Format::Responses).await {
            Ok(answer) => answer,
            Err(other) => return other,
        };
        let Some(first) = self.view().page(&body, &mut asked) else {
            return Response::from_parts(parts, Body::from(body));
        };
        let Some(page) = self.page_with_items(first, asked).await else {
            let text = "The provider did not give the next items of the response.";
            return fault(&Fault::new(502, text), Format::Responses);
        };
        Response::from_parts(parts, Body::from(page.body))
    }

    /// The first page that has an item of the client's, from this one on, or the last one. `None`: the provider did not give
    /// one, or there were [`MAX_PAGES`].
    async fn page_with_items(&self, mut page: ItemPage, mut asked: ItemsAsked) -> Option<ItemPage> {
        for _ in 1..MAX_PAGES {
            let Some(after) = page.next.take() else {
                return Some(page);
            };
            let path = self.place.with(&self.place.id, &self.place.query.page_after(&after)?)?;
            let body = self.asking.get(&path, MAX_BODY).await?;
            page = self.view().page(&body, &mut asked)?;
        }
        page.next.is_none().then_some(page)
    }
}
