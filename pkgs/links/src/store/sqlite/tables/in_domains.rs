//! SQL for a selection of domains.

use crate::domains::{DomainId, InDomains};

/// The condition that a link is in one of these domains, after `WHERE`; `None` for all domains.
pub(in crate::store::sqlite) fn condition(domains: &InDomains) -> Option<String> {
    match domains {
        // An index lists the links of such a domain.
        InDomains::Only(domains) if domains.len() == 1 && domains[0] != DomainId::DEFAULT => {
            Some(format!("domain = {} AND domain <> 0", domains[0].0))
        }
        // Most links are at the default domain, so links are read in the requested order and then checked.
        domains => compared(domains),
    }
}

/// Like [`condition`], for links that are found in another way and then checked. The plus keeps SQLite from using an
/// index.
pub(in crate::store::sqlite) fn compared(domains: &InDomains) -> Option<String> {
    let InDomains::Only(domains) = domains else { return None };
    let ids: Vec<_> = domains.iter().map(|domain| domain.0.to_string()).collect();
    Some(format!("+domain IN ({})", ids.join(", ")))
}
