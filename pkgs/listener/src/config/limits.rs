//! Limits of what clients may take.

use std::time::Duration;

/// Limits of what clients may take. Sizes are in bytes.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The most connections of all workers together. 65,536 by default.
    pub connections: usize,
    /// Whether to admit one more connection than that, and end another one. The other one is the connection of this
    /// worker that has waited longest for its client: for the next request, the rest of a head, more of a body that the
    /// service reads, or progress in taking an answer. It counts as timed out. So a crowd of stalled clients keeps
    /// nobody out, but idle clients have to reconnect. Off by default: the surplus connection is then closed at once.
    pub make_room: bool,
    /// The most connections of one IPv4 address or one IPv6 /64, since that is what a subscriber gets (RFC 6177). 0,
    /// the default, means no limit, since all clients behind a NAT share an address. Connections from
    /// [`Config::proxies`](crate::Config::proxies) count for their clients if they start with a PROXY header, and
    /// otherwise not at all.
    pub connections_per_address: u32,
    /// Timeout of a TLS or QUIC handshake, and of the first bytes after it or after a connect without TLS. 10 s by
    /// default.
    pub handshake_time: Duration,
    /// The most bytes of the request line and all header fields. 16 KiB by default.
    pub head_bytes: usize,
    /// Timeout of a head, from its first byte to its last. 10 s by default.
    pub head_time: Duration,
    /// The most fields in a head. 100 by default.
    pub fields: usize,
    /// The most bytes of a request body. 2 MiB by default.
    pub body_bytes: u64,
    /// The most bytes of the bodies of all requests whose response has not started, together. Bodies that arrive with
    /// their heads do not count. A body counts with its announced length. Without one it counts as `body_bytes`, or for
    /// GET and similar methods as 16 KiB, which it then may not exceed. Further requests are refused with 503. 256 MiB
    /// by default; at least `body_bytes`.
    pub body_bytes_total: u64,
    /// The most bytes of all answers that wait for slow clients. An HTTP/1.1 connection counts with everything but body
    /// pieces that the service owns, an HTTP/2 connection with what exceeds 64 KiB, and an HTTP/3 connection with what
    /// exceeds 96 KiB. At the limit, an HTTP/1.1 connection is closed, and so is an HTTP/2 connection whose answers
    /// come from the fast path; other streams wait until more was sent. 256 MiB by default.
    pub answer_bytes_total: u64,
    /// The longest pause within a request body. 30 s by default.
    pub body_idle: Duration,
    /// Timeout of a request body, from the first wait for it to its end, however slowly it drips. 5 min by default.
    pub body_time: Duration,
    /// Timeout of a connection without a request, after the first. 60 s by default.
    pub idle: Duration,
    /// Timeout of a response while the client takes less than 16 KiB of it, or less than the rest if that is shorter.
    /// 30 s by default.
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
