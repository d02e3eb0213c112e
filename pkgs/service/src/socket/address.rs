//! The values of `--listen`.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::{fmt, io};

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// `192.0.2.1:80`, `[2001:db8::1]:80`, `localhost:80` (127.0.0.1), or `:80` and `[::]:80` for
    /// every address of both families.
    Tcp(SocketAddr),
    /// `unix:PATH`.
    Unix(PathBuf),
    /// `systemd:NAME`: the socket that systemd passes under this `FileDescriptorName=`.
    Activated(String),
}

/// A text that is no [`Address`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// It has no host that is an IP address.
    #[error("expected IP:PORT, localhost:PORT, :PORT, unix:PATH or systemd:NAME")]
    Form,
    /// It has a host but no valid port.
    #[error("the port must be a number from 0 to 65535")]
    Port,
    /// Nothing follows `unix:` or `systemd:`.
    #[error("nothing follows {0}")]
    Empty(&'static str),
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() {
                Err(AddressError::Empty("unix:"))
            } else {
                Ok(Self::Unix(path.into()))
            };
        }
        if let Some(name) = text.strip_prefix("systemd:") {
            return match name {
                "" => Err(AddressError::Empty("systemd:")),
                _ => Ok(Self::Activated(name.into())),
            };
        }
        let (host, port) = text.rsplit_once(':').ok_or(AddressError::Form)?;
        let ip = match host {
            "" => Ipv6Addr::UNSPECIFIED.into(),
            "localhost" => Ipv4Addr::LOCALHOST.into(),
            _ => match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
                Some(v6) => v6.parse::<Ipv6Addr>().map_err(|_| AddressError::Form)?.into(),
                None => host.parse::<Ipv4Addr>().map_err(|_| AddressError::Form)?.into(),
            },
        };
        // u16's own parser would accept a sign.
        let port = Some(port).filter(|port| port.bytes().all(|byte| byte.is_ascii_digit()));
        let port = port.and_then(|port| port.parse().ok()).ok_or(AddressError::Port)?;
        Ok(Self::Tcp(SocketAddr::new(ip, port)))
    }
}

impl Address {
    /// The line that tells an operator where a service is: what answers there, and with which scheme.
    pub fn line(&self, name: &str, scheme: &str) -> String {
        match self {
            Self::Tcp(address) => format!("{name:<9} {scheme}://{address}/\n"),
            other => format!("{name:<9} {other}\n"),
        }
    }
}

/// Refuses addresses of which one includes another: nobody can listen on both. Call this before a takeover, since a new
/// process can't tell them from addresses that only the old process holds.
///
/// # Errors
/// The two addresses.
pub fn distinct<'a>(addresses: impl IntoIterator<Item = &'a Address>) -> io::Result<()> {
    let mut others: Vec<&Address> = Vec::new();
    for address in addresses {
        if let Some(other) = others.iter().find(|other| is_same(other, address)) {
            let why = format!("cannot listen on {other} and on {address}: one includes the other");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        others.push(address);
    }
    Ok(())
}

fn is_same(one: &Address, other: &Address) -> bool {
    match (one, other) {
        // The kernel chooses different ports.
        (Address::Tcp(one), Address::Tcp(_)) if one.port() == 0 => false,
        (&Address::Tcp(one), &Address::Tcp(other)) => {
            one == other || includes(one, other) || includes(other, one)
        }
        _ => one == other,
    }
}

/// Whether a socket on `all` also gets what arrives at `one`.
pub(super) fn includes(all: SocketAddr, one: SocketAddr) -> bool {
    all.port() == one.port() && all.ip().is_unspecified() && (all.is_ipv6() || one.is_ipv4())
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Activated(name) => write!(f, "systemd:{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_shown() {
        let cases = [
            ("127.0.0.1:80", "127.0.0.1:80"),
            ("[::1]:8080", "[::1]:8080"),
            (":8080", "[::]:8080"),
            ("localhost:0", "127.0.0.1:0"),
            ("unix:/run/links/admin.sock", "unix:/run/links/admin.sock"),
            ("systemd:http", "systemd:http"),
        ];
        for (text, shown) in cases {
            let address: Address = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(address.to_string(), shown);
            assert_eq!(shown.parse(), Ok(address));
        }
    }

    #[test]
    fn a_socket_on_all_addresses_includes_those_of_its_families_and_port() {
        let cases = [
            ("[::]:80", "127.0.0.1:80", true),
            ("[::]:80", "[::1]:80", true),
            ("0.0.0.0:80", "127.0.0.1:80", true),
            ("0.0.0.0:80", "[::1]:80", false),
            ("[::]:80", "127.0.0.1:81", false),
            ("127.0.0.1:80", "127.0.0.2:80", false),
            ("127.0.0.1:80", "[::]:80", false),
        ];
        for (all, one, expected) in cases {
            let parse = |address: &str| address.parse().expect("an address");
            assert_eq!(includes(parse(all), parse(one)), expected, "{all} {one}");
        }
    }

    #[test]
    fn one_of_two_addresses_may_not_include_the_other() {
        for (one, other, distinct_ones) in [
            (":80", ":81", true),
            ("192.0.2.1:80", "192.0.2.2:80", true),
            ("0.0.0.0:80", "[::1]:80", true),
            ("127.0.0.1:0", "127.0.0.1:0", true),
            ("unix:/a", "unix:/b", true),
            ("192.0.2.1:80", "192.0.2.1:80", false),
            (":80", "192.0.2.1:80", false),
            ("192.0.2.1:80", "0.0.0.0:80", false),
            (":80", "[::1]:80", false),
            ("systemd:a", "systemd:a", false),
            ("unix:/a", "unix:/a", false),
        ] {
            let both = [one, other].map(|text| text.parse::<Address>().expect("an address"));
            assert_eq!(distinct(&both).is_ok(), distinct_ones, "{one} {other}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        let cases = [
            ("", AddressError::Form),
            ("8080", AddressError::Form),
            ("example.org:80", AddressError::Form),
            ("::1:80", AddressError::Form),
            ("[127.0.0.1]:80", AddressError::Form),
            ("127.0.0.1:", AddressError::Port),
            ("127.0.0.1:65536", AddressError::Port),
            (":+80", AddressError::Port),
            ("unix:", AddressError::Empty("unix:")),
            ("systemd:", AddressError::Empty("systemd:")),
        ];
        for (text, error) in cases {
            assert_eq!(text.parse::<Address>(), Err(error), "{text}");
        }
    }
}
