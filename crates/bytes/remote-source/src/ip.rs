//! Classification of IP addresses as public or special-purpose.
//!
//! Facts: the IANA registries of special-purpose IPv4 and IPv6 addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns true if an address is public, in none of the special-purpose ranges.
pub(crate) fn is_public_address(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let shared = a == 100 && (64..128).contains(&b);
    let protocol = a == 192 && b == 0 && c == 0;
    let benchmark = a == 198 && (b == 18 || b == 19);
    !(address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_documentation()
        || address.is_multicast()
        || a == 0
        || a >= 240
        || shared
        || protocol
        || benchmark)
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    if let Some(mapped) = address.to_ipv4_mapped() {
        return is_public_v4(mapped);
    }
    let [first, second, ..] = address.segments();
    // Only 2000::/3 is assigned. In it, 2001:db8::/32 is for documentation, and 2002::/16 holds IPv4 addresses,
    // as 64:ff9b::/96 does outside of it.
    first & 0xe000 == 0x2000 && !(first == 0x2001 && second == 0xdb8) && first != 0x2002
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_addresses_are_recognised() {
        let public = |text: &str| is_public_address(text.parse().expect("an address"));
        for text in ["1.1.1.1", "93.184.216.34", "2606:4700::1111"] {
            assert!(public(text), "{text}");
        }
        for text in [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "::1",
            "fe80::1",
            "fd00::1",
            "::ffff:127.0.0.1",
            "2002:7f00:1::",
            "224.0.0.1",
            "255.255.255.255",
            "64:ff9b::7f00:1",
        ] {
            assert!(!public(text), "{text}");
        }
    }
}
