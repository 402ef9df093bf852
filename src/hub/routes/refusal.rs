//! A refusal as an HTTP answer.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use knack_hub_api::{HEADER_PROTOCOL, HubRefusal, PROTOCOL};

use crate::hub::metrics::RefusalLabels;

/// A refusal of a route.
#[derive(Debug)]
pub struct RefusalResponse {
    route: &'static str,
    refusal: HubRefusal,
}

impl RefusalResponse {
    /// A refusal by the route with this name.
    pub const fn new(route: &'static str, refusal: HubRefusal) -> Self {
        Self { route, refusal }
    }
}

impl IntoResponse for RefusalResponse {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.refusal.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        // For metrics, beside the answer.
        let counted = RefusalLabels {
            route: self.route,
            code: self.refusal.code.as_str(),
        };
        let retry_after = self.refusal.retry_after_seconds;
        let mut response = (status, Json(self.refusal)).into_response();
        let headers = response.headers_mut();
        headers.insert(HEADER_PROTOCOL, HeaderValue::from(PROTOCOL));
        if let Some(seconds) = retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response.extensions_mut().insert(counted);
        response
    }
}
