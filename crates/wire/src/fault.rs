//! Knack's errors, in the shape of the client's API.

use crate::format::dialect;
use crate::route::Format;

/// Something that ends a request with an error of Knack. Upstream's errors pass through as they came.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    /// HTTP status, if the answer has not started yet.
    pub status: u16,
    /// The error and its remedy, for the caller of the API.
    pub message: String,
    /// The request field that is at fault.
    pub param: Option<String>,
    /// A short machine-readable word, as in `skill_not_found`.
    pub code: Option<String>,
    /// False if code has already run, so that the client must not send the request again on its own
    /// (`x-should-retry: false`).
    pub retry: bool,
    /// The request's name, for the formats whose errors have a place for it.
    pub request_id: Option<String>,
}

impl Fault {
    /// The text of a 502 where no connection to the provider was made. The cause may hold an address, which is not the client's to know.
    pub const UNREACHABLE: &str = "The provider could not be reached; the gateway's log has the cause.";

    /// A fault with status and message; retrying is allowed.
    pub fn new(status: u16, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            param: None,
            code: None,
            retry: true,
            request_id: None,
        }
    }

    /// A 400 about one field of the request.
    pub fn bad(param: &str, message: impl Into<String>) -> Self {
        Self {
            param: Some(param.to_owned()),
            ..Self::new(400, message)
        }
    }

    /// The whole response body in the format's error shape (docs/design/wire-formats.md#errors).
    pub fn body(&self, format: Format) -> Vec<u8> {
        dialect(format).error_body(self)
    }

    /// The stream error frame of the format, ready to be sent (docs/design/wire-formats.md#errors).
    pub fn frame(&self, format: Format) -> Vec<u8> {
        dialect(format).error_frame(self)
    }
}
