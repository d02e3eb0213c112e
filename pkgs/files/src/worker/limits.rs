//! What one address may take: requests a second, and connections at once, of all listeners together.

use std::collections::HashMap;
use std::net::IpAddr;
use std::num::NonZero;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use service::socket::network;

/// Addresses that are remembered; past it, those that are not connected are forgotten.
const ADDRESSES: usize = 65_536;

/// The limits, and who has taken what.
#[derive(Debug)]
pub struct Limits {
    rate: Option<Rate>,
    connections: Option<NonZero<u32>>,
    peers: Mutex<HashMap<IpAddr, Arc<Peer>>>,
    start: Instant,
}

/// Requests a second, as the generic cell rate algorithm has them (ITU-T I.371).
#[derive(Clone, Copy, Debug)]
struct Rate {
    /// Nanoseconds a request takes of the allowance.
    interval: u64,
    /// Nanoseconds that may be taken ahead.
    burst: u64,
}

/// What one address has taken.
#[derive(Debug, Default)]
struct Peer {
    connections: AtomicU32,
    /// When the allowance is whole again, in nanoseconds since the start.
    whole_at: AtomicU64,
}

/// An address has too many connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany;

/// A connection of an address; it counts until it is dropped.
#[derive(Debug)]
pub struct AddressPermit {
    peer: Arc<Peer>,
    /// The rate, and since when time is counted.
    rate: Option<(Rate, Instant)>,
}

impl Limits {
    /// Limits for each address, `burst` requests at once and `rate` a second beyond; none where neither is limited.
    pub fn new(
        rate: Option<NonZero<u32>>,
        burst: NonZero<u32>,
        connections: Option<NonZero<u32>>,
    ) -> Option<Self> {
        let rate = rate.map(|rate| {
            let interval = 1_000_000_000 / u64::from(rate.get());
            Rate { interval, burst: interval * u64::from(burst.get()) }
        });
        (rate.is_some() || connections.is_some()).then(|| Self {
            rate,
            connections,
            peers: Mutex::default(),
            start: Instant::now(),
        })
    }

    /// Lets an address in. None where it has too many connections.
    pub fn enter(&self, address: IpAddr) -> Option<AddressPermit> {
        let peer = self.peer(address);
        let most = self.connections.map_or(u32::MAX, NonZero::get);
        let one_more = |open| (open < most).then_some(open + 1);
        peer.connections.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(AddressPermit { peer, rate: self.rate.map(|rate| (rate, self.start)) })
    }

    /// Whether an address may have another request now, whatever connection it comes by: a trusted proxy's, which are
    /// no address' own.
    pub fn may_ask(&self, address: IpAddr) -> bool {
        self.rate.is_none_or(|rate| self.peer(address).may_ask(rate, self.start.elapsed()))
    }

    fn peer(&self, address: IpAddr) -> Arc<Peer> {
        let mut peers = self.lock();
        if peers.len() >= ADDRESSES {
            peers.retain(|_, peer| Arc::strong_count(peer) > 1);
        }
        Arc::clone(peers.entry(network(address)).or_default())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, Arc<Peer>>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl listener::Admission for Limits {
    fn admit(&self, address: IpAddr) -> Option<listener::AdmissionPermit> {
        self.enter(address).map(|permit| Arc::new(permit) as listener::AdmissionPermit)
    }
}

impl AddressPermit {
    /// Whether it may have another request now.
    pub fn may_ask(&self) -> bool {
        self.rate.is_none_or(|(rate, start)| self.peer.may_ask(rate, start.elapsed()))
    }
}

impl Drop for AddressPermit {
    fn drop(&mut self) {
        self.peer.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Peer {
    fn may_ask(&self, rate: Rate, now: Duration) -> bool {
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let take = |whole_at: u64| {
            let whole_at = whole_at.max(now) + rate.interval;
            (whole_at - now <= rate.burst).then_some(whole_at)
        };
        self.whole_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
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

    #[test]
    fn connections_are_bounded_by_address() {
        let limits = Limits::new(None, NonZero::<u32>::MIN, of(2)).expect("a limit");
        let enter = |text| limits.enter(address(text));
        let first = enter("192.0.2.1");
        let _second = enter("::ffff:192.0.2.1").expect("the same over IPv6");
        assert!(first.is_some() && enter("192.0.2.1").is_none());
        let _others = [enter("192.0.2.2").expect("another"), enter("2001:db8::1").expect("another")];
        let _site = enter("2001:db8::2").expect("the same site");
        assert!(enter("2001:db8::ffff").is_none(), "the same site, used up");
        drop(first);
        assert!(enter("192.0.2.1").is_some());
    }

    #[test]
    fn requests_are_bounded_by_rate_and_burst() {
        let rate = Rate { interval: 100_000_000, burst: 300_000_000 };
        let peer = Peer::default();
        let at = |milliseconds| peer.may_ask(rate, Duration::from_millis(milliseconds));
        assert_eq!([at(0), at(0), at(0), at(0)], [true, true, true, false], "a burst of three");
        assert_eq!([at(99), at(100), at(101)], [false, true, false], "then ten a second");
        assert_eq!([at(9000), at(9000), at(9000), at(9000)], [true, true, true, false], "the burst is back");
    }

    #[test]
    fn requests_by_a_proxy_are_bounded_by_the_address_they_come_from() {
        let limits = Limits::new(of(1), NonZero::new(2).expect("not 0"), of(1)).expect("a limit");
        let may_ask = |text| limits.may_ask(address(text));
        assert_eq!([may_ask("192.0.2.1"), may_ask("192.0.2.1"), may_ask("192.0.2.1")], [true, true, false]);
        assert!(may_ask("192.0.2.2"), "another has its own");
        let permit = limits.enter(address("192.0.2.1")).expect("no connection is counted by that");
        assert!(!permit.may_ask(), "and one that connects itself has used up the same");
    }

    #[test]
    fn nothing_is_counted_where_nothing_is_limited() {
        assert!(Limits::new(None, NonZero::<u32>::MIN, None).is_none());
    }
}
