//! The id of a request, made once where the request comes in.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::Extensions;

/// The id of a request, among its extensions. Header, log, spans, exemplars, history and `knack trace` have the same.
#[derive(Debug, Clone)]
pub struct RequestId(Arc<Named>);

#[derive(Debug)]
struct Named {
    id: String,
    /// The request has its line and is counted, or will be: what is around it must not do that again.
    is_reported: AtomicBool,
}

impl RequestId {
    /// An id for a request that comes in now, a UUIDv7: log lines and recordings sort by time.
    pub(crate) fn now() -> Self {
        Self(Arc::new(Named {
            id: uuid::Uuid::now_v7().to_string(),
            is_reported: AtomicBool::default(),
        }))
    }

    /// The id as text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0.id
    }

    /// Notes that the request is reported, or will be.
    pub(crate) fn set_reported(&self) {
        self.0.is_reported.store(true, Ordering::Relaxed);
    }

    /// Whether it is.
    pub(crate) fn is_reported(&self) -> bool {
        self.0.is_reported.load(Ordering::Relaxed)
    }

    /// The id of the request with these extensions. A request that did not come through the router has none, and gets
    /// one.
    pub fn find(extensions: &Extensions) -> Self {
        extensions.get::<Self>().cloned().unwrap_or_else(Self::now)
    }

    /// The text of [`RequestId::find`].
    pub fn of(extensions: &Extensions) -> String {
        Self::find(extensions).as_str().to_owned()
    }
}
