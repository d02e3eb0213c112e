//! The allowed URLs of an issuer: anywhere with TLS, and without TLS only on this machine.

use std::fmt;
use std::str::FromStr;

use url::{Host, Url};

/// An issuer's URL, exactly as its tokens name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuerUrl(String);

/// A text that can't be an issuer's URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected https://HOST[/PATH], without a query; http is taken for loopback addresses alone")]
pub struct InvalidUrl;

impl IssuerUrl {
    /// The URL as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The URL of the issuer's metadata (OpenID Connect Discovery 1.0, section 4).
    pub(crate) fn discovery(&self) -> String {
        format!("{}/.well-known/openid-configuration", self.0.trim_end_matches('/'))
    }
}

impl FromStr for IssuerUrl {
    type Err = InvalidUrl;

    fn from_str(text: &str) -> Result<Self, InvalidUrl> {
        let url = endpoint(text).ok_or(InvalidUrl)?;
        let plain = url.query().is_none() && text.len() <= 1024;
        if plain { Ok(Self(text.to_owned())) } else { Err(InvalidUrl) }
    }
}

impl fmt::Display for IssuerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A URL that may be requested, or to which a browser may be sent. It needs TLS or a loopback address.
pub(crate) fn endpoint(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    let loopback = match url.host()? {
        Host::Ipv4(address) => address.is_loopback(),
        Host::Ipv6(address) => address.is_loopback(),
        Host::Domain(name) => name == "localhost",
    };
    let safe = url.scheme() == "https" || (url.scheme() == "http" && loopback);
    let plain = url.username().is_empty() && url.password().is_none() && url.fragment().is_none();
    (safe && plain).then_some(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_issuer_is_asked_by_tls_or_on_this_machine() {
        for (text, taken) in [
            ("https://id.example", true),
            ("https://id.example/realms/a/", true),
            ("http://127.0.0.1:5556/dex", true),
            ("http://[::1]:5556", true),
            ("http://localhost", true),
            ("http://id.example", false),
            ("http://127.0.0.1.example", false),
            ("http://10.0.0.1", false),
            ("https://ada:secret@id.example", false),
            ("https://id.example/?a=b", false),
            ("https://id.example/#a", false),
            ("file:///etc/passwd", false),
            ("id.example", false),
            ("", false),
        ] {
            assert_eq!(text.parse::<IssuerUrl>().is_ok(), taken, "{text}");
        }
        let url: IssuerUrl = "https://id.example/a/".parse().expect("a URL");
        assert_eq!(url.as_str(), "https://id.example/a/", "tokens name it to the letter");
        assert_eq!(url.discovery(), "https://id.example/a/.well-known/openid-configuration");
    }
}
