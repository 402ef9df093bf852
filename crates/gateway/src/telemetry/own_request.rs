//! The report on a request to an API of the gateway's own: files, containers, uploaded skills. No model is asked and no provider.

use axum::response::Response;
use http::{HeaderValue, Method, Uri};
use tokio::time::Instant;

use super::log::RequestLog;
use super::request_report::cut_copy;
use crate::http_server::fault::{HEADER_REQUEST_ID, request_id, set_request_id};
use crate::state::Gateway;

/// A request that is being answered.
#[derive(Debug)]
pub(crate) struct OwnRequest {
    format: &'static str,
    method: Method,
    path: String,
    begun: Instant,
}

impl OwnRequest {
    /// A request that begins now. `format`: the API's word in logs and metrics.
    pub(crate) fn begin(format: &'static str, method: &Method, uri: &Uri) -> Self {
        Self {
            format,
            method: method.clone(),
            // Without the query, which may hold a key.
            path: cut_copy(uri.path()),
            begun: Instant::now(),
        }
    }

    /// Reports its answer by console line, log entry and metrics, under the id that the answer has or gets here. `knack trace` has
    /// no line: there is nothing to see beside these, and its memory is for requests of models.
    pub(crate) fn answered(self, gateway: &Gateway, mut response: Response) -> Response {
        let headers = response.headers_mut();
        let known = headers.get(HEADER_REQUEST_ID).map(HeaderValue::to_str);
        let request_id = if let Some(Ok(id)) = known {
            id.to_owned()
        } else {
            let id = request_id();
            set_request_id(headers, &id);
            id
        };
        let log = RequestLog {
            request_id,
            format: self.format,
            model: format!("{} {}", self.method, self.path),
            status: response.status().as_u16(),
            duration: self.begun.elapsed(),
            ..RequestLog::default()
        };
        gateway.metrics.request(&log);
        gateway.console.show(&log);
        tracing::info!(
            request_id = %log.request_id, format = log.format, method = %self.method, path = %self.path, status = log.status,
            duration_ms = u64::try_from(log.duration.as_millis()).unwrap_or(u64::MAX), "request"
        );
        response
    }
}
