//! Proxies in front: what reports the client's address of a connection or a request.
//!
//! Behind a proxy, every connection comes from the proxy's address. The proxy reports its client's address in one of
//! two ways. Whoever is believed decides whose limits are used up, so neither is believed by default:
//!
//! - `--proxy-protocol`: each connection starts with a PROXY header of version 2, which `listener::proxy` reads.
//! - `--trusted-proxy`: each request has `Forwarded` (RFC 7239) or `X-Forwarded-For`. They are read from the right:
//!   the first address that is not a trusted proxy's is the client's. A malformed element ends the reading at the last
//!   good address. From other clients, both fields are ignored.
//!
//! A proxy that appends to one of the fields passes on the other as the client sent it. So if a request has both and
//! they give different addresses, neither is believed, and the request counts as the proxy's own.
//!
//! All listeners use one policy: [`Proxies::source`] says what reports the address, and [`Proxies::client`] reads it.
//! Without flags, the first compares two values, and the second is never called.

mod cidr;
mod forwarded;

use std::net::IpAddr;
use std::sync::Arc;

pub use cidr::{Cidr, CidrError};

use forwarded::{FORWARDED, Syntax, X_FORWARDED_FOR, walk};

/// The proxies in front, as given on the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct ProxyArgs {
    /// Takes the client's address from the PROXY header of version 2 that every connection must start with. Other
    /// connections are closed; with --trusted-proxy, so are those from elsewhere. This disables HTTP/3, which has no
    /// such header.
    #[arg(long, help_heading = "Behind a proxy")]
    pub proxy_protocol: bool,

    /// A proxy in front, by its address or network, such as 10.0.0.0/8; may be repeated. Without --proxy-protocol,
    /// takes the client's address from Forwarded or X-Forwarded-For in its requests. Clients of a Unix socket are
    /// trusted too.
    #[arg(
        long = "trusted-proxy",
        value_name = "CIDR",
        value_delimiter = ',',
        help_heading = "Behind a proxy"
    )]
    pub trusted_proxies: Vec<Cidr>,
}

/// The proxies in front. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Proxies {
    protocol: bool,
    trusted: Arc<[Cidr]>,
}

/// What reports a connection's client address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The connection itself: the client is at its other end.
    Connection,
    /// The PROXY header at its start.
    ProxyHeader,
    /// `Forwarded` or `X-Forwarded-For` of each request, by [`Proxies::client`].
    Fields,
    /// Nothing that is believed: the connection is to be closed.
    Nobody,
}

impl From<&ProxyArgs> for Proxies {
    fn from(args: &ProxyArgs) -> Self {
        Self { protocol: args.proxy_protocol, trusted: args.trusted_proxies.as_slice().into() }
    }
}

impl Proxies {
    /// Whether connections start with a PROXY header.
    #[must_use]
    pub fn speak_proxy_protocol(&self) -> bool {
        self.protocol
    }

    /// Whether a connection from `remote`, or from a Unix socket, comes from a trusted proxy.
    #[must_use]
    pub fn trusts(&self, remote: Option<IpAddr>) -> bool {
        match remote {
            Some(address) => self.trusted.iter().any(|network| network.contains(address)),
            None => !self.trusted.is_empty(),
        }
    }

    /// What reports the client's address of a connection from `remote`, or from a Unix socket.
    #[inline]
    #[must_use]
    pub fn source(&self, remote: Option<IpAddr>) -> Source {
        match (self.protocol, self.trusted.is_empty()) {
            (false, true) => Source::Connection,
            (true, true) => Source::ProxyHeader,
            (true, false) if self.trusts(remote) => Source::ProxyHeader,
            (true, false) => Source::Nobody,
            (false, false) if self.trusts(remote) => Source::Fields,
            (false, false) => Source::Connection,
        }
    }

    /// The client's address of a request from a trusted proxy at `remote`: from the lines of `Forwarded` or of
    /// `X-Forwarded-For`, or else `remote` itself. Allocates nothing.
    pub fn client<'l>(
        &self,
        remote: Option<IpAddr>,
        forwarded: impl DoubleEndedIterator<Item = &'l [u8]>,
        x_forwarded_for: impl DoubleEndedIterator<Item = &'l [u8]>,
    ) -> Option<IpAddr> {
        let told = self.told(remote, forwarded, &FORWARDED);
        match (told, self.told(remote, x_forwarded_for, &X_FORWARDED_FOR)) {
            (Some(one), Some(other)) if one != other => remote,
            (Some(address), _) | (None, Some(address)) => address,
            (None, None) => remote,
        }
    }

    /// The same for a request with this head, from its request line on and without its body.
    #[must_use]
    pub fn client_of_head(&self, remote: Option<IpAddr>, head: &[u8]) -> Option<IpAddr> {
        self.client(remote, lines(head, b"forwarded"), lines(head, b"x-forwarded-for"))
    }

    /// The address that one of the fields gives; none if the field is absent.
    fn told<'l>(
        &self,
        remote: Option<IpAddr>,
        lines: impl DoubleEndedIterator<Item = &'l [u8]>,
        syntax: &Syntax,
    ) -> Option<Option<IpAddr>> {
        let mut lines = lines.peekable();
        lines.peek()?;
        Some(walk(lines, syntax, |address| self.trusts(Some(address))).or(remote))
    }
}

/// The values of a field's lines in a valid head.
pub(crate) fn lines<'h>(head: &'h [u8], name: &'static [u8]) -> impl DoubleEndedIterator<Item = &'h [u8]> {
    head.split(|byte| *byte == b'\n').filter_map(move |line| {
        let (start, rest) = line.split_at_checked(name.len())?;
        let value = rest.strip_prefix(b":")?;
        start.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(protocol: bool, trusted: &[&str]) -> Proxies {
        let trusted = trusted.iter().map(|text| text.parse().expect("a network"));
        Proxies::from(&ProxyArgs { proxy_protocol: protocol, trusted_proxies: trusted.collect() })
    }

    fn ip(text: &str) -> Option<IpAddr> {
        Some(text.parse().expect("an address"))
    }

    #[test]
    fn each_connection_has_one_who_tells_whose_it_is() {
        for (protocol, trusted, remote, source) in [
            (false, &[][..], ip("10.0.0.1"), Source::Connection),
            (false, &[], None, Source::Connection),
            (true, &[], ip("10.0.0.1"), Source::ProxyHeader),
            (true, &[], None, Source::ProxyHeader),
            (true, &["10.0.0.0/8"], ip("10.0.0.1"), Source::ProxyHeader),
            (true, &["10.0.0.0/8"], None, Source::ProxyHeader),
            (true, &["10.0.0.0/8"], ip("192.0.2.1"), Source::Nobody),
            (false, &["10.0.0.0/8", "::1"], ip("10.0.0.1"), Source::Fields),
            (false, &["10.0.0.0/8", "::1"], ip("::ffff:10.0.0.1"), Source::Fields),
            (false, &["10.0.0.0/8", "::1"], ip("::1"), Source::Fields),
            (false, &["10.0.0.0/8"], None, Source::Fields),
            (false, &["10.0.0.0/8"], ip("192.0.2.1"), Source::Connection),
        ] {
            assert_eq!(
                proxies(protocol, trusted).source(remote),
                source,
                "{protocol} {trusted:?} {remote:?}"
            );
        }
    }

    #[test]
    fn the_client_of_a_request_is_found_in_its_head() {
        let proxies = proxies(false, &["10.0.0.0/8"]);
        for (fields, client) in [
            ("", "10.0.0.9"),
            ("X-Forwarded-For: 203.0.113.1, 192.0.2.1\r\n", "192.0.2.1"),
            ("X-Forwarded-For: 203.0.113.1\r\nA: b\r\nx-forwarded-for: 192.0.2.1, 10.0.0.1\r\n", "192.0.2.1"),
            ("FORWARDED:for=192.0.2.1;proto=https\r\n", "192.0.2.1"),
            ("Forwarded: unknown\r\n", "10.0.0.9"),
            (
                "Forwarded-For: 192.0.2.1\r\nX-X-Forwarded-For: 192.0.2.1\r\nX-Real-IP: 192.0.2.1\r\n",
                "10.0.0.9",
            ),
            // The client may have invented one of them, so it is believed only if both agree.
            ("Forwarded: for=192.0.2.1\r\nX-Forwarded-For: 192.0.2.1\r\n", "192.0.2.1"),
            ("Forwarded: for=203.0.113.1\r\nX-Forwarded-For: 192.0.2.1\r\n", "10.0.0.9"),
            ("X-Forwarded-For: 203.0.113.1\r\nForwarded: for=192.0.2.1\r\n", "10.0.0.9"),
            ("X-Forwarded-For: 192.0.2.1\r\nForwarded:\r\n", "10.0.0.9"),
        ] {
            let head = format!("GET /X-Forwarded-For: HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
            assert_eq!(proxies.client_of_head(ip("10.0.0.9"), head.as_bytes()), ip(client), "{fields:?}");
        }
        let unix = proxies.client_of_head(None, b"GET / HTTP/1.1\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n");
        assert_eq!(unix, ip("192.0.2.1"));
        assert_eq!(proxies.client_of_head(None, b"GET / HTTP/1.1\r\n\r\n"), None);
    }
}
