//! Domains: their rules, and how many links one transaction deletes together with a domain.

use crate::domains::{self, Domain, DomainId, DomainPatch, InvalidHost, NewDomain};
use crate::store::{Error, Policy};
use crate::when::Timestamp;

/// How many links are deleted with their domain in one transaction, so that others do not wait long.
pub const MAX_LINKS_DELETED: usize = 2_000;

/// A domain that follows every rule, except that its host may be taken.
pub fn draft(new: NewDomain, policy: &Policy) -> Result<Domain, Error> {
    let host = domains::parse(&new.host)?;
    if policy.targets.has_host(&host) {
        return Err(InvalidHost::Own.into());
    }
    let domain = Domain {
        id: DomainId::DEFAULT,
        root_target: target("root_target", new.root_target, policy, Some(&host))?,
        default_target: target("default_target", new.default_target, policy, Some(&host))?,
        not_found_html: new.not_found_html,
        created_at: Timestamp::now(),
        host,
    };
    domain.check()?;
    Ok(domain)
}

/// A patch whose targets follow every rule.
pub fn checked(patch: DomainPatch, policy: &Policy) -> Result<DomainPatch, Error> {
    let checked = |field, given: Option<Option<String>>| {
        given.map(|given| target(field, given, policy, None)).transpose()
    };
    Ok(DomainPatch {
        root_target: checked("root_target", patch.root_target)?,
        default_target: checked("default_target", patch.default_target)?,
        not_found_html: patch.not_found_html,
    })
}

/// Checks a domain's target by the rules for links' targets. `host` is the host that becomes the shortener's own.
fn target(
    field: &'static str,
    given: Option<String>,
    policy: &Policy,
    host: Option<&str>,
) -> Result<Option<String>, Error> {
    let Some(given) = given else { return Ok(None) };
    let known = policy.domains.now();
    let is_own = |own: &str| {
        known.find(own.as_bytes()).is_some() || host.is_some_and(|host| domains::is_at(own.as_bytes(), host))
    };
    match policy.targets.validate_besides(&given, is_own) {
        Ok(target) => Ok(Some(target)),
        Err(invalid) => Err(Error::field(field, invalid.to_string())),
    }
}
