//! Checks the host of requests to a server without keys, so that web pages cannot reach it by DNS rebinding.
//!
//! A server on loopback without keys trusts everybody who can reach it: every program on this machine, including
//! browsers. Suppose the name of a page of `evil.example` suddenly resolves to 127.0.0.1. For the browser, the page
//! then has the same origin as the server, and can read and write everything. Only the name gives it away, since the
//! browser sends `Host: evil.example`. So such a server accepts only requests for local names:
//!
//! - `localhost` and names that end in `.localhost` (RFC 6761, section 6.3),
//! - 127.0.0.0/8 and `[::1]`,
//! - the IP addresses it listens on, since addresses have no DNS to be rebound,
//! - what `--allowed-host` names,
//!
//! each with any port or none. An `Origin`, which browsers send with every write, must have such a name too. Clients
//! of a Unix socket are no browsers, so there an empty or absent `Host` is accepted.
//!
//! # Behind a reverse proxy
//!
//! If a proxy passes on the client's `Host` (nginx with `proxy_set_header Host $host`, Caddy, Traefik), allow that
//! name: `--allowed-host api.example.org`. If a proxy sends its upstream's address, as nginx does by default, `Host`
//! needs nothing; but pages that it serves send their own `Origin`, which must be allowed. Whatever a proxy lets
//! through has all rights, so let it ask for a password, or give the service keys.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use http::Request;
use http::header::{self, HeaderValue};

use crate::problem::Problem;
use crate::socket::Address;

/// Names besides local ones for which a server without keys accepts requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct AllowedHostArgs {
    /// Without keys, also takes requests for this host, such as the public name of a reverse proxy in front; may be
    /// repeated. Local names (localhost, 127.0.0.1, ::1) are always taken, others refused against DNS rebinding
    #[arg(long = "allowed-host", value_name = "NAME", value_delimiter = ',')]
    pub allowed_hosts: Vec<HostName>,
}

/// A host as in `Host`, without a port: a name, an IPv4 address, or an IPv6 address in brackets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostName(Box<str>);

/// A text that is no [`HostName`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a host without scheme, port or path, such as api.example.org or [2001:db8::1]")]
pub struct HostNameError;

impl FromStr for HostName {
    type Err = HostNameError;

    fn from_str(text: &str) -> Result<Self, HostNameError> {
        let known = match text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
            Some(address) => address.parse::<Ipv6Addr>().is_ok(),
            None => is_name(without_dot(text.as_bytes())),
        };
        if known { Ok(Self(text.strip_suffix('.').unwrap_or(text).into())) } else { Err(HostNameError) }
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The kind of socket that a request came through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketFamily {
    /// TCP or QUIC: a browser may have sent it.
    Network,
    /// A Unix socket.
    Unix,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It names another host.
    #[error(
        "without keys, requests are taken for local names only, such as localhost; allow the name of a reverse proxy by \
         --allowed-host"
    )]
    Host,
    /// A page of another origin sent it.
    #[error(
        "without keys, requests are taken from pages of local origins only; allow the name of another by --allowed-host"
    )]
    Origin,
}

impl From<Refused> for Problem {
    /// 403.
    fn from(refused: Refused) -> Self {
        Self::forbidden(refused.to_string())
    }
}

/// The names for which a server without keys accepts requests; see the [module](self).
#[derive(Clone, Debug, Default)]
pub struct AllowedHosts {
    names: Box<[HostName]>,
    addresses: Box<[IpAddr]>,
}

impl AllowedHosts {
    /// Allows local names, those of `args`, and the IP addresses among `served`. Unspecified addresses (`[::]`) add
    /// none.
    pub fn new<'a>(args: &AllowedHostArgs, served: impl IntoIterator<Item = &'a Address>) -> Self {
        let addresses = served.into_iter().filter_map(|address| match address {
            Address::Tcp(address) => Some(address.ip()).filter(|ip| !ip.is_unspecified()),
            _ => None,
        });
        Self { names: args.allowed_hosts.as_slice().into(), addresses: addresses.collect() }
    }

    /// Whether to accept a request, by its `Host` (or `:authority`) and its `Origin`. Allocates nothing.
    ///
    /// # Errors
    /// When one of the two is not allowed; the error says which.
    pub fn check(
        &self,
        family: SocketFamily,
        host: Option<&[u8]>,
        origin: Option<&[u8]>,
    ) -> Result<(), Refused> {
        let host = host.unwrap_or_default();
        let local = family == SocketFamily::Unix && host.is_empty();
        if !local && !self.has_authority(host) {
            return Err(Refused::Host);
        }
        match origin {
            Some(origin) if !self.has_origin(origin) => Err(Refused::Origin),
            _ => Ok(()),
        }
    }

    /// [`check`](Self::check) for a whole request. HTTP/2 and 3 have the host in the URI and may also have a `Host`;
    /// then both must be allowed. `origin` is the request's `Origin`. It is none if pages of that origin may send
    /// requests, whatever their host is.
    ///
    /// # Errors
    /// As for [`check`](Self::check).
    pub fn check_request<B>(
        &self,
        family: SocketFamily,
        request: &Request<B>,
        origin: Option<&HeaderValue>,
    ) -> Result<(), Refused> {
        let host = request.headers().get(header::HOST).map(HeaderValue::as_bytes);
        let authority = request.uri().authority().map(|authority| authority.as_str().as_bytes());
        let origin = origin.map(HeaderValue::as_bytes);
        if let (Some(_), Some(_)) = (authority, host) {
            self.check(family, authority, origin)?;
        }
        self.check(family, host.or(authority), origin)
    }

    /// `scheme "://" host [ ":" port ]` (RFC 6454, section 6.1). Anything else, including `null`, is refused here.
    fn has_origin(&self, origin: &[u8]) -> bool {
        ["http://", "https://"].into_iter().any(|scheme| {
            origin.split_at_checked(scheme.len()).is_some_and(|(start, authority)| {
                start.eq_ignore_ascii_case(scheme.as_bytes()) && self.has_authority(authority)
            })
        })
    }

    /// `host [ ":" port ]` (RFC 9110, section 7.2).
    fn has_authority(&self, authority: &[u8]) -> bool {
        // The port follows the last colon, unless that colon is within brackets.
        let host = match authority.iter().rposition(|&byte| byte == b':' || byte == b']') {
            Some(colon) if authority[colon] == b':' => {
                if !is_port(&authority[colon + 1..]) {
                    return false;
                }
                &authority[..colon]
            }
            _ => authority,
        };
        let Ok(host) = str::from_utf8(host) else { return false };
        if self.names.iter().any(|name| name.0.eq_ignore_ascii_case(without_dot_str(host))) {
            return true;
        }
        match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(address) => {
                address.parse::<Ipv6Addr>().is_ok_and(|address| self.has_address(address.into()))
            }
            None => match host.parse::<Ipv4Addr>() {
                Ok(address) => self.has_address(address.into()),
                Err(_) => is_local_name(without_dot(host.as_bytes())),
            },
        }
    }

    fn has_address(&self, address: IpAddr) -> bool {
        // 0.0.0.0 and IPv4-mapped addresses reach loopback too, but only attackers use them, so they are refused.
        address.is_loopback() || self.addresses.contains(&address)
    }
}

fn is_port(text: &[u8]) -> bool {
    text.len() <= 5 && text.iter().all(u8::is_ascii_digit)
}

/// `localhost` or a name below it.
fn is_local_name(name: &[u8]) -> bool {
    const LOCALHOST: &[u8] = b"localhost";
    let Some(start) = name.len().checked_sub(LOCALHOST.len()) else { return false };
    let (above, last) = name.split_at(start);
    last.eq_ignore_ascii_case(LOCALHOST) && above.strip_suffix(b".").map_or(above.is_empty(), is_name)
}

/// Labels of letters, digits, `-` and `_`, separated by dots.
fn is_name(name: &[u8]) -> bool {
    name.split(|&byte| byte == b'.').all(|label| {
        !label.is_empty()
            && label.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    })
}

/// The name without a final dot, which only marks it as fully qualified.
fn without_dot(name: &[u8]) -> &[u8] {
    name.strip_suffix(b".").unwrap_or(name)
}

fn without_dot_str(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(names: &[&str]) -> AllowedHosts {
        let names = names.iter().map(|name| name.parse().expect("a name")).collect();
        let served = ["192.0.2.7:80", "[2001:db8::7]:80", "[::]:80", "0.0.0.0:80", "unix:/run/socket"]
            .map(|text| text.parse::<Address>().expect("an address"));
        AllowedHosts::new(&AllowedHostArgs { allowed_hosts: names }, &served)
    }

    fn check(hosts: &AllowedHosts, host: &str, origin: Option<&str>) -> Result<(), Refused> {
        hosts.check(SocketFamily::Network, Some(host.as_bytes()), origin.map(str::as_bytes))
    }

    #[test]
    fn local_names_are_taken() {
        for host in [
            "localhost",
            "localhost:8100",
            "localhost:",
            "LocalHost:8100",
            "localhost.",
            "localhost.:80",
            "a.localhost",
            "a-b.c_d.LOCALHOST:1",
            "127.0.0.1",
            "127.0.0.1:65535",
            "127.1.2.3:80",
            "[::1]",
            "[::1]:8100",
            "[0:0:0:0:0:0:0:1]:80",
            "192.0.2.7",
            "[2001:db8::7]:443",
        ] {
            assert_eq!(check(&hosts(&[]), host, None), Ok(()), "{host}");
            for scheme in ["http", "https", "HTTP"] {
                let origin = format!("{scheme}://{host}");
                assert_eq!(check(&hosts(&[]), "localhost", Some(&origin)), Ok(()), "{origin}");
            }
        }
    }

    #[test]
    fn the_tricks_of_rebinding_are_refused() {
        for host in [
            "",
            ":8100",
            "evil.com",
            "127.0.0.1.evil.com",
            "127.0.0.1.evil.com:8100",
            "localhost.evil.com",
            "localhost.evil.com:8100",
            "evil-localhost",
            "evillocalhost",
            "localhost..",
            ".localhost",
            "a..localhost",
            "evil.com/.localhost",
            "evil.com#.localhost",
            "evil.com:80@a.localhost",
            "evil.com:80.localhost",
            "user@localhost",
            "localhost@evil.com",
            "localhost:80@evil.com",
            "user:localhost@evil.com:80",
            "localhost:x",
            "localhost:123456",
            "localhost:-1",
            "localhost:80:80",
            "localhost localhost",
            " localhost",
            "localhost\0",
            "localhost,evil.com",
            "l\u{f6}calhost",
            "0.0.0.0",
            "0.0.0.0:8100",
            "0",
            "127.1",
            "0177.0.0.1",
            "2130706433",
            "0x7f.0.0.1",
            "127.0.0.1.",
            "128.0.0.1",
            "[::]",
            "[::ffff:127.0.0.1]",
            "[::ffff:7f00:1]:8100",
            "[::1%lo]",
            "[::1",
            "::1",
            "[::1]evil.com",
            "[::1]:evil.com",
            "[127.0.0.1]",
            "[localhost]",
            "192.0.2.8",
            "[2001:db8::8]",
        ] {
            assert_eq!(check(&hosts(&[]), host, None), Err(Refused::Host), "{host:?}");
            let origin = format!("http://{host}");
            assert_eq!(check(&hosts(&[]), "localhost", Some(&origin)), Err(Refused::Origin), "{origin:?}");
        }
        let not_utf8 = hosts(&[]).check(SocketFamily::Network, Some(b"\xff.localhost"), None);
        assert_eq!(not_utf8, Err(Refused::Host));
    }

    #[test]
    fn an_origin_is_a_scheme_and_a_local_name() {
        for origin in [
            "null",
            "",
            "localhost",
            "file://",
            "ftp://localhost",
            "http:localhost",
            "http://localhost/",
            "http://",
        ] {
            assert_eq!(check(&hosts(&[]), "localhost", Some(origin)), Err(Refused::Origin), "{origin:?}");
        }
        // Both are checked, the host first.
        assert_eq!(check(&hosts(&[]), "evil.com", Some("http://evil.com")), Err(Refused::Host));
    }

    #[test]
    fn hosts_that_were_named_are_taken_too() {
        let hosts = hosts(&["API.example.org", "[2001:db8::1]", "203.0.113.1", "whole."]);
        for host in [
            "api.example.org",
            "Api.Example.Org:443",
            "api.example.org.",
            "[2001:db8::1]:80",
            "203.0.113.1",
            "whole",
            "localhost",
        ] {
            assert_eq!(check(&hosts, host, Some(&format!("https://{host}"))), Ok(()), "{host}");
        }
        for host in ["example.org", "a.api.example.org", "api.example.org.evil.com", "whole.."] {
            assert_eq!(check(&hosts, host, None), Err(Refused::Host), "{host}");
        }
    }

    #[test]
    fn a_unix_socket_needs_no_host_and_takes_no_foreign_one() {
        let hosts = hosts(&[]);
        assert_eq!(hosts.check(SocketFamily::Network, None, None), Err(Refused::Host));
        for host in [None, Some(""), Some("localhost")] {
            assert_eq!(hosts.check(SocketFamily::Unix, host.map(str::as_bytes), None), Ok(()), "{host:?}");
        }
        assert_eq!(hosts.check(SocketFamily::Unix, Some(b"evil.com"), None), Err(Refused::Host));
        assert_eq!(hosts.check(SocketFamily::Unix, None, Some(b"http://evil.com")), Err(Refused::Origin));
    }

    #[test]
    fn what_is_no_host_cannot_be_named() {
        for text in ["", "*", "http://a", "a:80", "a/b", "[a]", "::1", "a..b", ".", "a b"] {
            assert_eq!(text.parse::<HostName>(), Err(HostNameError), "{text:?}");
        }
    }

    #[test]
    fn a_refusal_is_403_and_says_what_to_do() {
        for refused in [Refused::Host, Refused::Origin] {
            let problem = Problem::from(refused);
            assert_eq!(problem.status, 403);
            assert!(problem.detail.contains("--allowed-host"), "{}", problem.detail);
        }
    }
}
