//! Circles: an upstream on this machine that sends its requests back to this gateway, as a proxy in the pod that takes the sidecar
//! for its provider. A gateway marks requests to such upstreams, and refuses what carries its own mark.
//! The marks of gateways before it stay: a circle may lead through several.
//!
//! Requests to upstreams elsewhere have no mark: nothing of this machine goes to a provider.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue};
use knack_vocabulary::HEADER_HOP;
use knack_wire::Fault;

/// Marks that a request may have: no machine has so many gateways in a row, and a mark that was left out for another one would be
/// of a circle without end.
const MARKS_MAX: usize = 8;

/// The mark of one gateway.
#[derive(Debug, Clone)]
pub(crate) struct HopMark(HeaderValue);

impl HopMark {
    /// A different value for each gateway, so that a mark does not reveal its machine.
    pub(super) fn random() -> Self {
        let id = uuid::Uuid::new_v4().simple().to_string();
        Self(HeaderValue::try_from(id).unwrap_or_else(|_| HeaderValue::from_static("gateway")))
    }

    /// Adds this mark to those of a request to an upstream on this machine, and takes them all out of a request to another one.
    pub(super) fn put(&self, upstream: &reqwest::Url, headers: &mut HeaderMap) {
        if is_local(upstream) {
            headers.append(HeaderName::from_static(HEADER_HOP), self.0.clone());
        } else {
            headers.remove(HEADER_HOP);
        }
    }

    /// Refuses a request that this gateway has sent itself, or that has no place for its mark. Error: 508, which is not to be sent
    /// again.
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<(), Fault> {
        let marks = headers.get_all(HEADER_HOP);
        let text = if marks.iter().any(|mark| *mark == self.0) {
            "This gateway has sent this request itself: its upstream is on the same machine and sends requests back to it. \
             Give that upstream the provider's own address, or set the gateway's upstream to the provider."
                .to_owned()
        } else if marks.iter().count() >= MARKS_MAX {
            format!(
                "This request has passed {MARKS_MAX} gateways on this machine, or more. Set the upstream of the first one to the provider."
            )
        } else {
            return Ok(());
        };
        Err(Fault {
            retry: false,
            ..Fault::new(508, text)
        })
    }
}

/// Whether a URL is of this machine, or of this pod.
pub(super) fn is_local(url: &reqwest::Url) -> bool {
    if let Some(address) = address(url) {
        return address.is_loopback() || address.is_unspecified();
    }
    let host = host(url);
    host == "localhost" || host.ends_with(".localhost")
}

/// The IP address of a URL; `None`: its host is a name.
pub(super) fn address(url: &reqwest::Url) -> Option<IpAddr> {
    let address = host(url).trim_start_matches('[').trim_end_matches(']');
    address.parse().ok().map(|address: IpAddr| address.to_canonical())
}

fn host(url: &reqwest::Url) -> &str {
    url.host_str().unwrap_or_default().trim_end_matches('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_knows_its_own_mark_only() {
        let (own, other) = (HopMark::random(), HopMark::random());
        let (local, provider) = ("http://localhost:4000", "https://api.openai.com");
        let put = |mark: &HopMark, url: &str, headers: &mut HeaderMap| mark.put(&url.parse().unwrap(), headers);
        let mut headers = HeaderMap::new();
        put(&own, provider, &mut headers);
        assert!(headers.is_empty(), "nothing goes to a provider");
        assert!(own.check(&headers).is_ok());
        put(&other, local, &mut headers);
        assert!(own.check(&headers).is_ok(), "that of another gateway");
        put(&own, local, &mut headers);
        for mark in [&own, &other] {
            let fault = mark.check(&headers).unwrap_err();
            assert_eq!(fault.status, 508);
            assert!(fault.message.contains("itself"), "{}", fault.message);
        }
        put(&own, provider, &mut headers);
        assert!(headers.is_empty(), "nor the marks that came");
    }

    #[test]
    fn a_request_has_a_bounded_number_of_marks() {
        let (own, mut headers) = (HopMark::random(), HeaderMap::new());
        for _ in 0..MARKS_MAX {
            assert!(own.check(&headers).is_ok());
            HopMark::random().put(&"http://localhost:4000".parse().unwrap(), &mut headers);
        }
        let fault = own.check(&headers).unwrap_err();
        assert_eq!((fault.status, fault.retry), (508, false));
        assert!(fault.message.contains("8 gateways"), "{}", fault.message);
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
