//! What the kernel is told about sockets of TCP.

use std::time::Duration;

/// TCP: what the kernel is told about listening sockets, and they pass on to connections. tcp(7) has the details.
///
/// `TCP_NODELAY` is always on: answers are written whole, and Nagle's algorithm would only delay them.
#[derive(Clone, Debug)]
pub struct Tcp {
    /// How many connections may wait to be accepted; the kernel caps it by `net.core.somaxconn`. 16,384 by
    /// default, where standard libraries have 128 to 1,024.
    pub backlog: i32,
    /// How long a connection is idle before the kernel asks whether the client is still there (`SO_KEEPALIVE`,
    /// `TCP_KEEPIDLE`). 60 s by default.
    pub keep_alive: Option<Duration>,
    /// How many bytes may wait in a socket before a writer has to (`TCP_NOTSENT_LOWAT`). 128 KiB by default, as
    /// Cloudflare and tuned have it: less memory a slow client, and data that is fresher when it leaves.
    pub not_sent_low_water: Option<u32>,
    /// A connection is not accepted before its first bytes, or so long after (`TCP_DEFER_ACCEPT`, in whole
    /// seconds): a wake-up less for each. None by default, since clients that wait for the server, and those that
    /// connect beforehand, would be kept from being seen.
    pub defer_accept: Option<Duration>,
    /// Clients that have been here may send a request with their first packet (`TCP_FASTOPEN`, RFC 7413), so many
    /// at once. None by default: such a request may be delivered twice, and `net.ipv4.tcp_fastopen` has to allow it.
    pub fast_open: Option<u32>,
    /// The congestion control, such as `bbr` or `cubic`. None by default, which is the system's.
    pub congestion_control: Option<String>,
    /// Whether the kernel prefers for a connection the worker on whose CPU its packets arrive
    /// (`SO_INCOMING_CPU`); only where workers are pinned. Off by default: it pays where the network card's queues
    /// are spread over the CPUs, and crowds one worker where they are not, as on loopback.
    pub incoming_cpu: bool,
}

impl Default for Tcp {
    fn default() -> Self {
        Self {
            backlog: 16_384,
            keep_alive: Some(Duration::from_secs(60)),
            not_sent_low_water: Some(128 * 1024),
            defer_accept: None,
            fast_open: None,
            congestion_control: None,
            incoming_cpu: false,
        }
    }
}
