//! Refusals of the registry's own, as answers: in the dialect of the call, or to a gateway as a status and a line.
//! What the Skills APIs themselves refuse has its status in `knack_registry`.

use bytes::Bytes;
use http::{Response, StatusCode};
use knack_hub_api::{Problem, ProblemCode};
use knack_registry::{ApiCall, Denial, deny};

/// When to repeat a request that came too soon after others, seconds.
const RATE_RETRY_SECONDS: u64 = 2;

/// 429: a namespace, or an account, asks too often.
pub(super) fn too_many(text: String) -> Problem {
    Problem::new(ProblemCode::TooManyRequests, text).retry_after(RATE_RETRY_SECONDS)
}

/// The status of a refusal that has no dialect.
pub(super) fn status_of(problem: &Problem) -> StatusCode {
    StatusCode::from_u16(problem.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// A refusal in the dialect of the call.
pub(super) fn denied(call: &ApiCall, problem: &Problem) -> Response<Bytes> {
    let denial = match problem.code {
        ProblemCode::Unauthenticated => Denial::NoCredential,
        ProblemCode::Throttled | ProblemCode::TooManyRequests => Denial::Throttled,
        ProblemCode::Forbidden => Denial::Forbidden,
        ProblemCode::TooLarge => Denial::TooLarge,
        ProblemCode::TooSlow => Denial::Late,
        ProblemCode::Unavailable => Denial::Unavailable,
        _ => Denial::Invalid,
    };
    deny(call, denial, problem.message.clone(), problem.retry_after_seconds)
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, Method};

    use super::*;

    #[test]
    fn a_refusal_has_one_status_with_and_without_a_dialect() {
        let call = knack_registry::route(&Method::GET, "/v1/skills", None, &HeaderMap::new()).unwrap();
        for (code, status) in [
            (ProblemCode::Invalid, 400),
            (ProblemCode::Unauthenticated, 401),
            (ProblemCode::Forbidden, 403),
            (ProblemCode::TooSlow, 408),
            (ProblemCode::TooLarge, 413),
            (ProblemCode::TooManyRequests, 429),
            (ProblemCode::Throttled, 429),
            (ProblemCode::Unavailable, 503),
        ] {
            let problem = Problem::new(code, "why");
            assert_eq!(status_of(&problem), status, "{code:?}");
            assert_eq!(denied(&call, &problem).status(), status, "{code:?}");
        }
    }
}
