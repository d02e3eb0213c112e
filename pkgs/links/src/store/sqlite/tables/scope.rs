//! The links whose clicks are summed.

use super::in_domains;
use crate::domains::InDomains;
use crate::store::rules::clicks::ALL;

/// The links whose clicks are summed.
pub(in crate::store::sqlite) enum Links {
    /// One link.
    One(i64),
    /// All links, including deleted ones.
    All,
    /// The current links of these domains.
    At(InDomains),
}

impl Links {
    /// The condition on the column `link`, and its parameter, which comes first.
    pub(in crate::store::sqlite) fn condition(&self) -> (String, i64) {
        match self {
            Self::One(link) => ("link = ?1".to_owned(), *link),
            Self::All => ("link = ?1".to_owned(), ALL),
            Self::At(domains) => {
                let there = in_domains::condition(domains).unwrap_or_else(|| "true".to_owned());
                // The parameter must be used here as well, so that all conditions take it.
                (format!("?1 = {ALL} AND link IN (SELECT id FROM links WHERE {there})"), ALL)
            }
        }
    }
}
