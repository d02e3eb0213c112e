//! Limits on the number of connections, overall and by address.

use std::net::IpAddr;
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use service::address_limits::{AddressLimits, AddressPermit, AddressRate};

use crate::config::Limits;

/// The limit of connections at once.
#[derive(Debug)]
pub struct ConnectionLimit {
    most: usize,
    open: AtomicUsize,
}

/// Permission for one connection of a [`ConnectionLimit`]. Dropping it returns it.
#[derive(Debug)]
pub struct ConnectionPermit(Arc<ConnectionLimit>);

impl ConnectionLimit {
    /// A limit of `most` connections, of which none is open.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, open: AtomicUsize::new(0) })
    }

    /// Admits one more connection. At the limit, calls `make_room`, which returns whether it ends another connection.
    /// If it does, admits one too many, and otherwise none.
    pub fn admit_or(self: &Arc<Self>, make_room: impl FnOnce() -> bool) -> Option<ConnectionPermit> {
        // Dropping the surplus permit returns it.
        let permit = ConnectionPermit(Arc::clone(self));
        (self.open.fetch_add(1, Relaxed) < self.most || make_room()).then_some(permit)
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Relaxed);
    }
}

/// Limits the open connections of all workers and protocols.
#[derive(Debug)]
pub struct ConnectionLimiter {
    limit: Arc<ConnectionLimit>,
    /// The limits by address, if there are any.
    addresses: Option<Arc<AddressLimits>>,
}

/// Why a connection is not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There are too many.
    Overall,
    /// There are too many from this address.
    Address,
}

/// Permission for one connection. Dropping it returns it.
#[derive(Debug)]
pub struct Permit {
    connections: Arc<ConnectionLimiter>,
    _open: ConnectionPermit,
    address: Option<AddressPermit>,
}

impl ConnectionLimiter {
    /// A limiter with no open connection. Uses the `shared` limits per address, if there are any.
    pub fn new(limits: &Limits, shared: Option<Arc<AddressLimits>>) -> Arc<Self> {
        let own = || AddressLimits::new(None, NonZero::new(limits.connections_per_address));
        Arc::new(Self { limit: ConnectionLimit::new(limits.connections), addresses: shared.or_else(own) })
    }

    #[cfg(test)]
    fn open(&self) -> usize {
        self.limit.open.load(Relaxed)
    }

    /// Admits one more connection, from `address` if it has one.
    ///
    /// # Errors
    /// When there are too many.
    pub fn admit(self: &Arc<Self>, address: Option<IpAddr>) -> Result<Permit, Refused> {
        self.admit_or(address, || false)
    }

    /// The same, but at the limit, `make_room` is called to end another connection, and returns whether it does. The
    /// other connection counts until it has ended.
    ///
    /// # Errors
    /// When there are too many.
    pub fn admit_or(
        self: &Arc<Self>,
        address: Option<IpAddr>,
        make_room: impl FnOnce() -> bool,
    ) -> Result<Permit, Refused> {
        let open = self.limit.admit_or(make_room).ok_or(Refused::Overall)?;
        let mut permit = Permit { connections: Arc::clone(self), _open: open, address: None };
        if let Some(address) = address {
            permit.charge(address)?;
        }
        Ok(permit)
    }
}

impl Permit {
    /// Counts the connection for `address`, which was not known before.
    ///
    /// # Errors
    /// When there are too many from that address.
    pub fn charge(&mut self, address: IpAddr) -> Result<(), Refused> {
        if let (None, Some(addresses)) = (&self.address, &self.connections.addresses) {
            self.address = Some(addresses.enter(address).ok_or(Refused::Address)?);
        }
        Ok(())
    }

    /// The rate limit of its address.
    pub fn address_rate(&self) -> Option<AddressRate> {
        self.address.as_ref().and_then(AddressPermit::rate).cloned()
    }

    /// Gives its per-address permit to the new owner of the connection.
    pub fn take_address(&mut self) -> Option<AddressPermit> {
        self.address.take()
    }
}

/// The budget for request bodies that are being received, over all workers and protocols.
#[derive(Debug)]
pub struct BodyBudget {
    limit: u64,
    reserved: AtomicU64,
}

/// A reservation for receiving a body. Dropping it returns it.
#[derive(Debug)]
pub struct BodyReservation {
    bodies: Arc<BodyBudget>,
    bytes: u64,
}

impl BodyBudget {
    /// A budget of which nothing is reserved.
    pub fn new(limits: &Limits) -> Arc<Self> {
        let limit = limits.body_bytes_total.max(limits.body_bytes);
        Arc::new(Self { limit, reserved: AtomicU64::new(0) })
    }

    /// Reserves room for a body of this many bytes, if there is enough.
    pub fn reserve(self: &Arc<Self>, bytes: u64) -> Option<BodyReservation> {
        let reserved = BodyReservation { bodies: Arc::clone(self), bytes };
        // Dropping an excessive reservation returns it.
        let before = self.reserved.fetch_add(bytes, Relaxed);
        before.checked_add(bytes).is_some_and(|sum| sum <= self.limit).then_some(reserved)
    }
}

impl BodyReservation {
    /// The most bytes of the body.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for BodyReservation {
    fn drop(&mut self) {
        self.bodies.reserved.fetch_sub(self.bytes, Relaxed);
    }
}

/// The budget of all workers for answers that wait for clients to take them. It counts the memory that HTTP/1.1
/// connections hold themselves, what HTTP/2 connections have not sent, and what HTTP/3 connections keep until it is
/// acknowledged.
#[derive(Debug)]
pub struct ResponseBudget {
    limit: u64,
    held: AtomicU64,
}

/// One connection's part of the budget. Dropping it returns it.
#[derive(Debug)]
pub struct ResponseReservation {
    answers: Arc<ResponseBudget>,
    bytes: u64,
}

impl ResponseBudget {
    /// A budget of which nothing is held.
    pub fn new(limits: &Limits) -> Arc<Self> {
        Arc::new(Self { limit: limits.answer_bytes_total, held: AtomicU64::new(0) })
    }

    /// How many bytes are held.
    pub fn bytes(&self) -> u64 {
        self.held.load(Relaxed)
    }

    /// A reservation of zero bytes, to be resized.
    pub fn held(self: &Arc<Self>) -> ResponseReservation {
        ResponseReservation { answers: Arc::clone(self), bytes: 0 }
    }
}

impl ResponseReservation {
    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Holds this many bytes instead. If that is more than before, returns whether there is room.
    pub fn resize(&mut self, bytes: u64) -> bool {
        let before = std::mem::replace(&mut self.bytes, bytes);
        if bytes <= before {
            self.answers.held.fetch_sub(before - bytes, Relaxed);
            return true;
        }
        let more = bytes - before;
        self.answers.held.fetch_add(more, Relaxed).saturating_add(more) <= self.answers.limit
    }
}

impl Drop for ResponseReservation {
    fn drop(&mut self) {
        self.answers.held.fetch_sub(self.bytes, Relaxed);
    }
}

/// The least that a client has to take of a response, or send of a body, within its timeout. Less counts as stalled.
pub const MIN_PROGRESS_BYTES: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn connections(connections: usize, connections_per_address: u32) -> Arc<ConnectionLimiter> {
        ConnectionLimiter::new(&Limits { connections, connections_per_address, ..Limits::default() }, None)
    }

    #[test]
    fn what_is_dropped_is_given_back() {
        let connections = connections(2, 0);
        let first = connections.admit(None).expect("room");
        let _second = connections.admit(None).expect("room");
        assert_eq!(connections.admit(None).err(), Some(Refused::Overall));
        assert_eq!(connections.open(), 2);
        drop(first);
        let _third = connections.admit(None).expect("room again");
    }

    #[test]
    fn who_makes_room_counts_until_it_is_gone() {
        let connections = connections(1, 0);
        let first = connections.admit_or(None, || panic!("there is room")).expect("room");
        assert_eq!(connections.admit_or(None, || false).err(), Some(Refused::Overall));
        let second = connections.admit_or(None, || true).expect("room that is made");
        assert_eq!(connections.open(), 2);
        drop(first);
        assert_eq!(connections.admit(None).err(), Some(Refused::Overall));
        drop(second);
        assert_eq!(connections.open(), 0);
    }

    #[test]
    fn an_address_is_limited_by_itself() {
        let connections = connections(100, 1);
        let ip = |text: &str| Some(text.parse::<IpAddr>().expect("an address"));
        let first = connections.admit(ip("192.0.2.1")).expect("room");
        for (text, admitted) in
            [("192.0.2.1", false), ("::ffff:192.0.2.1", false), ("192.0.2.2", true), ("2001:db8::1", true)]
        {
            assert_eq!(connections.admit(ip(text)).is_ok(), admitted, "{text}");
        }
        let _network = connections.admit(ip("2001:db8::1")).expect("room");
        assert_eq!(connections.admit(ip("2001:db8::2:3")).err(), Some(Refused::Address));
        assert!(connections.admit(ip("2001:db8:0:1::1")).is_ok());
        drop(first);
        assert!(connections.admit(ip("192.0.2.1")).is_ok());
        assert_eq!(connections.open(), 1, "only the /64 is held; a refused one is not counted");
    }

    #[test]
    fn bodies_have_a_sum() {
        let bodies = BodyBudget::new(&Limits { body_bytes: 4, body_bytes_total: 10, ..Limits::default() });
        let first = bodies.reserve(4).expect("room");
        let second = bodies.reserve(6).expect("room");
        assert!(bodies.reserve(1).is_none());
        drop(second);
        assert!(bodies.reserve(u64::MAX).is_none() && bodies.reserve(7).is_none());
        drop((bodies.reserve(6).expect("room again"), first));
        assert_eq!(bodies.reserved.load(Relaxed), 0);
        let bodies = BodyBudget::new(&Limits { body_bytes: 4, body_bytes_total: 0, ..Limits::default() });
        assert!(bodies.reserve(4).is_some(), "one body always has room");
    }

    #[test]
    fn answers_that_wait_have_a_sum() {
        let answers = ResponseBudget::new(&Limits { answer_bytes_total: 10, ..Limits::default() });
        let (mut first, mut second) = (answers.held(), answers.held());
        assert!(first.resize(6) && second.resize(4));
        assert!(
            !second.resize(5) && second.resize(4) && first.resize(6),
            "what there is no room for is given back"
        );
        drop(second);
        assert!(first.resize(10) && first.resize(0));
        drop(first);
        assert_eq!(answers.held.load(Relaxed), 0);
    }

    #[test]
    fn listeners_that_share_limits_count_an_address_together() {
        let shared = AddressLimits::new(None, NonZero::new(1)).expect("a limit");
        let [plain, tls] =
            [(); 2].map(|()| ConnectionLimiter::new(&Limits::default(), Some(Arc::clone(&shared))));
        let address = Some(IpAddr::from([192, 0, 2, 1]));
        let mut permit = plain.admit(address).expect("the first");
        assert_eq!(tls.admit(address).err(), Some(Refused::Address));
        let taken = permit.take_address().expect("it has an address");
        drop(permit);
        assert_eq!((plain.open(), tls.open()), (0, 0), "one that is refused is not counted");
        assert!(tls.admit(address).is_err(), "the connection goes on elsewhere");
        drop(taken);
        assert!(tls.admit(address).is_ok());
    }
}
