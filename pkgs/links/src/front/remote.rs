//! Visits that wait for a database server: cache misses, and clicks of limits.
//!
//! Results are cached for other visits, unless something has changed since the read started. While the database is
//! unreachable, a visit gets the last known state, or otherwise a standby's. The answer says which.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::cache::{Cache, Entry, Unspent};
use crate::domains::DomainId;
use crate::store::{Error, FoundRoute, Lease, Remote};

/// How long a node keeps granted clicks that no visit requests.
const IDLE: Duration = Duration::from_secs(5);

/// How often a node checks for such clicks.
const LOOK: Duration = Duration::from_secs(1);

/// How long a failed read of a known link waits until the feed fails too and the cache may be used, or until another
/// server answers.
const AGREED: Duration = Duration::from_secs(10);

/// How often that read checks again.
const AGAIN: Duration = Duration::from_millis(20);

/// The log's line if grants are not given back.
const LOST: &str = "clicks that were granted are not given back: nobody answers them";

/// How certain a result is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certainty {
    /// It is the database's current state.
    Sure,
    /// It was the database's state this long ago. The database is unreachable.
    Cached(Duration),
    /// It comes from a standby. The database is unreachable.
    Standby,
}

/// Reads the entry of a code.
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
    // If the feed finds no server, a read would only wait for one as well.
    let failed = if away {
        Error::Unreachable("no server of PostgreSQL takes writes".to_owned())
    } else {
        match remote.route(domain, code).await {
            Ok(found) => {
                let entry = cache.keep(reading, domain, code, route(cache, found));
                return Ok((entry, Certainty::Sure));
            }
            Err(error) => error,
        }
    };
    // During a failover, a server may cancel the read or have no connections left. Both are reported as busy.
    if !(matches!(failed, Error::Unreachable(_)) || known && matches!(failed, Error::Busy)) {
        return Err(failed);
    }
    // The feed may have failed in the meantime.
    if let Some(found) = cached() {
        return Ok(found);
    }
    let failed = match remote.route_of_any(domain, code).await {
        Some(Ok(found)) => {
            // Only the primary grants clicks, so limits are left alone here.
            let route = found.map(|FoundRoute { route, .. }| route);
            return Ok((cache.entry(reading, domain, code, route), Certainty::Standby));
        }
        Some(Err(error)) => error,
        None if away => match remote.route(domain, code).await {
            Ok(found) => {
                let entry = cache.keep(reading, domain, code, route(cache, found));
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
                let entry = cache.keep(reading, domain, code, route(cache, found));
                return Ok((entry, Certainty::Sure));
            }
        }
        tokio::time::sleep(AGAIN).await;
    }
    Err(failed)
}

/// The route. If the link's click limit has changed, no visit gets what was granted under the old one.
fn route(cache: &Cache, found: Option<FoundRoute>) -> Option<crate::store::Route> {
    let FoundRoute { route, max_clicks } = found?;
    cache.limits_changed(route.id, max_clicks);
    Some(route)
}

/// Requests clicks of a link for this node. Then the cache has some, or knows that the database has none left.
pub async fn lease(cache: &Cache, remote: &Remote, link: i64) -> Result<(), Error> {
    let limit = cache.recorded_limit(link);
    match remote.lease(link).await? {
        Lease::Granted(clicks) => cache.grant(link, clicks),
        Lease::UsedUp => cache.use_up(link, limit, Instant::now()),
    }
    Ok(())
}

/// Returns grants that no visit needs; never ends.
pub async fn give_back(cache: &Cache, remote: &Remote) -> std::convert::Infallible {
    loop {
        // Those of an earlier limit are returned at once, since the new one may have none left without them.
        let _ = tokio::time::timeout(LOOK, cache.outdated_grants()).await;
        // While the database is away, others cannot get what is idle, and this node's visitors can.
        let idle = if cache.is_fresh() { IDLE } else { Duration::MAX };
        let grants = cache.take_grants(idle);
        if !grants.is_empty() {
            let committing = Arc::default();
            if let Err(error) = remote.give_back(counts(&grants), &committing).await {
                if committing.load(Ordering::Relaxed) {
                    tracing::warn!(%error, "{LOST}");
                } else {
                    tracing::debug!(%error, "clicks that were granted are not given back yet");
                    cache.put_back(grants);
                }
            }
        }
    }
}

/// Returns all grants, as the last thing that this node does.
pub fn give_back_all(cache: &Cache, remote: &Remote) {
    let grants = cache.take_grants(Duration::ZERO);
    if !grants.is_empty()
        && let Err(error) = remote.give_back(counts(&grants), &Arc::default()).wait()
    {
        tracing::warn!(%error, "{LOST}");
    }
}

fn counts(grants: &[Unspent]) -> Vec<(i64, u64)> {
    grants.iter().map(|grant| (grant.link, grant.clicks)).collect()
}
