//! Limits per client address, over all listeners of a service: connections at once, and requests per second.
//!
//! A table holds every connected address with a bucket that its connections share, so a request takes no lock. The
//! table has parts, each with its own lock. After an address has left, the table remembers when its bucket will be full
//! again, unless it is full already. The number of remembered addresses is bounded. The others are forgotten as in
//! [`RateLimiter`](crate::rate_limit::RateLimiter), which never searches for keys to forget.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::num::NonZero;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::rate_limit::{Buckets, Hashed, Rate, TokenBucket, nanos};

/// Parts of the table. A connection locks one part when it opens and when it closes.
const PARTS: usize = 64;

/// Addresses that are remembered although none of their connections is open.
const REMEMBERED: usize = 65_536;

/// Remembered addresses in each half of a part.
const HALF: usize = REMEMBERED / PARTS / 2;

/// The limits, and their current use.
#[derive(Debug)]
pub struct AddressLimits {
    rate: Option<Rate>,
    connections: u32,
    begin: Instant,
    hasher: foldhash::quality::RandomState,
    parts: Box<[Mutex<Part>]>,
}

#[derive(Debug, Default)]
struct Part {
    connected: HashMap<u64, Connected, Hashed>,
    left: Buckets,
}

/// An address that is connected.
#[derive(Debug)]
struct Connected {
    connections: u32,
    /// The rate limit; none without one.
    rate: Option<AddressRate>,
}

/// Permission for one connection of an address. Dropping it returns it.
#[derive(Debug)]
pub struct AddressPermit {
    limits: Arc<AddressLimits>,
    key: u64,
    rate: Option<AddressRate>,
}

/// The rate limit of an address, over all its connections. Clones share the bucket.
#[derive(Clone, Debug)]
pub struct AddressRate(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    bucket: TokenBucket,
    rate: Rate,
    begin: Instant,
}

impl AddressLimits {
    /// Limits each address to this rate of requests and this many connections. None if neither is limited.
    #[must_use]
    pub fn new(rate: Option<Rate>, connections: Option<NonZero<u32>>) -> Option<Arc<Self>> {
        (rate.is_some() || connections.is_some()).then(|| {
            Arc::new(Self {
                rate,
                connections: connections.map_or(u32::MAX, NonZero::get),
                begin: Instant::now(),
                hasher: foldhash::quality::RandomState::default(),
                parts: (0..PARTS).map(|_| Mutex::default()).collect(),
            })
        })
    }

    /// Admits a connection of an address. None if the address has as many as allowed.
    #[must_use]
    pub fn enter(self: &Arc<Self>, address: IpAddr) -> Option<AddressPermit> {
        let key = self.key(address);
        let mut part = self.part(key);
        let Part { connected, left } = &mut *part;
        let rate = match connected.entry(key) {
            Entry::Occupied(mut entry) => {
                let entry = entry.get_mut();
                if entry.connections >= self.connections {
                    return None;
                }
                entry.connections += 1;
                entry.rate.clone()
            }
            Entry::Vacant(entry) => {
                let rate = self.rate.map(|rate| {
                    let bucket = TokenBucket::full_at(left.full_at(key));
                    AddressRate(Arc::new(Shared { bucket, rate, begin: self.begin }))
                });
                entry.insert(Connected { connections: 1, rate }).rate.clone()
            }
        };
        drop(part);
        Some(AddressPermit { limits: Arc::clone(self), key, rate })
    }

    /// Whether an address may make another request now, over any connection. This is for connections of a trusted
    /// proxy, which carry requests of many addresses.
    #[must_use]
    pub fn may_ask(&self, address: IpAddr) -> bool {
        let Some(rate) = self.rate else { return true };
        let key = self.key(address);
        let mut part = self.part(key);
        let Part { connected, left } = &mut *part;
        let now = self.begin.elapsed();
        match connected.get(&key).and_then(|entry| entry.rate.as_ref()) {
            Some(AddressRate(shared)) => shared.bucket.take(rate, now).is_ok(),
            None => left.take(key, rate, nanos(now), HALF).is_ok(),
        }
    }

    /// A keyed hash of the address or its /64 (see [`network`](crate::socket::network)). Two addresses that collide
    /// share their limits, but no client can cause that.
    fn key(&self, address: IpAddr) -> u64 {
        match address.to_canonical() {
            IpAddr::V4(v4) => self.hasher.hash_one((4_u8, u64::from(v4.to_bits()))),
            IpAddr::V6(v6) => self.hasher.hash_one((6_u8, (v6.to_bits() >> 64) as u64)),
        }
    }

    fn part(&self, key: u64) -> MutexGuard<'_, Part> {
        self.parts[Hashed::shard(key, PARTS)].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AddressPermit {
    /// The rate limit of this address. None without one.
    #[must_use]
    pub fn rate(&self) -> Option<&AddressRate> {
        self.rate.as_ref()
    }
}

impl Drop for AddressPermit {
    fn drop(&mut self) {
        let mut part = self.limits.part(self.key);
        let Part { connected, left } = &mut *part;
        let Entry::Occupied(mut entry) = connected.entry(self.key) else { return };
        entry.get_mut().connections -= 1;
        if entry.get().connections > 0 {
            return;
        }
        if let Some(AddressRate(shared)) = entry.remove().rate {
            let full_at = shared.bucket.is_full_at();
            if full_at > nanos(self.limits.begin.elapsed()) {
                left.set(self.key, full_at, HALF);
            }
        }
    }
}

impl AddressRate {
    /// Whether another request is allowed now.
    #[must_use]
    pub fn may_ask(&self) -> bool {
        let Shared { bucket, rate, begin } = &*self.0;
        bucket.take(*rate, begin.elapsed()).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(number: u32) -> Option<NonZero<u32>> {
        NonZero::new(number)
    }

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    /// One request per hour, with bursts of `burst`.
    fn hourly(burst: u32) -> Option<Rate> {
        let burst = of(burst).expect("not 0");
        Some(Rate::per(std::time::Duration::from_secs(3600) * burst.get(), burst))
    }

    fn held(limits: &AddressLimits) -> (usize, usize) {
        let parts = limits.parts.iter().map(|part| part.lock().expect("no panic"));
        parts.fold((0, 0), |(connected, left), part| {
            (connected + part.connected.len(), left + part.left.len())
        })
    }

    #[test]
    fn connections_are_bounded_by_address() {
        let limits = AddressLimits::new(None, of(2)).expect("a limit");
        let enter = |text| limits.enter(address(text));
        let first = enter("192.0.2.1");
        let _second = enter("::ffff:192.0.2.1").expect("the same over IPv6");
        assert!(first.is_some() && enter("192.0.2.1").is_none());
        let _others = [enter("192.0.2.2").expect("another"), enter("2001:db8::1").expect("another")];
        let _site = enter("2001:db8::2").expect("the same site");
        assert!(enter("2001:db8::ffff").is_none(), "the same site, used up");
        assert!(enter("2001:db8:0:1::1").is_some(), "another site");
        drop(first);
        assert!(enter("192.0.2.1").is_some());
    }

    #[test]
    fn requests_of_an_address_share_a_bucket_whatever_they_come_by() {
        let limits = AddressLimits::new(hourly(4), None).expect("a limit");
        let ask = |permit: &AddressPermit| permit.rate().expect("a rate").may_ask();
        let (one, two) = (limits.enter(address("192.0.2.1")), limits.enter(address("192.0.2.1")));
        let (one, two) = (one.expect("no limit"), two.expect("no limit"));
        assert!(ask(&one) && ask(&two) && limits.may_ask(address("192.0.2.1")));
        assert!(limits.may_ask(address("192.0.2.2")), "another has its own");
        drop(one);
        assert!(ask(&two) && !ask(&two) && !limits.may_ask(address("192.0.2.1")));
        drop(two);
        assert!(!limits.may_ask(address("192.0.2.1")), "who leaves is remembered");
        let again = limits.enter(address("192.0.2.1")).expect("no limit");
        assert!(!ask(&again), "and so is who comes back");
    }

    #[test]
    fn who_is_connected_by_the_thousands_makes_nobody_be_forgotten() {
        let limits = AddressLimits::new(hourly(1), of(1)).expect("a limit");
        let spent = address("2001:db8::1");
        assert!(limits.may_ask(spent) && !limits.may_ask(spent));
        let number = |n: u32| IpAddr::from(n.to_be_bytes());
        // More addresses than are remembered after they have left.
        let permits: Vec<_> =
            (0..2 * REMEMBERED as u32).map(|n| limits.enter(number(n)).expect("one")).collect();
        assert_eq!(held(&limits), (2 * REMEMBERED, 1));
        assert!(!limits.may_ask(spent), "who has used up its requests");
        assert!(limits.enter(number(7)).is_none(), "who has its connection");
        drop(permits);
        assert_eq!(held(&limits), (0, 1), "who has asked for nothing need not be remembered");
        assert!(!limits.may_ask(spent));
    }

    #[test]
    fn who_has_left_is_remembered_within_bounds() {
        let limits = AddressLimits::new(hourly(1), of(1)).expect("a limit");
        for n in 0..3 * REMEMBERED as u32 {
            let permit = limits.enter(IpAddr::from(n.to_be_bytes())).expect("one");
            assert!(permit.rate().expect("a rate").may_ask());
        }
        let (connected, left) = held(&limits);
        assert!(connected == 0 && left <= REMEMBERED && left > REMEMBERED / 3, "{left} are kept");
        assert!(!limits.may_ask(IpAddr::from((3 * REMEMBERED as u32 - 1).to_be_bytes())), "the last");
    }

    #[test]
    fn nothing_is_counted_where_nothing_is_limited() {
        assert!(AddressLimits::new(None, None).is_none());
        let limits = AddressLimits::new(None, of(1)).expect("a limit");
        let permit = limits.enter(address("192.0.2.1")).expect("one");
        assert!(permit.rate().is_none() && limits.may_ask(address("192.0.2.1")));
    }
}
