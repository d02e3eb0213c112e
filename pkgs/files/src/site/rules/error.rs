//! What is wrong with rules.

use super::archive::MOST_ENTRIES;
use super::{COMPRESSED_MOST, MAX_LINKS};
use crate::site::{access, pattern, route};

/// The most sites: each worker has a table of names for each.
pub(super) const MAX_SITES: usize = 1024;

/// What is wrong with rules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It is no TOML, or has keys that are none.
    #[error("{0}")]
    Syntax(String),
    /// A path that can match nothing.
    #[error("rule {0:?}: a path begins with / or *")]
    Path(String),
    /// Both a path and an expression.
    #[error("rule {0:?}: path or match, not both")]
    Both(String),
    /// An expression that is none.
    #[error("rule {path:?}: {source}")]
    Pattern {
        /// Of which rule.
        path: String,
        /// Why.
        source: pattern::Error,
    },
    /// Where it leads.
    #[error("rule {path:?}: {source}")]
    Route {
        /// Of which rule.
        path: String,
        /// Why not there.
        source: route::Error,
    },
    /// Who may have it.
    #[error("rule {path:?}: {source}")]
    Access {
        /// Of which rule.
        path: String,
        /// Why that says nothing.
        source: access::Error,
    },
    /// No name of a field, or one that is the server's to send.
    #[error("rule {path:?}: {field:?} is no field a rule may set")]
    Field {
        /// Of which rule.
        path: String,
        /// Which.
        field: String,
    },
    /// A value that no field may have.
    #[error("rule {path:?}: the value of {field:?} is none a field may have")]
    Value {
        /// Of which rule.
        path: String,
        /// Of which field.
        field: String,
    },
    /// Files that would take too long.
    #[error("rule {0:?}: compress-max is at most {COMPRESSED_MOST}")]
    Compressed(String),
    /// A hint that is none.
    #[error("rule {path:?}: {link:?} is no link: those are like </style.css>; rel=preload; as=style")]
    Link {
        /// Of which rule.
        path: String,
        /// Which.
        link: String,
    },
    /// More hints than anybody takes.
    #[error("rule {0:?}: early-hints has at most {MAX_LINKS} links")]
    Links(String),
    /// Archives that would take too much memory.
    #[error("rule {0:?}: archive-max-entries is at most {MOST_ENTRIES}")]
    Entries(String),
    /// Sites.
    #[error(transparent)]
    Sites(#[from] SiteError),
    /// A status no page can be for.
    #[error("error-pages: {0:?} is no status of an error")]
    Status(String),
}

/// Why there are no sites.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SiteError {
    /// No name.
    #[error("site {0:?}: that is no name of a host, nor one behind *.")]
    Host(String),
    /// Two of a name.
    #[error("site {0:?}: there are two of this name")]
    Twice(String),
    /// A site nobody can ask for.
    #[error("a site has no hosts")]
    Nameless,
    /// One of the two.
    #[error("site {0:?}: cert and cert-key go together")]
    Certificate(String),
    /// Too many.
    #[error("there are more than {MAX_SITES} sites")]
    Many,
}
