//! Visits that wait for a database on another machine: cache misses, and clicks of limits.
//!
//! Results are cached for others, unless something has changed since the read started. While the database is away, the
//! last known state is used, and after that a standby's; answers say which.

use std::time::{Duration, Instant};

use crate::cache::{Cache, Entry, Grants};
use crate::domains::DomainId;
use crate::store::{Error, FoundRoute, Lease, Remote};

/// How long a node keeps granted clicks that it does not need.
const IDLE: Duration = Duration::from_secs(5);

/// How often it checks for them.
const LOOK: Duration = Duration::from_secs(1);

/// How long a failed read of a known link waits until the feed fails too, or until another server answers.
const AGREED: Duration = Duration::from_secs(10);

/// How often it checks.
const AGAIN: Duration = Duration::from_millis(20);

/// How certain a result is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certainty {
    /// It is the database's current state.
    Sure,
    /// It was right this long ago, and the database is away.
    Cached(Duration),
    /// It comes from a standby, and the database is away.
    Standby,
}

/// Reads what there is for a code.
pub async fn find(
    cache: &Cache,
    remote: &Remote,
    domain: DomainId,
    code: &str,
) -> Result<(Entry, Certainty), Error> {
    let cached = || Some((cache.last(domain, code)?, Certainty::Cached(cache.lingers()?)));
    let (away, known) = (cache.lingers().is_some(), cache.last(domain, code).is_some());
    if let Some(found) = cached() {
        return Ok(found);
    }
    let reading = cache.reading(domain, code);
    // If the feed finds no server, a read would wait as long.
    let failed = if away {
        Error::Unreachable("no server of PostgreSQL takes writes".to_owned())
    } else {
        match remote.route(domain, code).await {
            Ok(found) => {
                let entry = cache.keep(reading, domain, code, route(cache, remote, found));
                return Ok((entry, Certainty::Sure));
            }
            Err(error) => error,
        }
    };
    // During a fail-over, a server may cancel the read or have no connections left, which is reported as busy.
    if !(matches!(failed, Error::Unreachable(_)) || known && matches!(failed, Error::Busy)) {
        return Err(failed);
    }
    // The feed may have failed meanwhile.
    if let Some(found) = cached() {
        return Ok(found);
    }
    let failed = match remote.route_of_any(domain, code).await {
        Some(Ok(found)) => {
            // Only the primary grants clicks, and so limits.
            let route = found.map(|FoundRoute { route, .. }| route);
            return Ok((cache.entry(reading, domain, code, route), Certainty::Standby));
        }
        Some(Err(error)) => error,
        None if away => match remote.route(domain, code).await {
            Ok(found) => {
                let entry = cache.keep(reading, domain, code, route(cache, remote, found));
                return Ok((entry, Certainty::Sure));
            }
            Err(error) => error,
        },
        None => failed,
    };
    let begun = Instant::now();
    while known && begun.elapsed() < AGREED {
        if let Some(found) = cached() {
            return Ok(found);
        }
        if cache.is_fresh() {
            let reading = cache.reading(domain, code);
            if let Ok(found) = remote.route(domain, code).await {
                let entry = cache.keep(reading, domain, code, route(cache, remote, found));
                return Ok((entry, Certainty::Sure));
            }
        }
        tokio::time::sleep(AGAIN).await;
    }
    Err(failed)
}

/// The route. If its limit has changed, returns what was granted under the old one.
fn route(cache: &Cache, remote: &Remote, found: Option<FoundRoute>) -> Option<crate::store::Route> {
    let FoundRoute { route, max_clicks } = found?;
    if cache.limits_changed(route.id, max_clicks) {
        let grants = cache.take_grants(Grants::Of(route.id));
        if !grants.is_empty() {
            // Runs to its end even if nobody waits for it.
            drop(remote.give_back(grants));
        }
    }
    Some(route)
}

/// Requests clicks of a link for this node. Returns whether it got any.
pub async fn lease(cache: &Cache, remote: &Remote, link: i64) -> Result<bool, Error> {
    match remote.lease(link).await? {
        Lease::Granted(clicks) => {
            cache.grant(link, clicks);
            Ok(true)
        }
        Lease::UsedUp => Ok(false),
    }
}

/// Returns unneeded grants; never ends.
pub async fn give_back(cache: &Cache, remote: &Remote) -> std::convert::Infallible {
    loop {
        tokio::time::sleep(LOOK).await;
        give_back_idle(cache, remote, IDLE).await;
    }
}

/// Returns what was granted and not requested for this long.
pub async fn give_back_idle(cache: &Cache, remote: &Remote, idle: Duration) {
    let grants = cache.take_grants(Grants::Idle(idle));
    if !grants.is_empty()
        && let Err(error) = remote.give_back(grants).await
    {
        tracing::warn!(%error, "clicks that were granted are not given back: nobody answers them");
    }
}
