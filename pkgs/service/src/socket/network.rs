//! The part of an address that identifies a client.

use std::net::{IpAddr, Ipv6Addr};

/// The part of an address that one user holds. An IPv6 site can choose from a /64 (RFC 6177).
#[must_use]
pub fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(address) => address.into(),
            None => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_is_one() {
        for (address, expected) in [
            ("192.0.2.1", "192.0.2.1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
            ("::1", "::"),
        ] {
            let parsed = |text: &str| text.parse::<IpAddr>().expect("an address");
            assert_eq!(network(parsed(address)), parsed(expected));
        }
    }
}
