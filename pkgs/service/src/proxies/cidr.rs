//! Networks of addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A network in CIDR notation (RFC 4632, section 3.1): `10.0.0.0/8`, `2001:db8::/32`, or a single address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    /// Its lowest address.
    network: IpAddr,
    /// The prefix's length in bits: up to 32 for IPv4, up to 128 for IPv6.
    prefix: u8,
}

/// A text that is no [`Cidr`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CidrError {
    /// There is no address, or the prefix is longer than the address.
    #[error("expected a network such as 10.0.0.0/8 or 2001:db8::/32, or an address")]
    Malformed,
    /// The address has bits after the prefix, so one of the two is a mistake.
    #[error("the address has bits beyond the prefix: the network is {0}")]
    HostBits(Cidr),
}

impl Cidr {
    /// Whether the network contains an address. An IPv4-mapped IPv6 address counts as IPv4.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.network, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => v4(address, self.prefix) == network,
            (IpAddr::V6(network), IpAddr::V6(address)) => v6(address, self.prefix) == network,
            _ => false,
        }
    }
}

/// The lowest address of this address's network.
fn v4(address: Ipv4Addr, prefix: u8) -> Ipv4Addr {
    let rest = u32::MAX.checked_shr(prefix.into()).unwrap_or(0);
    Ipv4Addr::from_bits(address.to_bits() & !rest)
}

/// The lowest address of this address's network.
fn v6(address: Ipv6Addr, prefix: u8) -> Ipv6Addr {
    let rest = u128::MAX.checked_shr(prefix.into()).unwrap_or(0);
    Ipv6Addr::from_bits(address.to_bits() & !rest)
}

impl FromStr for Cidr {
    type Err = CidrError;

    fn from_str(text: &str) -> Result<Self, CidrError> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let given: IpAddr = address.parse().map_err(|_| CidrError::Malformed)?;
        let bits = if given.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => bits,
            // Only digits, since a number could have a sign.
            Some(text) if text.bytes().all(|byte| byte.is_ascii_digit()) => {
                text.parse().ok().filter(|prefix| *prefix <= bits).ok_or(CidrError::Malformed)?
            }
            Some(_) => return Err(CidrError::Malformed),
        };
        let network = match given {
            IpAddr::V4(address) => IpAddr::V4(v4(address, prefix)),
            IpAddr::V6(address) => IpAddr::V6(v6(address, prefix)),
        };
        let cidr = Self { network, prefix };
        if network != given {
            return Err(CidrError::HostBits(cidr));
        }
        // Addresses are compared within their own family, so a mapped network becomes IPv4 too.
        match network {
            IpAddr::V6(address) if prefix >= 96 => match address.to_ipv4_mapped() {
                Some(address) => Ok(Self { network: address.into(), prefix: prefix - 96 }),
                None => Ok(cidr),
            },
            _ => Ok(cidr),
        }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cidr(text: &str) -> Cidr {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn an_address_is_in_a_network_of_its_family_alone() {
        for (network, within, without) in [
            (
                "10.0.0.0/8",
                &["10.0.0.0", "10.255.255.255", "::ffff:10.1.2.3"][..],
                &["11.0.0.0", "9.255.255.255"][..],
            ),
            ("192.0.2.7", &["192.0.2.7"], &["192.0.2.6", "192.0.2.8", "::c000:207"]),
            ("192.0.2.6/31", &["192.0.2.6", "192.0.2.7"], &["192.0.2.5", "192.0.2.8"]),
            ("0.0.0.0/0", &["0.0.0.0", "255.255.255.255"], &["::", "2001:db8::1"]),
            ("2001:db8::/32", &["2001:db8::", "2001:db8:ffff::1"], &["2001:db9::", "2001:db7:ffff::"]),
            ("::1", &["::1"], &["::", "::2", "127.0.0.1"]),
            ("::/0", &["::", "2001:db8::1"], &["0.0.0.0", "::ffff:192.0.2.1"]),
            ("::ffff:10.0.0.0/104", &["10.1.2.3", "::ffff:10.1.2.3"], &["11.0.0.0"]),
        ] {
            let network = cidr(network);
            let is_in = |text: &&str| network.contains(text.parse().expect("an address"));
            assert!(within.iter().all(is_in), "{network} has {within:?}");
            assert!(!without.iter().any(is_in), "{network} has not {without:?}");
        }
    }

    #[test]
    fn what_is_no_network_is_refused_and_a_slip_is_named() {
        for text in [
            "",
            "/8",
            "10.0.0.0/",
            "10.0.0.0/33",
            "::/129",
            "10.0.0/8",
            "10.0.0.0/+8",
            "10.0.0.0/8/8",
            "010.0.0.0/8",
            "a",
            "*",
        ] {
            assert_eq!(text.parse::<Cidr>(), Err(CidrError::Malformed), "{text:?}");
        }
        assert_eq!("10.1.0.0/8".parse::<Cidr>(), Err(CidrError::HostBits(cidr("10.0.0.0/8"))));
        let error = "2001:db8::1/32".parse::<Cidr>().expect_err("a slip").to_string();
        assert!(error.ends_with("the network is 2001:db8::/32"), "{error}");
    }
}
