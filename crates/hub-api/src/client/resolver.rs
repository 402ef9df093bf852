//! Names of single replicas, resolved without DNS.

use std::net::{IpAddr, SocketAddr};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// The host name under which one replica of a hub is reached: its address with dashes, below the Service's own name, as
/// the wildcard of the hub's certificate covers it. An IPv6 address is written in full, so that dashes stay distinct.
pub fn replica_host(address: IpAddr, service_host: &str) -> String {
    let label = match address {
        IpAddr::V4(address) => address.to_string().replace('.', "-"),
        IpAddr::V6(address) => {
            let words: Vec<String> = address.segments().iter().map(|word| format!("{word:x}")).collect();
            words.join("-")
        }
    };
    format!("{label}.{service_host}")
}

/// The address in the first label of a replica's name.
fn replica_address(host: &str) -> Option<IpAddr> {
    let (label, _) = host.split_once('.')?;
    let words: Vec<&str> = label.split('-').collect();
    match words.len() {
        4 => words.join(".").parse::<std::net::Ipv4Addr>().ok().map(IpAddr::V4),
        8 => words.join(":").parse::<std::net::Ipv6Addr>().ok().map(IpAddr::V6),
        _ => None,
    }
}

/// Resolves names of replicas by themselves, everything to `fixed` if that is set, and all else by the system.
#[derive(Debug, Clone, Copy)]
pub(super) struct HubResolver {
    /// A forwarded port on loopback.
    pub(super) fixed: Option<IpAddr>,
}

impl Resolve for HubResolver {
    fn resolve(&self, name: Name) -> Resolving {
        if let Some(address) = self.fixed.or_else(|| replica_address(name.as_str())) {
            let one: Addrs = Box::new(std::iter::once(SocketAddr::new(address, 0)));
            return Box::pin(std::future::ready(Ok(one)));
        }
        let host = name.as_str().to_owned();
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((host.as_str(), 0)).await?.collect();
            let found: Addrs = Box::new(found.into_iter());
            Ok(found)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replicas_name_carries_its_address() {
        for address in ["10.0.0.7", "2001:db8::1"] {
            let address: IpAddr = address.parse().unwrap();
            let host = replica_host(address, "knack-hub.ns.svc");
            assert!(host.ends_with(".knack-hub.ns.svc"), "{host}");
            assert_eq!(replica_address(&host), Some(address), "{host}");
        }
        for host in ["knack-hub.ns.svc", "a-b-c-d.knack-hub.ns.svc", "10-0-0.x", "localhost"] {
            assert_eq!(replica_address(host), None, "{host}");
        }
    }
}
