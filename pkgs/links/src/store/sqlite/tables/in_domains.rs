//! A choice of domains, in SQL.

use crate::domains::{DomainId, InDomains};

/// The condition that a link is in one of these domains, after `WHERE`; empty where any is right.
pub(in crate::store::sqlite) fn condition(domains: &InDomains) -> Option<String> {
    let InDomains::Only(domains) = domains else { return None };
    let ids: Vec<_> = domains.iter().map(|domain| domain.0.to_string()).collect();
    Some(match domains[..] {
        // There is an index of the links of these.
        [domain] if domain != DomainId::DEFAULT => format!("domain = {} AND domain <> 0", domain.0),
        // Those of the default domain are most: they are taken in the order that is asked for, which the plus sees to.
        _ => format!("+domain IN ({})", ids.join(", ")),
    })
}
