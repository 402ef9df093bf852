//! A refusal as an HTTP answer.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use knack_hub_api::{HEADER_PROTOCOL, PROTOCOL, Problem};

/// A refusal of a route.
#[derive(Debug)]
pub struct Refused {
    route: &'static str,
    problem: Problem,
}

/// The labels of metrics, carried beside the answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct RefusalLabels {
    pub(super) route: &'static str,
    pub(super) code: &'static str,
}

impl Refused {
    /// A refusal by the route with this name.
    pub const fn new(route: &'static str, problem: Problem) -> Self {
        Self { route, problem }
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.problem.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let counted = RefusalLabels {
            route: self.route,
            code: self.problem.code.as_str(),
        };
        let retry_after = self.problem.retry_after_seconds;
        let mut response = (status, Json(self.problem)).into_response();
        let headers = response.headers_mut();
        headers.insert(HEADER_PROTOCOL, HeaderValue::from(PROTOCOL));
        if let Some(seconds) = retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response.extensions_mut().insert(counted);
        response
    }
}
