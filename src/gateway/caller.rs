//! Who is calling: a keyed hash of the credential, so that nothing of ours ever stores one.

use std::sync::Arc;

use arc_swap::ArcSwap;
use http::{HeaderMap, Uri};
use knack_wire::history::{Caller, HistorySecret};

use super::upstream::CREDENTIAL_HEADERS;
use crate::api::vocabulary::HEADER_CLIENT;

/// The secret of callers' identities: of this process, or of all replicas of a gateway once a hub has told it.
#[derive(Debug)]
pub struct CallerSecret(ArcSwap<HistorySecret>);

impl From<HistorySecret> for CallerSecret {
    fn from(secret: HistorySecret) -> Self {
        Self(ArcSwap::from_pointee(secret))
    }
}

impl CallerSecret {
    /// The secret in use.
    pub fn current(&self) -> Arc<HistorySecret> {
        self.0.load_full()
    }

    /// Uses another one: what was kept under the last is not found any more.
    pub fn replace(&self, secret: HistorySecret) {
        self.0.store(Arc::new(secret));
    }
}

/// The caller of a request: every credential header it has, and the `key` query parameter of raw Gemini callers.
/// Requests without any credential share one identity.
pub fn identify(secret: &HistorySecret, headers: &HeaderMap, uri: &Uri) -> Caller {
    let mut credential = Vec::with_capacity(96);
    // Behind a client check the account is what counts; without one this header only adds to what identifies its sender.
    for name in CREDENTIAL_HEADERS.into_iter().chain([HEADER_CLIENT]) {
        for value in headers.get_all(name) {
            let value = strip_bearer(value.as_bytes());
            credential.extend_from_slice(&(value.len() as u64).to_be_bytes());
            credential.extend_from_slice(value);
        }
    }
    for pair in uri.query().unwrap_or_default().split('&') {
        if let Some(key) = pair.strip_prefix("key=") {
            credential.extend_from_slice(&(key.len() as u64).to_be_bytes());
            credential.extend_from_slice(key.as_bytes());
        }
    }
    Caller::new(secret, &credential)
}

/// One key is one caller, whichever way an SDK sends it.
fn strip_bearer(value: &[u8]) -> &[u8] {
    match value.split_at_checked(7) {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case(b"bearer ") => token,
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(headers: &[(&'static str, &'static str)], uri: &'static str) -> [u8; 32] {
        let headers = headers
            .iter()
            .map(|(name, value)| {
                (
                    http::HeaderName::from_static(name),
                    http::HeaderValue::from_static(value),
                )
            })
            .collect();
        identify(&HistorySecret::new([7; 32]), &headers, &Uri::from_static(uri)).bucket()
    }

    #[test]
    fn different_credentials_are_different_callers() {
        let a = identity(&[("authorization", "Bearer a")], "/");
        assert_eq!(
            a,
            identity(&[("authorization", "bearer a"), ("user-agent", "x")], "/v1/messages")
        );
        for other in [
            identity(&[("authorization", "Bearer b")], "/"),
            identity(&[], "/"),
            identity(&[("authorization", "Bearer a"), ("x-api-key", "b")], "/"),
        ] {
            assert_ne!(a, other);
        }
        assert_ne!(identity(&[], "/?key=a"), identity(&[], "/?key=b"));
    }
}
