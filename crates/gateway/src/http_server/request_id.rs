//! The id of a request, made once where the request comes in.

use std::sync::Arc;

use http::Extensions;

/// The id of a request, among its extensions. Header, log, spans, exemplars, history and `knack trace` have the same.
#[derive(Debug, Clone)]
pub struct RequestId(Arc<str>);

impl RequestId {
    /// An id for a request that comes in now, a UUIDv7: log lines and recordings sort by time.
    pub(crate) fn now() -> Self {
        Self(uuid::Uuid::now_v7().to_string().into())
    }

    /// The id as text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The id of the request with these extensions. A request that did not come through the router has none, and gets one.
    pub fn of(extensions: &Extensions) -> String {
        let id = extensions.get::<Self>().cloned();
        id.unwrap_or_else(Self::now).0.to_string()
    }
}
