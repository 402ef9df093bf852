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

/// The status of a refusal to a gateway.
pub(super) fn status_of(problem: &Problem) -> StatusCode {
    match problem.code {
        ProblemCode::Unauthenticated => StatusCode::UNAUTHORIZED,
        ProblemCode::Throttled | ProblemCode::TooManyRequests => StatusCode::TOO_MANY_REQUESTS,
        ProblemCode::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        ProblemCode::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::BAD_REQUEST,
    }
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
