//! The context that one request is served from.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ::http::request::Parts;
use bytes::Bytes;
use knack_execution::Executor;
use knack_wire::history::Caller;
use rmcp::model::PaginatedRequestParams;
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::Value;

use crate::mcp_catalog::McpCatalog;

/// The context that a request is served from.
#[derive(Debug, Clone)]
pub(crate) struct CallContext {
    pub(crate) caller: Caller,
    pub(crate) mcp_catalog: Arc<McpCatalog>,
    pub(crate) executor: Arc<dyn Executor>,
    /// Whether a tool was called: what has been done once must not be asked for again.
    pub(crate) called: Arc<AtomicBool>,
    /// The request as it came.
    pub(crate) body: Bytes,
}

impl CallContext {
    /// The cursor of a list. The SDK takes parameters of another shape as none, which would be the first page again.
    /// Errors: it is no string.
    pub(crate) fn cursor(&self, request: Option<PaginatedRequestParams>) -> Result<Option<String>, ErrorData> {
        if let Some(request) = request {
            return Ok(request.cursor);
        }
        let body: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        match &body["params"]["cursor"] {
            Value::Null => Ok(None),
            _ => Err(bad_cursor()),
        }
    }
}

/// The refusal of a cursor that no answer had.
pub(crate) fn bad_cursor() -> ErrorData {
    let text = "cursor: must be the nextCursor of an answer to the same method; omit it for the first page";
    ErrorData::invalid_params(text, None)
}

/// The head of the HTTP request, and what was found for it.
pub(crate) fn call_context(context: &RequestContext<RoleServer>) -> Result<(&Parts, &CallContext), ErrorData> {
    let parts = context.extensions.get::<Parts>();
    parts
        .and_then(|parts| Some((parts, parts.extensions.get::<CallContext>()?)))
        .ok_or_else(|| ErrorData::internal_error("the request came without its head", None))
}
