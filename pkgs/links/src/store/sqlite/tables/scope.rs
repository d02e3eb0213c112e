//! Whose clicks are summed.

use super::in_domains;
use crate::domains::InDomains;
use crate::store::rules::clicks::ALL;

/// Whose clicks are summed.
pub(in crate::store::sqlite) enum Links {
    /// One link's.
    One(i64),
    /// Those of all, also of those deleted since.
    All,
    /// Those of the links that there are at these domains.
    At(InDomains),
}

impl Links {
    /// The condition on the column `link`, and its parameter, which is the first.
    pub(in crate::store::sqlite) fn condition(&self) -> (String, i64) {
        match self {
            Self::One(link) => ("link = ?1".to_owned(), *link),
            Self::All => ("link = ?1".to_owned(), ALL),
            Self::At(domains) => {
                let there = in_domains::condition(domains).unwrap_or_else(|| "true".to_owned());
                // Has the parameter too, as the others have.
                (format!("?1 = {ALL} AND link IN (SELECT id FROM links WHERE {there})"), ALL)
            }
        }
    }
}
