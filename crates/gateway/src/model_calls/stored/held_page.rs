//! What is read of the provider and made of it, with its share of the memory budget from its arrival until the client has it.
//!
//! Clients choose how much is read, and how many of them read at once. What they read counts as the bodies of their
//! requests do: an account takes a part of the budget only, and is answered to try again where there is no room.

use axum::body::Body;
use axum::response::Response;
use http::response::Parts;
use knack_memory::OverBudget;
use knack_serving::until_sent;
use knack_wire::{Format, ItemPage};

use crate::http_server::budget::{BodyError, HeldBody};
use crate::http_server::fault::{body_fault, fault};

/// Most pages that are read for one page of the client's: more than all items that a form can hide.
pub(super) const MAX_PAGES: usize = 16;

/// A page of a list in the client's terms.
pub(super) struct HeldPage {
    pub(super) body: HeldBody,
    /// [`ItemPage::next`].
    next: Option<String>,
}

/// A list of the provider's that is read in pages.
pub(super) trait PagedList {
    /// The page behind an element, in the client's terms; `None`: the provider did not give it.
    fn next(&mut self, after: &str) -> impl Future<Output = Result<Option<HeldPage>, OverBudget>> + Send;
}

impl HeldPage {
    /// A page that was made of a body.
    pub(super) fn of(read: HeldBody, page: ItemPage) -> Result<Self, OverBudget> {
        let body = in_place_of(read, page.body)?;
        let next = page.next;
        Ok(Self { body, next })
    }
}

/// Replaces a body by what was made of it. Both are in memory only while one thread makes the second.
pub(super) fn in_place_of(read: HeldBody, made: Vec<u8>) -> Result<HeldBody, OverBudget> {
    let HeldBody { bytes, mut holding } = read;
    drop(bytes);
    holding.grow_to(made.len())?;
    holding.shrink_to(made.len());
    let bytes = made.into();
    Ok(HeldBody { bytes, holding })
}

/// The first page that has something of the client's, from this one on; the others are passed over, since clients take a page
/// without elements for the last. `None`: the provider did not give one, or there were [`MAX_PAGES`].
pub(super) async fn page_with_own(
    mut page: HeldPage,
    list: &mut impl PagedList,
) -> Result<Option<HeldPage>, OverBudget> {
    for _ in 1..MAX_PAGES {
        let Some(after) = page.next.take() else {
            return Ok(Some(page));
        };
        match list.next(&after).await? {
            Some(next) => page = next,
            None => return Ok(None),
        }
    }
    Ok(page.next.is_none().then_some(page))
}

/// An answer whose share is given back when it is sent, or its client has left.
pub(super) fn respond(parts: Parts, body: HeldBody) -> Response {
    Response::from_parts(parts, Body::from(until_sent(body.bytes, body.holding)))
}

/// The answer where there is no room for what would be read.
pub(super) fn too_busy(over: OverBudget, format: Format) -> Response {
    fault(&body_fault(BodyError::Busy(over)), format)
}
