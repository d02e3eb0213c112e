//! Domains: additional hosts for links, each with its own codes. The default domain has no name here. Its links answer
//! at every host that belongs to no other domain.

mod host;
mod table;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::invalid::InvalidField;
use crate::patch::present;
use crate::when::Timestamp;

pub use host::{InvalidHost, is_at, parse};
pub use table::{CachedDomains, Domains, SharedDomains, UnknownDomain};

/// The name of the default domain, where a name is needed.
pub const DEFAULT: &str = "default";

/// The most domains besides the default one. All of them are in memory with their pages.
pub const MAX_DOMAINS: usize = 256;

/// The longest page of a domain, in bytes.
pub const MAX_PAGE_BYTES: usize = 64 * 1024;

/// A domain's id in the database. Ids are never reused, so data left over from a deleted domain is never attributed to
/// another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DomainId(pub(crate) i64);

impl DomainId {
    /// The domain without a name.
    pub const DEFAULT: Self = Self(0);
}

/// A link's key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LinkKey {
    /// Its domain.
    pub domain: DomainId,
    /// Its code at that domain.
    pub code: String,
}

impl From<&str> for LinkKey {
    /// A code at the default domain.
    fn from(code: &str) -> Self {
        code.to_owned().into()
    }
}

impl From<&String> for LinkKey {
    /// A code at the default domain.
    fn from(code: &String) -> Self {
        code.clone().into()
    }
}

impl From<String> for LinkKey {
    /// A code at the default domain.
    fn from(code: String) -> Self {
        Self { domain: DomainId::DEFAULT, code }
    }
}

/// A selection of domains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum InDomains {
    /// All domains.
    #[default]
    All,
    /// Only these; possibly none.
    Only(Vec<DomainId>),
}

impl InDomains {
    /// Whether it includes a domain.
    pub fn has(&self, domain: DomainId) -> bool {
        match self {
            Self::All => true,
            Self::Only(domains) => domains.contains(&domain),
        }
    }
}

/// A domain as stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Domain {
    /// The id that its links refer to. Not part of the API.
    #[serde(skip)]
    pub id: DomainId,
    /// Its host name: in lower case, IDNA as ASCII.
    #[schema(example = "go.example")]
    pub host: String,
    /// Where `/` redirects to. If absent, a page says what this is.
    pub root_target: Option<String>,
    /// Where codes without a link redirect to, by 302. If absent, they are 404.
    pub default_target: Option<String>,
    /// The page for 404, for people: HTML without scripts, at most 64 KiB.
    pub not_found_html: Option<String>,
    /// When it was created.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
}

/// What a client sends to create a domain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewDomain {
    /// Its host name, without scheme, port and path.
    pub host: String,
    /// See [`Domain::root_target`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root_target: Option<String>,
    /// See [`Domain::default_target`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_target: Option<String>,
    /// See [`Domain::not_found_html`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_found_html: Option<String>,
}

/// A merge patch (RFC 7396) of a domain: an absent field stays, `null` clears it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DomainPatch {
    /// See [`Domain::root_target`].
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<String>)]
    pub root_target: Option<Option<String>>,
    /// See [`Domain::default_target`].
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<String>)]
    pub default_target: Option<Option<String>>,
    /// See [`Domain::not_found_html`].
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<String>)]
    pub not_found_html: Option<Option<String>>,
}

impl Domain {
    /// Refuses contradictory fields, and pages that are too long.
    pub(crate) fn check(&self) -> Result<(), InvalidField> {
        if self.not_found_html.as_ref().is_some_and(|page| page.len() > MAX_PAGE_BYTES) {
            return Err(InvalidField::new(
                "not_found_html",
                format!("a page has at most {MAX_PAGE_BYTES} bytes"),
            ));
        }
        if self.default_target.is_some() && self.not_found_html.is_some() {
            let reason = "codes without a link have a default_target or this page, not both";
            return Err(InvalidField::new("not_found_html", reason));
        }
        Ok(())
    }
}

/// The short URL of a code: `base`, such as `https://go.example`, with the host of its domain.
pub fn short_url(base: &str, host: Option<&str>, code: &str) -> String {
    let base = base.trim_end_matches('/');
    let parts = host.and_then(|host| {
        let (scheme, rest) = base.split_once("://")?;
        let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        // After the brackets of an IPv6 address.
        let port = authority.rfind(':').filter(|&at| !authority[at..].contains(']'));
        Some((scheme, host, port.map_or("", |at| &authority[at..]), path))
    });
    match parts {
        Some((scheme, host, port, path)) => format!("{scheme}://{host}{port}{path}/{code}"),
        None => format!("{base}/{code}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_url_is_the_public_one_with_the_domains_host() {
        for (base, host, expected) in [
            ("https://go.example/", None, "https://go.example/abc"),
            ("https://go.example", Some("b.example"), "https://b.example/abc"),
            ("https://go.example:8443/x/", Some("b.example"), "https://b.example:8443/x/abc"),
            ("http://[::1]", Some("b.example"), "http://b.example/abc"),
            ("http://[::1]:8080", Some("b.example"), "http://b.example:8080/abc"),
        ] {
            assert_eq!(short_url(base, host, "abc"), expected, "{base}");
        }
    }
}
