//! Targets: where links redirect to.

use std::net::IpAddr;

use url::{Host, Url};

/// The URL schemes that are allowed by default.
pub const SCHEMES: [&str; 2] = ["http", "https"];

/// The default limit of targets, in bytes. All browsers and proxies accept this much in a `Location` (RFC 9110, section
/// 4.1 recommends supporting 8,000).
pub const MAX_BYTES: usize = 8000;

/// The rules for targets.
#[derive(Clone, Debug)]
pub struct TargetPolicy {
    /// Allowed URL schemes, in lower case; by default `http` and `https`.
    pub schemes: Vec<String>,
    /// The longest target, in bytes, as sent and as stored.
    pub max_bytes: usize,
    /// The shortener's own hosts, `HOST` at any port or `HOST:PORT`. A target there would loop.
    pub own_hosts: Vec<String>,
}

/// Why a target is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTarget {
    /// It has no scheme.
    #[error("a target begins with its scheme, such as https://")]
    Relative,
    /// It is not an absolute URL (WHATWG URL Standard).
    #[error("not an absolute URL: {0}")]
    Syntax(url::ParseError),
    /// Its text parses as a different URL once it is written out, an edge case of non-web schemes.
    #[error("the URL is ambiguous: it reads back as another")]
    Ambiguous,
    /// Its scheme is not allowed.
    #[error("the scheme {0:?} is not allowed")]
    Scheme(String),
    /// It contains a user name or password: every visitor would see it, and it can disguise a foreign host.
    #[error("a target cannot carry a user name or password")]
    Credentials,
    /// It is too long.
    #[error("a target has at most {0} bytes")]
    TooLong(usize),
    /// It leads back here.
    #[error("the target leads back to this shortener")]
    Loop,
}

impl TargetPolicy {
    /// Returns the target as it is stored and sent: normalised and only visible ASCII, so it is valid in a header.
    /// Validating it again changes nothing.
    pub fn validate(&self, target: &str) -> Result<String, InvalidTarget> {
        self.validate_besides(target, |_| false)
    }

    /// Like [`validate`](Self::validate), but also refuses targets at a host for which `is_own` is true, at any port.
    pub(crate) fn validate_besides(
        &self,
        target: &str,
        is_own: impl Fn(&str) -> bool,
    ) -> Result<String, InvalidTarget> {
        if target.len() > self.max_bytes {
            return Err(InvalidTarget::TooLong(self.max_bytes));
        }
        let url = Url::parse(target).map_err(|error| match error {
            url::ParseError::RelativeUrlWithoutBase => InvalidTarget::Relative,
            error => InvalidTarget::Syntax(error),
        })?;
        if !self.schemes.iter().any(|scheme| scheme == url.scheme()) {
            return Err(InvalidTarget::Scheme(url.scheme().to_owned()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(InvalidTarget::Credentials);
        }
        let loops = |host: &str| self.is_own(host, url.port_or_known_default()) || is_own(host);
        if url.host_str().is_some_and(loops) {
            return Err(InvalidTarget::Loop);
        }
        // A path without slashes (`mailto:`) may contain spaces, which a header field may not preserve.
        let text = String::from(url).replace(' ', "%20");
        if text.len() > self.max_bytes {
            return Err(InvalidTarget::TooLong(self.max_bytes));
        }
        let stable = Url::parse(&text).is_ok_and(|again| again.as_str() == text);
        if !stable || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(InvalidTarget::Ambiguous);
        }
        Ok(text)
    }

    /// Whether this is one of the shortener's own hosts, at any port.
    pub(crate) fn has_host(&self, host: &str) -> bool {
        let host = canonical(host);
        self.own_hosts.iter().any(|own| canonical(split(own).0) == host)
    }

    fn is_own(&self, host: &str, port: Option<u16>) -> bool {
        let host = canonical(host);
        self.own_hosts.iter().any(|own| {
            let (own, at) = split(own);
            canonical(own) == host && (at.is_none() || at == port)
        })
    }
}

impl Default for TargetPolicy {
    fn default() -> Self {
        Self { schemes: SCHEMES.map(str::to_owned).into(), max_bytes: MAX_BYTES, own_hosts: Vec::new() }
    }
}

/// Splits a host and its port, if it has one. An IPv6 address with a port is in brackets.
fn split(own: &str) -> (&str, Option<u16>) {
    match own.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => match port.parse() {
            Ok(port) => (host, Some(port)),
            Err(_) => (own, None),
        },
        _ => (own, None),
    }
}

/// The canonical form of a host: lower case, IDNA as ASCII, addresses in full, mapped IPv4 as IPv4, [`LOCALHOST`] for
/// every name and address of this machine; without root dot and brackets.
fn canonical(host: &str) -> String {
    let host = host.trim_end_matches('.');
    let bare = host.trim_matches(['[', ']']);
    let address = match Host::parse(host) {
        Ok(Host::Ipv4(address)) => Some(IpAddr::V4(address)),
        Ok(Host::Ipv6(address)) => Some(IpAddr::V6(address)),
        Ok(Host::Domain(name)) => return local(name.trim_end_matches('.')),
        Err(_) => bare.parse().ok(),
    };
    match address.map(|address| address.to_canonical()) {
        Some(address) if address.is_loopback() || address.is_unspecified() => LOCALHOST.to_owned(),
        Some(address) => address.to_string(),
        None => bare.to_ascii_lowercase(),
    }
}

/// This machine's name for itself.
const LOCALHOST: &str = "localhost";

fn local(name: &str) -> String {
    let below = name.strip_suffix(LOCALHOST).is_some_and(|above| above.is_empty() || above.ends_with('.'));
    if below { LOCALHOST } else { name }.to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn policy() -> TargetPolicy {
        TargetPolicy {
            own_hosts: [
                "s.example",
                "B\u{fc}cher.example",
                "127.0.0.1",
                "::1",
                "port.example:8080",
                "dflt.example:443",
                "[2001:db8::1]:81",
            ]
            .map(str::to_owned)
            .into(),
            ..TargetPolicy::default()
        }
    }

    /// Accepts what the defaults refuse, to reach edge cases of URLs.
    fn lenient() -> TargetPolicy {
        let schemes = ["http", "https", "ftp", "file", "mailto", "data", "web+demo", "a"];
        TargetPolicy { schemes: schemes.map(str::to_owned).into(), ..policy() }
    }

    #[test]
    fn targets_are_normalised() {
        for (target, expected) in [
            ("https://example.com", "https://example.com/"),
            (" HTTPS://Example.COM:443/a b\n", "https://example.com/a%20b"),
            ("https://example.com/\u{fc}?\u{fc}#\u{fc}", "https://example.com/%C3%BC?%C3%BC#%C3%BC"),
            ("https://b\u{fc}cher.test/", "https://xn--bcher-kva.test/"),
            ("https://example.com/%0D%0Ax", "https://example.com/%0D%0Ax"),
            ("https://example.com/\r\nSet-Cookie: a=b", "https://example.com/Set-Cookie:%20a=b"),
            ("https://s.example.com/", "https://s.example.com/"),
            ("https://port.example/", "https://port.example/"),
            ("http://port.example:8081/", "http://port.example:8081/"),
            ("http://dflt.example/", "http://dflt.example/"),
            ("http://[2001:db8::1]/", "http://[2001:db8::1]/"),
            ("http://notlocalhost/", "http://notlocalhost/"),
            ("https://example.com/?to=https://s.example/", "https://example.com/?to=https://s.example/"),
            ("mailto:a b@example.com", "mailto:a%20b@example.com"),
        ] {
            assert_eq!(lenient().validate(target).as_deref(), Ok(expected), "{target:?}");
        }
    }

    #[test]
    fn bad_targets_are_refused() {
        let syntax = |error| InvalidTarget::Syntax(error);
        let scheme = |name: &str| InvalidTarget::Scheme(name.to_owned());
        for (target, expected) in [
            ("", InvalidTarget::Relative),
            ("example.com", InvalidTarget::Relative),
            ("//example.com/", InvalidTarget::Relative),
            ("https://", syntax(url::ParseError::EmptyHost)),
            ("https://example.com:99999/", syntax(url::ParseError::InvalidPort)),
            ("javascript:alert(1)", scheme("javascript")),
            ("DATA:text/html,x", scheme("data")),
            ("https://me@example.com/", InvalidTarget::Credentials),
            ("https://:secret@example.com/", InvalidTarget::Credentials),
            ("https://s.example@evil.example/", InvalidTarget::Credentials),
            ("https://s.example/", InvalidTarget::Loop),
            ("http://S.EXAMPLE.:8080/x", InvalidTarget::Loop),
            ("https://%73.example/", InvalidTarget::Loop),
            ("https://xn--bcher-kva.example/", InvalidTarget::Loop),
            ("http://0x7f.1:9000/", InvalidTarget::Loop),
            ("http://[0:0::1]/", InvalidTarget::Loop),
            ("http://[::ffff:127.0.0.1]/", InvalidTarget::Loop),
            ("http://[::ffff:7f00:1]:9000/", InvalidTarget::Loop),
            ("http://127.0.0.2/", InvalidTarget::Loop),
            ("http://0.0.0.0/", InvalidTarget::Loop),
            ("http://localhost/", InvalidTarget::Loop),
            ("http://a.LOCALHOST./", InvalidTarget::Loop),
            ("https://port.example:8080/", InvalidTarget::Loop),
            ("https://dflt.example/", InvalidTarget::Loop),
            ("http://[2001:db8::1]:81/", InvalidTarget::Loop),
        ] {
            assert_eq!(policy().validate(target), Err(expected), "{target:?}");
        }
    }

    #[test]
    fn the_length_is_bounded_before_and_after_normalising() {
        let policy = TargetPolicy { max_bytes: 24, ..TargetPolicy::default() };
        let too_long = Err(InvalidTarget::TooLong(24));
        for (target, fits) in [
            ("https://example.com/1234", true),
            ("https://example.com/12345", false),
            ("https://example.com/\u{fc}", false),
            ("https://example.com/       ", false),
        ] {
            let result = policy.validate(target);
            assert_eq!(result.is_ok(), fits, "{target:?}");
            assert!(fits || result == too_long, "{target:?}");
        }
    }

    /// Texts that often are URLs.
    fn text() -> impl Strategy<Value = String> {
        prop_oneof![
            any::<String>(),
            r"(https?|ftp|file|mailto|data|web\+demo|a):[/\\]{0,3}[a-zA-Z0-9.:@%\[\]/\\ ?#\PC]{0,40}",
            r"https?://[a-z0-9-]{1,9}\.(example|s\.example|\PC{1,3})(:[0-9]{1,5})?(/[\x00-\x7f\PC]{0,20}){0,4}",
        ]
    }

    proptest! {
        #[test]
        fn a_valid_target_is_fit_for_a_header_and_stays_as_it_is(target in text()) {
            if let Ok(once) = lenient().validate(&target) {
                prop_assert!(!once.is_empty() && once.len() <= MAX_BYTES);
                prop_assert!(once.bytes().all(|byte| (0x21..=0x7e).contains(&byte)), "{:?}", once);
                prop_assert_eq!(lenient().validate(&once), Ok(once));
            }
        }

        #[test]
        fn a_host_of_our_own_is_refused_however_it_is_dressed(
            scheme in "[hH][tT][tT][pP][sS]?",
            host in "[sS]\\.[eE][xX][aA][mM][pP][lL][eE]\\.?",
            port in proptest::option::of(any::<u16>()),
            path in "/[a-z0-9/?#%]{0,20}",
        ) {
            let port = port.map_or_else(String::new, |port| format!(":{port}"));
            let target = format!("{scheme}://{host}{port}{path}");
            prop_assert_eq!(policy().validate(&target), Err(InvalidTarget::Loop));
        }
    }
}
