//! Kernel settings of TCP sockets.

use std::time::Duration;

/// Kernel settings of listening sockets, which connections inherit. See tcp(7).
///
/// `TCP_NODELAY` is always on: answers are written whole, so Nagle's algorithm would only delay them.
#[derive(Clone, Debug)]
pub struct Tcp {
    /// How many connections may wait to be accepted, capped by `net.core.somaxconn`. 16,384 by default, where standard
    /// libraries use 128 to 1,024.
    pub backlog: i32,
    /// How long a connection is idle before the kernel probes whether the client still exists (`SO_KEEPALIVE`,
    /// `TCP_KEEPIDLE`). 60 s by default.
    pub keep_alive: Option<Duration>,
    /// How many unsent bytes a socket holds before a writer has to wait (`TCP_NOTSENT_LOWAT`). 128 KiB by default, as
    /// Cloudflare and tuned use: less memory per slow client, and fresher data.
    pub not_sent_low_water: Option<u32>,
    /// Accepts a connection only once its first bytes arrive, or after this time (`TCP_DEFER_ACCEPT`, in whole
    /// seconds), which saves a wake-up per connection. None by default, since it hides clients that wait for the server
    /// or connect in advance.
    pub defer_accept: Option<Duration>,
    /// How many returning clients at once may send a request with their first packet (`TCP_FASTOPEN`, RFC 7413). None
    /// by default: such a request may be delivered twice, and `net.ipv4.tcp_fastopen` has to allow it.
    pub fast_open: Option<u32>,
    /// The congestion control, such as `bbr` or `cubic`. None, the default, is the system's.
    pub congestion_control: Option<String>,
    /// Whether the kernel prefers the worker on the CPU where a connection's packets arrive (`SO_INCOMING_CPU`). Only
    /// for pinned workers. Off by default: it helps if the network card's queues are spread over the CPUs, and crowds
    /// one worker if not, as on loopback.
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
