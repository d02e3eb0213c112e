//! Visits that have to wait for a database which is not on this machine's disk: what no cache knows, and clicks of limits.
//!
//! What was read is kept for others, as long as nothing has changed since it was asked for. While the database is away,
//! what was right when it was heard of last is answered, and then what a standby has; both are told apart.

use std::time::{Duration, Instant};

use crate::cache::{Cache, Entry, Grants};
use crate::domains::DomainId;
use crate::store::{Error, FoundRoute, Lease, Remote};

/// How long a node keeps clicks it was granted and nobody needs.
const IDLE: Duration = Duration::from_secs(5);

/// How often it looks for them.
const LOOK: Duration = Duration::from_secs(1);

/// How long a read of a known link that found no server waits for the feed to find none either, or for another server.
const AGREED: Duration = Duration::from_secs(10);

/// How often it looks.
const AGAIN: Duration = Duration::from_millis(20);

/// How sure it is what was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certainty {
    /// It is what the database has.
    Sure,
    /// It was right so long ago, and the database is away.
    Cached(Duration),
    /// A standby has it, and the database is away.
    Standby,
}

/// What there is of a code.
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
    // Where the feed finds nobody, a read would wait as long.
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
    // During a fail-over a server may cancel the read or be out of connections, which is reported as busy.
    if !(matches!(failed, Error::Unreachable(_)) || known && matches!(failed, Error::Busy)) {
        return Err(failed);
    }
    // The feed may have found nobody meanwhile.
    if let Some(found) = cached() {
        return Ok(found);
    }
    let failed = match remote.route_of_any(domain, code).await {
        Some(Ok(found)) => {
            // Clicks are granted by the primary alone, and so are limits.
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

/// The route; where its limit is another one than before, what was granted by that is given back.
fn route(cache: &Cache, remote: &Remote, found: Option<FoundRoute>) -> Option<crate::store::Route> {
    let FoundRoute { route, max_clicks } = found?;
    if cache.limits_changed(route.id, max_clicks) {
        let grants = cache.take_grants(Grants::Of(route.id));
        if !grants.is_empty() {
            // To its end also where nobody waits for it.
            drop(remote.give_back(grants));
        }
    }
    Some(route)
}

/// Has this node be granted clicks of a link; whether it was.
pub async fn lease(cache: &Cache, remote: &Remote, link: i64) -> Result<bool, Error> {
    match remote.lease(link).await? {
        Lease::Granted(clicks) => {
            cache.grant(link, clicks);
            Ok(true)
        }
        Lease::UsedUp => Ok(false),
    }
}

/// Gives back what was granted and nobody needs, for ever.
pub async fn give_back(cache: &Cache, remote: &Remote) -> std::convert::Infallible {
    loop {
        tokio::time::sleep(LOOK).await;
        give_back_idle(cache, remote, IDLE).await;
    }
}

/// Gives back what was granted and not asked for since so long.
pub async fn give_back_idle(cache: &Cache, remote: &Remote, idle: Duration) {
    let grants = cache.take_grants(Grants::Idle(idle));
    if !grants.is_empty()
        && let Err(error) = remote.give_back(grants).await
    {
        tracing::warn!(%error, "clicks that were granted are not given back: nobody answers them");
    }
}
