//! What clients may take.

use std::time::Duration;

/// What clients may take. Sizes are bytes.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections of all workers together. 65,536 by default.
    pub connections: usize,
    /// Whether one more than that is let in all the same, and the connection of its worker ended that has waited for its
    /// client for longest: for the next request, the rest of a head, or that an answer is taken. It counts as one that
    /// was too slow. A crowd that stands still then keeps nobody out, but idle clients have to connect again. Off by
    /// default, which closes what is one too many at once.
    pub make_room: bool,
    /// Connections of one IPv4 address or one IPv6 /64, since that is what a subscriber is given (RFC 6177).
    /// 0 is no limit, the default: behind a NAT all come from one. Those of [`Config::proxies`](crate::Config::proxies) count as their clients'
    /// where they begin with a PROXY header, and otherwise not at all.
    pub connections_per_address: u32,
    /// A TLS or QUIC handshake, and the first bytes after it, or after connecting in the clear. 10 s by default.
    pub handshake_time: Duration,
    /// The request line and all header fields. 16 KiB by default.
    pub head_bytes: usize,
    /// A head from its first byte to its last. 10 s by default.
    pub head_time: Duration,
    /// Fields in a head. 100 by default.
    pub fields: usize,
    /// A request body. 2 MiB by default.
    pub body_bytes: u64,
    /// The bodies of all requests whose response has not begun, together: those that do not arrive along with their
    /// heads. A body counts as what it announces. Where it announces nothing it counts as `body_bytes`, or with GET and
    /// the like as 16 KiB, of which it may then have no more. Beyond, requests are refused with 503. 256 MiB by default;
    /// at least `body_bytes`.
    pub body_bytes_total: u64,
    /// What connections of HTTP/1.1 hold of answers that their clients are slow to take, and the fast path on those of HTTP/2,
    /// together; pieces of a body that are the service's own do not count. Beyond, who finds no room is closed. 256 MiB by
    /// default.
    pub answer_bytes_total: u64,
    /// The longest pause within a request body. 30 s by default.
    pub body_idle: Duration,
    /// A request body from when it is first waited for to its end, however it drips. 5 min by default.
    pub body_time: Duration,
    /// A connection without a request, after the first. 60 s by default.
    pub idle: Duration,
    /// A response of which the client takes less than 16 KiB, or the rest where that is less. 30 s by default.
    pub write_stall: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 65_536,
            make_room: false,
            connections_per_address: 0,
            handshake_time: Duration::from_secs(10),
            head_bytes: 16 * 1024,
            head_time: Duration::from_secs(10),
            fields: 100,
            body_bytes: 2 << 20,
            body_bytes_total: 256 << 20,
            answer_bytes_total: 256 << 20,
            body_idle: Duration::from_secs(30),
            body_time: Duration::from_secs(300),
            idle: Duration::from_secs(60),
            write_stall: Duration::from_secs(30),
        }
    }
}
