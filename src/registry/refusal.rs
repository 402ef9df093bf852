//! Refusals of the registry's own, as answers: in the dialect of the call, or to a gateway as a status and a line.
//! What the Skills APIs themselves refuse has its status in `knack_registry`.

use bytes::Bytes;
use http::{Response, StatusCode};
use knack_hub_api::{HubRefusal, RefusalCode};
use knack_registry::{ApiCall, RefusalKind, deny};

/// When to repeat a request that came too soon after others, seconds.
const RATE_RETRY_SECONDS: u64 = 2;

/// 429: a namespace, or an account, asks too often.
pub(super) fn too_many(text: String) -> HubRefusal {
    HubRefusal::new(RefusalCode::TooManyRequests, text).retry_after(RATE_RETRY_SECONDS)
}

/// The status of a refusal that has no dialect.
pub(super) fn status_of(refusal: &HubRefusal) -> StatusCode {
    StatusCode::from_u16(refusal.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// A refusal in the dialect of the call.
pub(super) fn denied(call: &ApiCall, refusal: &HubRefusal, request_id: &str) -> Response<Bytes> {
    let denial = match refusal.code {
        RefusalCode::Unauthenticated => RefusalKind::NoCredential,
        RefusalCode::Throttled | RefusalCode::TooManyRequests => RefusalKind::Throttled,
        RefusalCode::Forbidden => RefusalKind::Forbidden,
        RefusalCode::TooLarge => RefusalKind::TooLarge,
        RefusalCode::TooSlow => RefusalKind::Late,
        RefusalCode::Unavailable => RefusalKind::Unavailable,
        _ => RefusalKind::Invalid,
    };
    deny(
        call,
        denial,
        refusal.message.clone(),
        refusal.retry_after_seconds,
        request_id,
    )
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, Method};

    use super::*;

    #[test]
    fn a_refusal_has_one_status_with_and_without_a_dialect() {
        let call = knack_registry::route(&Method::GET, "/v1/skills", None, &HeaderMap::new()).unwrap();
        for (code, status) in [
            (RefusalCode::Invalid, 400),
            (RefusalCode::Unauthenticated, 401),
            (RefusalCode::Forbidden, 403),
            (RefusalCode::TooSlow, 408),
            (RefusalCode::TooLarge, 413),
            (RefusalCode::TooManyRequests, 429),
            (RefusalCode::Throttled, 429),
            (RefusalCode::Unavailable, 503),
        ] {
            let refusal = HubRefusal::new(code, "why");
            assert_eq!(status_of(&refusal), status, "{code:?}");
            assert_eq!(denied(&call, &refusal, "req_1").status(), status, "{code:?}");
        }
    }
}
