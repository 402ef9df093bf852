//! Which addresses are public. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A network: an address and the number of leading bits that count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl Network {
    const fn v4(a: u8, b: u8, c: u8, d: u8, bits: u8) -> Self {
        Self {
            address: IpAddr::V4(Ipv4Addr::new(a, b, c, d)),
            bits,
        }
    }

    const fn v6(a: u16, b: u16, bits: u8) -> Self {
        Self {
            address: IpAddr::V6(Ipv6Addr::new(a, b, 0, 0, 0, 0, 0, 0)),
            bits,
        }
    }

    /// Whether an address is in it. Families never match each other.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let shift = 32 - u32::from(self.bits);
                u32::from(own).checked_shr(shift) == u32::from(other).checked_shr(shift)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let shift = 128 - u32::from(self.bits);
                u128::from(own).checked_shr(shift) == u128::from(other).checked_shr(shift)
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = String;

    /// `10.0.0.0/8`, `fd00::/8`, or a single address.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a network; write for example 10.1.0.0/16");
        let (address, bits) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), str::parse::<u8>).map_err(|_| wrong())?;
        if bits > most {
            return Err(wrong());
        }
        Ok(Self { address, bits })
    }
}

/// Special-purpose networks of IPv4 (IANA registry), multicast and reserved ones.
const NOT_PUBLIC_V4: [Network; 15] = [
    Network::v4(0, 0, 0, 0, 8),
    Network::v4(10, 0, 0, 0, 8),
    Network::v4(100, 64, 0, 0, 10),
    Network::v4(127, 0, 0, 0, 8),
    Network::v4(169, 254, 0, 0, 16),
    Network::v4(172, 16, 0, 0, 12),
    Network::v4(192, 0, 0, 0, 24),
    Network::v4(192, 0, 2, 0, 24),
    Network::v4(192, 88, 99, 0, 24),
    Network::v4(192, 168, 0, 0, 16),
    Network::v4(198, 18, 0, 0, 15),
    Network::v4(198, 51, 100, 0, 24),
    Network::v4(203, 0, 113, 0, 24),
    Network::v4(224, 0, 0, 0, 4),
    Network::v4(240, 0, 0, 0, 4),
];
/// Global unicast: the only IPv6 addresses that can be public.
const GLOBAL_V6: Network = Network::v6(0x2000, 0, 3);
/// Parts of global unicast that are not: protocol assignments (Teredo among them), documentation.
const NOT_PUBLIC_V6: [Network; 3] = [
    Network::v6(0x2001, 0, 23),
    Network::v6(0x2001, 0xdb8, 32),
    Network::v6(0x3fff, 0, 20),
];

/// Whether an address is one of the public internet. IPv6 forms that carry an IPv4 address are judged by it.
pub(crate) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(_) => !NOT_PUBLIC_V4.iter().any(|network| network.contains(address)),
        IpAddr::V6(v6) => {
            if let Some(v4) = embedded(v6) {
                return is_public(IpAddr::V4(v4));
            }
            GLOBAL_V6.contains(address) && !NOT_PUBLIC_V6.iter().any(|network| network.contains(address))
        }
    }
}

/// The IPv4 address inside a mapped, compatible, NAT64 or 6to4 address.
pub(crate) fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let parts = address.segments();
    let v4 = |high: u16, low: u16| Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)));
    match parts {
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => {
            v4(high, low)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_public_internet_is_public() {
        for (address, public) in [
            ("93.184.216.34", true),
            ("8.8.8.8", true),
            ("2606:2800:220:1::1", true),
            ("127.0.0.1", false),
            ("127.8.8.8", false),
            ("10.96.0.1", false),
            ("172.31.255.255", false),
            ("172.32.0.1", true),
            ("192.168.1.1", false),
            ("169.254.169.254", false),
            ("100.100.100.200", false),
            ("0.0.0.0", false),
            ("255.255.255.255", false),
            ("224.0.0.1", false),
            ("198.19.0.1", false),
            ("::", false),
            ("::1", false),
            ("::ffff:127.0.0.1", false),
            ("::ffff:8.8.8.8", true),
            ("::ffff:169.254.169.254", false),
            ("::a9fe:a9fe", false),
            ("64:ff9b::a9fe:a9fe", false),
            ("2002:a9fe:a9fe::1", false),
            ("fe80::1", false),
            ("fd00:ec2::254", false),
            ("fc00::1", false),
            ("ff02::1", false),
            ("2001:db8::1", false),
            ("2001::1", false),
        ] {
            assert_eq!(is_public(address.parse().unwrap()), public, "{address}");
        }
    }

    #[test]
    fn networks_are_read_and_contain() {
        for (network, address, inside) in [
            ("10.1.0.0/16", "10.1.2.3", true),
            ("10.1.0.0/16", "10.2.2.3", false),
            ("10.1.2.3", "10.1.2.3", true),
            ("10.1.2.3", "10.1.2.4", false),
            ("0.0.0.0/0", "1.2.3.4", true),
            ("fd00::/8", "fd12::1", true),
            ("fd00::/8", "10.0.0.1", false),
        ] {
            let network: Network = network.parse().unwrap();
            assert_eq!(
                network.contains(address.parse().unwrap()),
                inside,
                "{network:?} {address}"
            );
        }
        for text in ["", "x", "10.0.0.0/33", "10.0.0.0/", "fd00::/129"] {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
    }
}
