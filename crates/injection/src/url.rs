//! Base URLs that the gateway takes.

use std::sync::LazyLock;

use regex::Regex;

use super::names::{BASE_URL, OWN_URL, POD_URL, PUNYCODE};

#[expect(clippy::unwrap_used, reason = "a constant, which every test compiles")]
static PLAIN_URL: LazyLock<Regex> = LazyLock::new(|| Regex::new(BASE_URL).unwrap());
#[expect(clippy::unwrap_used, reason = "a constant, which every test compiles")]
static PUNYCODE_HOST: LazyLock<Regex> = LazyLock::new(|| Regex::new(PUNYCODE).unwrap());
#[expect(clippy::unwrap_used, reason = "a constant, which every test compiles")]
static SIDECARS_URL: LazyLock<Regex> = LazyLock::new(|| Regex::new(OWN_URL).unwrap());
#[expect(clippy::unwrap_used, reason = "a constant, which every test compiles")]
static URL_IN_POD: LazyLock<Regex> = LazyLock::new(|| Regex::new(POD_URL).unwrap());

/// Whether a base URL is that of the sidecar.
pub(crate) fn is_own_url(text: &str) -> bool {
    SIDECARS_URL.is_match(text)
}

/// Whether a base URL is that of a program in the pod.
pub(crate) fn is_pod_url(text: &str) -> bool {
    URL_IN_POD.is_match(text)
}

/// Whether a base URL of an application can be an upstream of the sidecar. The gateway ends at one that it cannot read, and
/// the pod would never start: every text that is taken here is a URL there.
pub fn is_base_url(text: &str) -> bool {
    PLAIN_URL.is_match(text) && !PUNYCODE_HOST.is_match(text)
}
