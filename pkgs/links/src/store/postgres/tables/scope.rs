//! The links whose clicks are summed.

use super::list::ids;
use crate::domains::InDomains;
use crate::store::rules::clicks::ALL;

/// The links whose clicks are summed.
pub enum Links {
    /// One link, or all, including deleted ones.
    One(i64),
    /// The current links of these domains.
    At(InDomains),
}

impl Links {
    /// The condition on the column `link`, and its two parameters, which come first.
    pub fn condition(&self) -> (&'static str, i64, Option<Vec<i64>>) {
        match self {
            Self::One(link) => ("link = $1 AND $2::int8[] IS NULL", *link, None),
            Self::At(domains) => {
                let at =
                    "$1 = 0 AND link IN (SELECT id FROM links WHERE $2::int8[] IS NULL OR domain = ANY($2))";
                (at, ALL, ids(domains))
            }
        }
    }
}
