//! Which host a visit is for, and what answers there.

use request_head::Lines;

use crate::domains::{self, Domain, Domains};

/// What answers at hosts that are no domain's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum UnknownHost {
    /// The default domain.
    #[default]
    Default,
    /// 404 for everything; the default domain answers at its own host alone.
    NotFound {
        /// That of the public URL.
        own: String,
    },
}

/// Where a request names its host. It is not read before somebody needs to know it.
#[derive(Clone, Copy, Debug, Default)]
pub enum Host<'v> {
    /// Nowhere.
    #[default]
    None,
    /// This authority (`host [ ":" port ]`), whatever there is in the fields.
    Authority(&'v [u8]),
    /// In the fields of a head in origin form.
    Lines(&'v Lines<'v, 'v>),
}

impl<'v> Host<'v> {
    fn read(self) -> Option<&'v [u8]> {
        match self {
            Self::None => None,
            Self::Authority(authority) => Some(authority),
            Self::Lines(lines) => {
                let mut fields = lines.fields.iter();
                fields.find(|field| field.name.eq_ignore_ascii_case("host")).map(|field| field.value)
            }
        }
    }
}

/// What answers at a host.
pub enum Site<'d> {
    /// The default domain.
    Default,
    /// Another one.
    Domain(&'d Domain),
    /// Nothing.
    Unknown,
}

impl UnknownHost {
    /// What answers at a host. Where there is but the default domain, and it answers everywhere, the host is not looked at.
    #[inline]
    pub fn site<'d>(&self, domains: &'d Domains, host: Host<'_>) -> Site<'d> {
        if domains.is_empty() && *self == Self::Default { Site::Default } else { self.look(domains, host) }
    }

    fn look<'d>(&self, domains: &'d Domains, host: Host<'_>) -> Site<'d> {
        let host = host.read();
        match (host.and_then(|host| domains.find(host)), self) {
            (Some(domain), _) => Site::Domain(domain),
            (None, Self::Default) => Site::Default,
            (None, Self::NotFound { own }) if host.is_some_and(|host| domains::is_at(host, own)) => {
                Site::Default
            }
            (None, Self::NotFound { .. }) => Site::Unknown,
        }
    }
}
