//! Circles: an upstream on this machine that sends its requests back to this gateway, as a proxy in the pod that takes the sidecar
//! for its provider. A gateway marks requests to such upstreams, and refuses what carries its own mark.
//!
//! Requests to upstreams elsewhere have no mark: nothing of this machine goes to a provider.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue};
use knack_vocabulary::HEADER_HOP;
use knack_wire::Fault;

/// The mark of one gateway.
#[derive(Debug, Clone)]
pub(crate) struct HopMark(HeaderValue);

impl HopMark {
    /// Another one for each gateway: it is not told from which machine a mark is.
    pub(super) fn random() -> Self {
        let id = uuid::Uuid::new_v4().simple().to_string();
        Self(HeaderValue::try_from(id).unwrap_or_else(|_| HeaderValue::from_static("gateway")))
    }

    /// Marks a request to an upstream on this machine.
    pub(super) fn put(&self, upstream: &reqwest::Url, headers: &mut HeaderMap) {
        if is_local(upstream) {
            headers.insert(HeaderName::from_static(HEADER_HOP), self.0.clone());
        }
    }

    /// Refuses a request that this gateway has sent itself. Error: 508, which is not to be sent again.
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<(), Fault> {
        if headers.get_all(HEADER_HOP).iter().all(|mark| *mark != self.0) {
            return Ok(());
        }
        Err(Fault {
            retry: false,
            ..Fault::new(
                508,
                "This gateway has sent this request itself: its upstream is on the same machine and sends requests back to it. \
                 Give that upstream the provider's own address, or set the gateway's upstream to the provider.",
            )
        })
    }
}

/// Whether a URL is of this machine, or of this pod.
pub(super) fn is_local(url: &reqwest::Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_end_matches('.');
    let address = host.trim_start_matches('[').trim_end_matches(']');
    match address.parse::<IpAddr>() {
        Ok(address) => {
            let address = address.to_canonical();
            address.is_loopback() || address.is_unspecified()
        }
        Err(_) => host == "localhost" || host.ends_with(".localhost"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_knows_its_own_mark_only() {
        let (own, other) = (HopMark::random(), HopMark::random());
        let mut headers = HeaderMap::new();
        own.put(&"https://api.openai.com".parse().unwrap(), &mut headers);
        assert!(headers.is_empty(), "nothing goes to a provider");
        assert!(own.check(&headers).is_ok());
        other.put(&"http://localhost:4000".parse().unwrap(), &mut headers);
        assert!(own.check(&headers).is_ok(), "that of another gateway");
        headers.append(HEADER_HOP, own.0.clone());
        assert_eq!(own.check(&headers).unwrap_err().status, 508);
    }

    #[test]
    fn this_machine_has_many_names() {
        for (url, expected) in [
            ("http://127.0.0.1:4000/v1", true),
            ("http://127.8.9.10", true),
            ("http://LocalHost:1", true),
            ("http://localhost./v1", true),
            ("http://llm.localhost", true),
            ("http://[::1]:4000", true),
            ("http://[::ffff:127.0.0.1]", true),
            ("http://0.0.0.0:4000", true),
            ("http://0x7f.1", true),
            ("http://10.0.0.1", false),
            ("https://api.openai.com", false),
            ("http://127.0.0.1.example.org", false),
            ("http://[fd00::1]", false),
        ] {
            assert_eq!(is_local(&url.parse().unwrap()), expected, "{url}");
        }
    }
}
