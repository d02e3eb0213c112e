//! A choice of domains, in SQL.

use crate::domains::{DomainId, InDomains};

/// The condition that a link is in one of these domains, after `WHERE`; empty where any is right.
pub(in crate::store::sqlite) fn condition(domains: &InDomains) -> Option<String> {
    match domains {
        // There is an index of the links of these.
        InDomains::Only(domains) if domains.len() == 1 && domains[0] != DomainId::DEFAULT => {
            Some(format!("domain = {} AND domain <> 0", domains[0].0))
        }
        // Those of the default domain are most: they are taken in the order that is asked for.
        domains => compared(domains),
    }
}

/// The same where links are found otherwise and compared with it: no index is asked, which the plus sees to.
pub(in crate::store::sqlite) fn compared(domains: &InDomains) -> Option<String> {
    let InDomains::Only(domains) = domains else { return None };
    let ids: Vec<_> = domains.iter().map(|domain| domain.0.to_string()).collect();
    Some(format!("+domain IN ({})", ids.join(", ")))
}
