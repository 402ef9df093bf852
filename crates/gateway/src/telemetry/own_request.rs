//! The report on a request to an API of the gateway's own: files, containers, uploaded skills. No model is asked and no provider.

use axum::extract::Request;
use axum::response::Response;
use http::Method;
use tokio::time::Instant;

use super::log::RequestLog;
use super::request_report::cut_copy;
use crate::http_server::fault::HEADER_REQUEST_ID;
use crate::http_server::request_id::RequestId;
use crate::state::Gateway;

/// A request that is being answered.
#[derive(Debug)]
pub(crate) struct OwnRequest {
    request_id: String,
    format: &'static str,
    method: Method,
    path: String,
    begun: Instant,
}

impl OwnRequest {
    /// A request that begins now. `format`: the API's word in logs and metrics.
    pub(crate) fn begin(format: &'static str, request: &Request) -> Self {
        Self {
            request_id: RequestId::of(request.extensions()),
            format,
            method: request.method().clone(),
            // Without the query, which may hold a key.
            path: cut_copy(request.uri().path()),
            begun: Instant::now(),
        }
    }

    /// Reports its answer by console line, log entry and metrics, under the id in the answer's header. The answer of a registry
    /// elsewhere has the registry's own id too, which is in its log. `knack trace` has no line: there is nothing to see beside
    /// these, and its memory is for requests of models.
    pub(crate) fn answered(self, gateway: &Gateway, response: Response) -> Response {
        let id = |name: &str| response.headers().get(name)?.to_str().ok();
        let request_id = id(HEADER_REQUEST_ID.as_str()).unwrap_or(&self.request_id);
        let sdk_id = id("request-id").or_else(|| id("x-request-id"));
        let registry_request_id = sdk_id.filter(|sdk_id| *sdk_id != request_id);
        let log = RequestLog {
            request_id: request_id.to_owned(),
            format: self.format,
            model: format!("{} {}", self.method, self.path),
            status: response.status().as_u16(),
            duration: self.begun.elapsed(),
            ..RequestLog::default()
        };
        gateway.metrics.request(&log);
        gateway.console.show(&log);
        tracing::info!(
            request_id = %log.request_id, registry_request_id, format = log.format, method = %self.method, path = %self.path,
            status = log.status, duration_ms = u64::try_from(log.duration.as_millis()).unwrap_or(u64::MAX), "request"
        );
        response
    }
}
