//! Errors in rules.

use super::archive::MOST_ENTRIES;
use super::{COMPRESSED_MOST, MAX_LINKS};
use crate::site::{access, pattern, route};

/// The most sites, since each worker has a table of names for each.
pub(super) const MAX_SITES: usize = 1024;

/// An error in rules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It isn't TOML, or has unknown keys.
    #[error("{0}")]
    Syntax(String),
    /// A path that can't match anything.
    #[error("rule {0:?}: a path begins with / or *")]
    Path(String),
    /// Both a path and an expression.
    #[error("rule {0:?}: path or match, not both")]
    Both(String),
    /// An invalid expression.
    #[error("rule {path:?}: {source}")]
    Pattern {
        /// The rule.
        path: String,
        /// The reason.
        source: pattern::Error,
    },
    /// Its routing.
    #[error("rule {path:?}: {source}")]
    Route {
        /// The rule.
        path: String,
        /// The reason.
        source: route::Error,
    },
    /// Its access control.
    #[error("rule {path:?}: {source}")]
    Access {
        /// The rule.
        path: String,
        /// The reason.
        source: access::Error,
    },
    /// An invalid header name, or a header that only the server sends.
    #[error("rule {path:?}: {field:?} is no field a rule may set")]
    Field {
        /// The rule.
        path: String,
        /// The header.
        field: String,
    },
    /// An invalid header value.
    #[error("rule {path:?}: the value of {field:?} is none a field may have")]
    Value {
        /// The rule.
        path: String,
        /// The header.
        field: String,
    },
    /// Sizes of files that would take too long to compress.
    #[error("rule {0:?}: compress-max is at most {COMPRESSED_MOST}")]
    Compressed(String),
    /// An invalid early hint.
    #[error("rule {path:?}: {link:?} is no link: those are like </style.css>; rel=preload; as=style")]
    Link {
        /// The rule.
        path: String,
        /// The hint.
        link: String,
    },
    /// Too many early hints.
    #[error("rule {0:?}: early-hints has at most {MAX_LINKS} links")]
    Links(String),
    /// Archives that would take too much memory.
    #[error("rule {0:?}: archive-max-entries is at most {MOST_ENTRIES}")]
    Entries(String),
    /// An error in sites.
    #[error(transparent)]
    Sites(#[from] SiteError),
    /// A status that can't have a page.
    #[error("error-pages: {0:?} is no status of an error")]
    Status(String),
}

/// Why sites are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SiteError {
    /// An invalid name.
    #[error("site {0:?}: that is no name of a host, nor one behind *.")]
    Host(String),
    /// Two sites with the same name.
    #[error("site {0:?}: there are two of this name")]
    Twice(String),
    /// A site that nobody can request, since it has no name.
    #[error("a site has no hosts")]
    Nameless,
    /// A certificate without its key, or the other way round.
    #[error("site {0:?}: cert and cert-key go together")]
    Certificate(String),
    /// Too many sites.
    #[error("there are more than {MAX_SITES} sites")]
    Many,
}
