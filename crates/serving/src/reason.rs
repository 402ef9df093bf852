//! The reason phrase of a status line, which an answer that is passed on keeps.

use axum::response::Response;
use http::{Extensions, StatusCode};
use hyper::ext::ReasonPhrase;

/// The reason of an answer by HTTP/1.1, where it is another than the usual one of its status.
#[derive(Debug, Clone, Default)]
pub struct StatusReason(Option<ReasonPhrase>);

impl StatusReason {
    /// The reason of an answer with these extensions.
    pub fn of(extensions: &Extensions) -> Self {
        Self(extensions.get().cloned())
    }

    /// Gives it to an answer. Of a status without a usual reason, as 529, the answer has none unless the other side gave one: hyper
    /// would make one up.
    pub fn give(self, answer: &mut Response) {
        let nameless = |status: StatusCode| {
            let is_nameless = status.canonical_reason().is_none();
            is_nameless.then(|| ReasonPhrase::from_static(b""))
        };
        if let Some(reason) = self.0.or_else(|| nameless(answer.status())) {
            answer.extensions_mut().insert(reason);
        }
    }
}
