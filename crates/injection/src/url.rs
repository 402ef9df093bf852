//! Base URLs that the gateway takes.

use std::sync::LazyLock;

use regex::Regex;

use super::names::{BASE_URL, PUNYCODE};

#[expect(clippy::unwrap_used, reason = "a constant, which every test compiles")]
static PLAIN_URL: LazyLock<Regex> = LazyLock::new(|| Regex::new(BASE_URL).unwrap());
#[expect(clippy::unwrap_used, reason = "a constant, which every test compiles")]
static PUNYCODE_HOST: LazyLock<Regex> = LazyLock::new(|| Regex::new(PUNYCODE).unwrap());

/// Whether a base URL of an application can be an upstream of the sidecar. The gateway ends at one that it cannot read, and
/// the pod would never start: every text that is taken here is a URL there.
pub fn is_base_url(text: &str) -> bool {
    PLAIN_URL.is_match(text) && !PUNYCODE_HOST.is_match(text)
}
