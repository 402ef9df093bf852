//! Requests to the APIs of uploaded skills.

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use http::request::Parts;
use knack_registry::{RefusalKind, deny, route};
use knack_wire::Format;

use super::uploads::Uploads;
use crate::callers::caller;
use crate::http_server::budget::BodyError;
use crate::http_server::fault::{RETRY_AFTER_SECONDS, body_fault, error_format, fault};
use crate::http_server::request_id::RequestId;
use crate::state::Gateway;
use crate::telemetry::log::SKILLS_API;
use crate::telemetry::own_request::OwnRequest;

/// Serves a request to one of these APIs.
pub(crate) async fn serve(gateway: &Gateway, uploads: &dyn Uploads, request: Request) -> Response {
    let own = OwnRequest::begin(gateway, SKILLS_API, &request);
    own.answered(answer(gateway, uploads, request).await)
}

async fn answer(gateway: &Gateway, uploads: &dyn Uploads, request: Request) -> Response {
    let format = error_format(&request);
    let is_nobodys = lacks_credential(uploads, &request);
    let (parts, body) = request.into_parts();
    let base = gateway.served().catalog.snapshot().await;
    if is_nobodys {
        return uploads.answer(&parts, Bytes::new(), base).await;
    }
    let counted = caller::counted(&gateway.secret.current(), &parts);
    match gateway.requests.read(&counted.bucket(), &parts.headers, body).await {
        // Its part of the budget is held until the answer is there.
        Ok(held) => uploads.answer(&parts, held.bytes.clone(), base).await,
        Err(error) => refused(&parts, error, format),
    }
}

/// Whether a request has no credential where that says whose skills it is about.
pub(crate) fn lacks_credential(uploads: &dyn Uploads, request: &Request) -> bool {
    uploads.is_by_credential() && !caller::has_credential(request.headers(), request.uri())
}

/// The refusal of a body, in the shape of the Skills API that was asked; of a path that none of them has, in the `format` of
/// the model API.
pub(crate) fn refused(parts: &Parts, error: BodyError, format: Format) -> Response {
    let cause = body_fault(error);
    let Some(call) = route(&parts.method, parts.uri.path(), parts.uri.query(), &parts.headers) else {
        return fault(&cause, format);
    };
    let (denial, after) = match error {
        BodyError::TooLarge => (RefusalKind::TooLarge, None),
        BodyError::Busy(_) => (RefusalKind::Unavailable, RETRY_AFTER_SECONDS.parse().ok()),
        BodyError::Late => (RefusalKind::Late, None),
        BodyError::Broken => (RefusalKind::Invalid, None),
    };
    deny(&call, denial, cause.message, after, &RequestId::of(&parts.extensions)).map(Body::from)
}
