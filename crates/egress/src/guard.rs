//! The guard of one process: the public internet, and the networks that an administrator allows.

use std::net::IpAddr;
use std::sync::Arc;

use url::Url;

use crate::Network;
use crate::host::{self, is_cloud_metadata, is_inside_name, is_metadata_address};
use crate::network::is_public;

/// Why a URL is not connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AddressRefusal {
    /// Another scheme than `http` and `https`.
    #[error("only https:// and http:// URLs can be fetched")]
    Scheme,
    /// No host.
    #[error("the URL has no host")]
    NoHost,
    /// A user name or a password: whoever reads the Skill reads it, too.
    #[error("a URL with a user name or a password is not fetched; remove them")]
    Credentials,
    /// Not an address of the public internet, nor of an allowed network.
    #[error(
        "is not a public address; fetching from loopback, link-local, private and cluster addresses is not allowed"
    )]
    NotPublic,
    /// Another port of a host that is let through wherever it is: other services of that host are not what an administrator named.
    #[error(
        "has a port that is not configured for its host; only the configured port is allowed, and port 443 where that is 80"
    )]
    OtherPort,
}

/// The port of `http`.
const HTTP: u16 = 80;
/// The port of `https`.
const HTTPS: u16 = 443;

/// Decides which addresses may be connected to. Clones share the list.
#[derive(Debug, Clone)]
pub struct Guard {
    allowed: Arc<[Network]>,
    /// In lower case, addresses without brackets; each with the ports of it that may be connected to.
    hosts: Arc<[(String, u16)]>,
}

impl Guard {
    /// A guard that lets through the public internet and these networks, for example mirrors inside the company.
    pub fn new(allowed: Vec<Network>) -> Self {
        Self {
            allowed: allowed.into(),
            hosts: Arc::default(),
        }
    }

    /// This guard, which then also lets through the hosts and ports of these URLs, wherever they are: an administrator named them. A
    /// site on port 80 may lead to 443. What a redirect of theirs names is judged like any other.
    #[must_use]
    pub fn with_hosts_of<'u>(self, urls: impl IntoIterator<Item = &'u Url>) -> Self {
        let named = urls
            .into_iter()
            .filter_map(|url| Some((host::bare(url.host_str()?), url.port_or_known_default()?)));
        let hosts = named.flat_map(|(host, port)| {
            let secure = (port == HTTP).then(|| (host.clone(), HTTPS));
            [(host, port)].into_iter().chain(secure)
        });
        Self {
            hosts: hosts.collect(),
            ..self
        }
    }

    /// Whether an administrator allows it, wherever it is.
    fn allows(&self, host: &str, address: IpAddr) -> bool {
        self.names(host) || self.allowed.iter().any(|network| network.contains(address))
    }

    fn names(&self, host: &str) -> bool {
        let host = host::bare(host);
        self.hosts.iter().any(|(named, _)| *named == host)
    }

    fn names_port(&self, host: &str, port: Option<u16>) -> bool {
        let host = host::bare(host);
        self.hosts.iter().any(|named| named.0 == host && Some(named.1) == port)
    }

    /// Judges a URL by its text. A name of an inside network is refused before it is looked up, so that answers do not
    /// show which of them exist; where a network is allowed, such names have addresses there, which [`Self::admits`] judges.
    pub fn check(&self, url: &Url) -> Result<(), AddressRefusal> {
        if !matches!(url.scheme(), "https" | "http") {
            return Err(AddressRefusal::Scheme);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(AddressRefusal::Credentials);
        }
        let name = url.host_str().ok_or(AddressRefusal::NoHost)?;
        // Before the address is known: [`Self::admits`] judges it without the port.
        if self.names(name) && !self.names_port(name, url.port_or_known_default()) {
            return Err(AddressRefusal::OtherPort);
        }
        // Every way to write an IPv4 address is one form by now.
        let public = match host::address(name) {
            Some(address) => self.admits(name, address) && (!is_mapped(address) || self.allows(name, address)),
            None => !is_cloud_metadata(name) && (!self.allowed.is_empty() || self.names(name) || !is_inside_name(name)),
        };
        if public { Ok(()) } else { Err(AddressRefusal::NotPublic) }
    }

    /// Whether an address of a host may be connected to, at a port that [`Self::check`] lets through. Metadata services of clouds are not, whatever is allowed.
    pub fn admits(&self, host: &str, address: IpAddr) -> bool {
        !is_metadata_address(address) && (is_public(address) || self.allows(host, address))
    }
}

/// Whether an address is an IPv4 address in the form of an IPv6 one (`::ffff:8.8.8.8`). A URL has no reason to be written with it
/// but to pass for another address, so that it is refused there; resolvers give it for names of hosts that have IPv4 only.
fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_url_may_name_depends_on_the_networks_that_are_allowed() {
        let stock = Guard::new(Vec::new());
        let company = Guard::new(vec!["10.0.0.0/8".parse().unwrap(), "169.254.0.0/16".parse().unwrap()]);
        for (url, by_stock, by_company) in [
            ("https://example.com/a.zip", Ok(()), Ok(())),
            ("http://8.8.8.8/", Ok(()), Ok(())),
            ("http://10.1.2.3/a.zip", Err(AddressRefusal::NotPublic), Ok(())),
            (
                "http://mirror.corp.internal/a.zip",
                Err(AddressRefusal::NotPublic),
                Ok(()),
            ),
            (
                "http://192.168.1.1/",
                Err(AddressRefusal::NotPublic),
                Err(AddressRefusal::NotPublic),
            ),
            (
                "http://169.254.169.254/",
                Err(AddressRefusal::NotPublic),
                Err(AddressRefusal::NotPublic),
            ),
            (
                "http://metadata.google.internal/",
                Err(AddressRefusal::NotPublic),
                Err(AddressRefusal::NotPublic),
            ),
            (
                "http://168.63.129.16/",
                Err(AddressRefusal::NotPublic),
                Err(AddressRefusal::NotPublic),
            ),
            (
                "http://0x7f.1/",
                Err(AddressRefusal::NotPublic),
                Err(AddressRefusal::NotPublic),
            ),
            (
                "http://[::ffff:8.8.8.8]/",
                Err(AddressRefusal::NotPublic),
                Err(AddressRefusal::NotPublic),
            ),
            (
                "http://[::ffff:0a01:0203]/",
                Err(AddressRefusal::NotPublic),
                Err(AddressRefusal::NotPublic),
            ),
            (
                "https://me:key@example.com/",
                Err(AddressRefusal::Credentials),
                Err(AddressRefusal::Credentials),
            ),
            (
                "https://me@example.com/",
                Err(AddressRefusal::Credentials),
                Err(AddressRefusal::Credentials),
            ),
            (
                "ftp://example.com/",
                Err(AddressRefusal::Scheme),
                Err(AddressRefusal::Scheme),
            ),
            (
                "data:text/plain,a",
                Err(AddressRefusal::Scheme),
                Err(AddressRefusal::Scheme),
            ),
        ] {
            let parsed = Url::parse(url).unwrap();
            assert_eq!(stock.check(&parsed), by_stock, "{url}");
            assert_eq!(company.check(&parsed), by_company, "{url}, with networks");
        }
    }

    #[test]
    fn a_host_that_an_administrator_names_is_let_through_and_no_other() {
        let named = [
            "http://Mirror.tools.svc:8080/api",
            "http://[fd00::7]:1/",
            "http://metadata/",
            "http://[::ffff:8.8.8.8]/",
            "http://plain.corp.internal/api",
            "https://secure.corp.internal/",
        ];
        let named = named.map(|url| Url::parse(url).unwrap());
        let guard = Guard::new(Vec::new()).with_hosts_of(&named);
        for (url, expected) in [
            ("http://mirror.tools.svc:8080/other", Ok(())),
            ("https://mirror.tools.svc:8080/", Ok(())),
            ("http://mirror.tools.svc/", Err(AddressRefusal::OtherPort)),
            ("http://MIRROR.tools.svc:9/other", Err(AddressRefusal::OtherPort)),
            ("http://[fd00::7]:1/", Ok(())),
            ("http://[fd00::7]/", Err(AddressRefusal::OtherPort)),
            ("http://[fd00::8]:1/", Err(AddressRefusal::NotPublic)),
            // A site on the port of http leads to https, and not the other way around.
            ("http://plain.corp.internal/", Ok(())),
            ("https://plain.corp.internal/", Ok(())),
            ("http://plain.corp.internal:8080/", Err(AddressRefusal::OtherPort)),
            ("https://secure.corp.internal/x", Ok(())),
            ("http://secure.corp.internal/", Err(AddressRefusal::OtherPort)),
            ("http://hub.tools.svc/", Err(AddressRefusal::NotPublic)),
            ("http://[::ffff:8.8.8.8]/", Ok(())),
            ("http://[::ffff:8.8.4.4]/", Err(AddressRefusal::NotPublic)),
            ("http://metadata/", Err(AddressRefusal::NotPublic)),
        ] {
            assert_eq!(guard.check(&Url::parse(url).unwrap()), expected, "{url}");
        }
        let (inside, metadata): (IpAddr, IpAddr) = ("10.0.0.7".parse().unwrap(), "169.254.169.254".parse().unwrap());
        for (host, address, admitted) in [
            ("mirror.tools.svc", inside, true),
            ("mirror.tools.svc", metadata, false),
            ("mirror.example", inside, false),
            ("mirror.example", "::ffff:8.8.8.8".parse().unwrap(), true),
        ] {
            assert_eq!(guard.admits(host, address), admitted, "{host} {address}");
        }
    }
}
