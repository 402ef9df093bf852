//! Requests to the APIs of uploaded skills.

use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;

use super::caller;
use super::fault::{body_fault, error_format, fault};

use super::state::Gateway;
use super::uploads::Uploads;

/// Serves a request to one of these APIs.
pub async fn serve(gateway: &Gateway, uploads: &dyn Uploads, request: Request) -> Response {
    let format = error_format(&request);
    let (parts, body) = request.into_parts();
    let base = gateway.served().catalog.snapshot().await;
    if uploads.is_by_credential() && !caller::has_credential(&parts.headers, &parts.uri) {
        return uploads.answer(&parts, Bytes::new(), base).await;
    }
    let caller = caller::identify(&gateway.secret.current(), &parts.headers, &parts.uri);
    match gateway.requests.read(&caller.bucket(), &parts.headers, body).await {
        // Its part of the budget is held until the answer is there.
        Ok(held) => uploads.answer(&parts, held.bytes.clone(), base).await,
        Err(error) => fault(&body_fault(error), format),
    }
}
