//! The context that one request is served from.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ::http::request::Parts;
use knack_execution::Executor;
use knack_wire::history::Caller;
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};

use crate::offer::Offer;

/// The context that a request is served from.
#[derive(Debug, Clone)]
pub(crate) struct CallContext {
    pub(crate) caller: Caller,
    pub(crate) offer: Arc<Offer>,
    pub(crate) executor: Arc<dyn Executor>,
    /// Whether a tool was called: what has been done once must not be asked for again.
    pub(crate) called: Arc<AtomicBool>,
}

/// The head of the HTTP request, and what was found for it.
pub(crate) fn call_context(context: &RequestContext<RoleServer>) -> Result<(&Parts, &CallContext), ErrorData> {
    let parts = context.extensions.get::<Parts>();
    parts
        .and_then(|parts| Some((parts, parts.extensions.get::<CallContext>()?)))
        .ok_or_else(|| ErrorData::internal_error("the request came without its head", None))
}
