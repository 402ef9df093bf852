//! Hosts by their text, before anything is looked up.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Names of the metadata service of a cloud: Google's, with both of its aliases, and AWS's.
const METADATA_NAMES: [&str; 4] = ["metadata.google.internal", "metadata.goog", "metadata", "instance-data"];
/// Addresses of such services outside of 169.254.0.0/16: Alibaba's, Oracle's, the wire server of Azure (a public address),
/// and those of AWS over IPv6, for instances and for pods of EKS.
const METADATA_V4: [Ipv4Addr; 3] = [
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(192, 0, 0, 192),
    Ipv4Addr::new(168, 63, 129, 16),
];
const METADATA_V6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),
];

/// Zones that no public resolver knows: RFC 6761, RFC 6762, RFC 8375, what ICANN keeps for inside use, and Kubernetes': `svc`, and
/// the namespaces that every cluster has, in which the API server and the resolver are (`kubernetes.default`).
const INSIDE_ZONES: [&str; 8] = [
    "localhost",
    "local",
    "localdomain",
    "internal",
    "home.arpa",
    "svc",
    "default",
    "kube-system",
];

/// Whether a host, a name or an address, is the metadata service of a cloud, which gives credentials to whoever asks.
/// All of IPv4's link-local addresses count: clouds add to them, and nothing that is fetched from lives there.
pub fn is_cloud_metadata(host: &str) -> bool {
    address(host).map_or_else(|| METADATA_NAMES.contains(&name(host).as_str()), is_metadata_address)
}

/// Whether an address is the metadata service of a cloud, as [`is_cloud_metadata`] has it; IPv6 forms that carry an IPv4 address are
/// judged by that.
pub(crate) fn is_metadata_address(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local() || METADATA_V4.contains(&v4),
        IpAddr::V6(v6) => {
            METADATA_V6.contains(&v6)
                || crate::network::embedded(v6).is_some_and(|v4| is_metadata_address(IpAddr::V4(v4)))
        }
    }
}

/// Whether a name can only be one of an inside network: it has a single label, or is in a zone of inside use.
pub(crate) fn is_inside_name(host: &str) -> bool {
    let name = name(host);
    !name.contains('.')
        || INSIDE_ZONES
            .iter()
            .any(|zone| name.strip_suffix(zone).is_some_and(|rest| rest.ends_with('.')))
}

/// The address that a host is, in brackets or not.
pub(crate) fn address(host: &str) -> Option<IpAddr> {
    bare(host.trim_end_matches('.')).parse().ok()
}

/// A host as it is compared: in lower case, an address without brackets.
pub(crate) fn bare(host: &str) -> String {
    host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase()
}

/// In lower case, without the dot that ends an absolute name.
fn name(host: &str) -> String {
    host.trim().trim_end_matches('.').to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_services_are_known_by_name_and_by_address() {
        for (host, metadata) in [
            ("metadata.google.internal", true),
            ("METADATA.google.internal.", true),
            ("metadata.goog", true),
            ("169.254.169.254", true),
            ("169.254.169.254.", true),
            ("169.254.170.2", true),
            ("168.63.129.16", true),
            ("[fd00:ec2::254]", true),
            ("::ffff:169.254.169.254", true),
            ("64:ff9b::a9fe:a9fe", true),
            ("10.0.0.5", false),
            ("fd00:ec2::255", false),
            ("metadata.example.com", false),
            ("", false),
        ] {
            assert_eq!(is_cloud_metadata(host), metadata, "{host}");
        }
    }

    #[test]
    fn names_of_inside_networks_are_known_before_they_are_looked_up() {
        for (host, inside) in [
            ("kubernetes", true),
            ("localhost.", true),
            ("hub.knack.svc", true),
            ("kubernetes.default", true),
            ("kube-dns.kube-system", true),
            ("default.example.com", false),
            ("hub.knack.svc.cluster.local", true),
            ("mirror.corp.internal", true),
            ("fd.io", false),
            ("notlocal.example", false),
            ("internal.example.com", false),
        ] {
            assert_eq!(is_inside_name(host), inside, "{host}");
        }
    }
}
