//! Who is calling: an HMAC of the credential, so that nothing of ours ever stores one.

use hmac::{Hmac, Mac};
use http::{HeaderMap, Uri};
use sha2::Sha256;

use super::records::Key;
use super::upstream::CREDENTIAL_HEADERS;

/// Turns credentials into identities; the secret is random per process, so identities mean nothing elsewhere.
#[derive(Clone)]
pub struct CallerKeys {
    secret: [u8; 32],
}

impl std::fmt::Debug for CallerKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CallerKeys(..)")
    }
}

impl CallerKeys {
    /// Keys under this secret.
    pub const fn new(secret: [u8; 32]) -> Self {
        Self { secret }
    }

    /// The secret itself, for keys that other parts derive.
    pub const fn secret(&self) -> &[u8; 32] {
        &self.secret
    }

    /// The caller of a request: every credential header it has, and the `key` query parameter of raw Gemini callers.
    /// Requests without any credential share one identity.
    pub fn identify(&self, headers: &HeaderMap, uri: &Uri) -> Key {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.secret).expect("HMAC takes keys of any length");
        for name in CREDENTIAL_HEADERS {
            for value in headers.get_all(name) {
                mac.update(&(value.len() as u64).to_be_bytes());
                mac.update(strip_bearer(value.as_bytes()));
            }
        }
        let query = uri.query().unwrap_or_default();
        for pair in query.split('&') {
            if let Some(key) = pair.strip_prefix("key=") {
                mac.update(key.as_bytes());
            }
        }
        mac.finalize().into_bytes().into()
    }
}

/// One key is one caller, whichever way an SDK sends it.
fn strip_bearer(value: &[u8]) -> &[u8] {
    match value.split_at_checked(7) {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case(b"bearer ") => token,
        _ => value,
    }
}

/// The identity as text, for execution records.
pub fn hex(key: &Key) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(headers: &[(&'static str, &'static str)], uri: &'static str) -> Key {
        let headers = headers
            .iter()
            .map(|(name, value)| (http::HeaderName::from_static(name), http::HeaderValue::from_static(value)))
            .collect();
        CallerKeys::new([7; 32]).identify(&headers, &Uri::from_static(uri))
    }

    #[test]
    fn different_credentials_are_different_callers() {
        let a = identity(&[("authorization", "Bearer a")], "/");
        assert_eq!(a, identity(&[("authorization", "bearer a"), ("user-agent", "x")], "/v1/messages"));
        for other in [
            identity(&[("authorization", "Bearer b")], "/"),
            identity(&[], "/"),
            identity(&[("authorization", "Bearer a"), ("x-api-key", "b")], "/"),
            identity(&[], "/?key=a&x=1"),
        ] {
            assert_ne!(a, other);
        }
        assert_ne!(identity(&[], "/?key=a"), identity(&[], "/?key=b"));
    }
}
