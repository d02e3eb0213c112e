//! Targets: where a link leads.

use url::{Host, Url};

/// URL schemes allowed unless configured.
pub const SCHEMES: [&str; 2] = ["http", "https"];

/// The longest target unless configured, in bytes: what browsers and proxies are sure to take in a `Location`
/// (RFC 9110, section 4.1 recommends to support 8,000).
pub const MAX_BYTES: usize = 8000;

/// What a target may be.
#[derive(Clone, Debug)]
pub struct TargetPolicy {
    /// URL schemes allowed, in lower case; `http` and `https` unless configured.
    pub schemes: Vec<String>,
    /// The longest target, in bytes, both as sent and as stored.
    pub max_bytes: usize,
    /// The shortener's own host names (without port): a target there would loop.
    pub own_hosts: Vec<String>,
}

/// Why a target is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTarget {
    /// Not an absolute URL (WHATWG URL Standard).
    #[error("not an absolute URL: {0}")]
    Syntax(#[from] url::ParseError),
    /// A URL that reads differently once it is written down: one of the corners of non-web schemes.
    #[error("the URL is ambiguous: it reads back as another")]
    Ambiguous,
    /// A scheme that is not allowed.
    #[error("the scheme {0:?} is not allowed")]
    Scheme(String),
    /// A user name or password in the URL: every visitor would see it, and it dresses up foreign hosts.
    #[error("a target cannot carry a user name or password")]
    Credentials,
    /// Too long.
    #[error("a target has at most {0} bytes")]
    TooLong(usize),
    /// It leads back here.
    #[error("the target leads back to this shortener")]
    Loop,
}

impl TargetPolicy {
    /// The target as it is stored and sent: normalised, of visible ASCII only, and thus fit for a header.
    /// Validating the result again gives the same.
    pub fn validate(&self, target: &str) -> Result<String, InvalidTarget> {
        if target.len() > self.max_bytes {
            return Err(InvalidTarget::TooLong(self.max_bytes));
        }
        let url = Url::parse(target)?;
        if !self.schemes.iter().any(|scheme| scheme == url.scheme()) {
            return Err(InvalidTarget::Scheme(url.scheme().to_owned()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(InvalidTarget::Credentials);
        }
        if url.host_str().is_some_and(|host| self.is_own(host)) {
            return Err(InvalidTarget::Loop);
        }
        // A path without slashes (`mailto:`) keeps its spaces, which a header would not.
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

    fn is_own(&self, host: &str) -> bool {
        let host = canonical(host);
        self.own_hosts.iter().any(|own| canonical(own) == host)
    }
}

impl Default for TargetPolicy {
    fn default() -> Self {
        Self { schemes: SCHEMES.map(str::to_owned).into(), max_bytes: MAX_BYTES, own_hosts: Vec::new() }
    }
}

/// One spelling for a host: lower case, IDNA as ASCII, addresses in full, no root dot, no brackets.
fn canonical(host: &str) -> String {
    let host = host.trim_end_matches('.');
    let name = Host::parse(host).map_or_else(|_| host.to_ascii_lowercase(), |host| host.to_string());
    name.trim_matches(['[', ']']).trim_end_matches('.').to_owned()
}
