//! The host of a visit, and the domain that answers there.

use request_head::Lines;

use crate::domains::{self, Domain, Domains};

/// What answers at a host that belongs to no domain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum UnknownHost {
    /// The default domain.
    #[default]
    Default,
    /// 404 for everything. The default domain answers only at its own host.
    NotFound {
        /// The public URL's host.
        own: String,
    },
}

/// Where a request names its host. The host is read only if it is needed.
#[derive(Clone, Copy, Debug, Default)]
pub enum Host<'v> {
    /// Nowhere.
    #[default]
    None,
    /// This authority (`host [ ":" port ]`), which goes before the fields.
    Authority(&'v [u8]),
    /// In the fields of a head with a target in origin form.
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

/// The domain that answers at a host.
pub enum Site<'d> {
    /// The default domain.
    Default,
    /// A further domain.
    Domain(&'d Domain),
    /// Nothing.
    Unknown,
}

impl UnknownHost {
    /// Finds the domain that answers at a host. If only the default domain exists and answers everywhere, the host is
    /// not read.
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
