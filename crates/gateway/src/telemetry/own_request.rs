//! The report on a request to an API of the gateway's own: files, containers, uploaded skills, MCP. No model is asked and no provider.

use axum::extract::Request;
use axum::response::Response;
use http::Method;
use tokio::time::Instant;

use super::log::RequestLog;
use super::request_report::cut_copy;
use super::timeline::millis;
use crate::http_server::fault::HEADER_REQUEST_ID;
use crate::http_server::request_id::RequestId;
use crate::state::Gateway;

/// A request that is being answered. Its client has left if it is dropped without an answer.
#[derive(Debug)]
pub struct OwnRequest<'a> {
    gateway: &'a Gateway,
    request_id: RequestId,
    format: &'static str,
    method: Method,
    path: String,
    /// What its body asks for, where the path does not say it.
    asked: Option<String>,
    /// It is frequent and asks for nothing.
    is_sign_of_life: bool,
    /// The error that it ends with, where its status does not say it.
    error: Option<String>,
    begun: Instant,
    has_ended: bool,
}

impl<'a> OwnRequest<'a> {
    /// A request that begins now. `format`: the API's word in logs and metrics.
    pub fn begin(gateway: &'a Gateway, format: &'static str, request: &Request) -> Self {
        // Without the query, which may hold a key.
        Self::begin_at(gateway, format, request, request.uri().path())
    }

    /// A request that begins now, with the path as the log shows it. `format`: as of [`Self::begin`].
    pub(crate) fn begin_at(gateway: &'a Gateway, format: &'static str, request: &Request, path: &str) -> Self {
        Self {
            gateway,
            request_id: RequestId::find(request.extensions()),
            format,
            method: request.method().clone(),
            path: cut_copy(path),
            asked: None,
            is_sign_of_life: false,
            error: None,
            begun: Instant::now(),
            has_ended: false,
        }
    }

    /// Notes what its body asks for; `is_sign_of_life`: nothing, and often, as a probe does. Its line is at `debug` unless it fails,
    /// and nothing else counts it.
    pub fn asks(&mut self, what: &str, is_sign_of_life: bool) {
        self.asked = (!what.is_empty()).then(|| cut_copy(what));
        self.is_sign_of_life = is_sign_of_life;
    }

    /// Notes the error that its answer says.
    pub fn fails(&mut self, error: String) {
        self.error = Some(error);
    }

    /// Reports its answer by console line, log entry and metrics, under the id in the answer's header. The answer of a registry
    /// elsewhere has the registry's own id too, which is in its log. `knack trace` has no line: there is nothing to see beside
    /// these, and its memory is for requests of models.
    pub fn answered(mut self, response: Response) -> Response {
        self.has_ended = true;
        let id = |name: &str| response.headers().get(name)?.to_str().ok();
        let request_id = id(HEADER_REQUEST_ID.as_str()).unwrap_or(self.request_id.as_str());
        let sdk_id = id("request-id").or_else(|| id("x-request-id"));
        let registry_request_id = sdk_id.filter(|sdk_id| *sdk_id != request_id);
        let log = RequestLog {
            status: response.status().as_u16(),
            ..self.log(request_id)
        };
        self.report(&log, registry_request_id);
        response
    }

    /// Something else reports it.
    pub(crate) fn reported_elsewhere(mut self) {
        self.has_ended = true;
    }

    fn log(&self, request_id: &str) -> RequestLog {
        RequestLog {
            request_id: request_id.to_owned(),
            format: self.format,
            is_own: true,
            subject: self
                .asked
                .clone()
                .unwrap_or_else(|| format!("{} {}", self.method, self.path)),
            end: self.error.clone(),
            duration: self.begun.elapsed(),
            ..RequestLog::default()
        }
    }

    fn report(&self, log: &RequestLog, registry_request_id: Option<&str>) {
        if self.request_id.is_reported() {
            return;
        }
        let asked = self.asked.as_deref();
        let (end, duration_ms) = (log.end.as_deref().unwrap_or("answer"), millis(log.duration));
        if self.is_sign_of_life && log.end.is_none() && log.status < 400 {
            tracing::debug!(request_id = %log.request_id, format = log.format, asked, status = log.status, duration_ms, end, "request");
            return;
        }
        self.gateway.metrics.request(log);
        self.gateway.console.show(log);
        tracing::info!(
            request_id = %log.request_id, registry_request_id, format = log.format, method = %self.method, path = %self.path, asked,
            status = log.status, duration_ms, end, "request"
        );
    }
}

impl Drop for OwnRequest<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            let mut log = self.log(self.request_id.as_str());
            log.dropped(self.gateway.is_cut());
            self.report(&log, None);
        }
    }
}
