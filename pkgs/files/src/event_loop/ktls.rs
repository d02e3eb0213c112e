//! TLS connections that the kernel encrypts. They come from the TLS listener after their handshake, and are served like
//! plain ones: with sendfile, and without buffers of their own.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use listener::{Offload, Offloaded, ktls};

use crate::worker::shared::SharedState;

/// The most bytes of a record (RFC 8446, section 5.1).
const RECORD_BYTES: u64 = 1 << 14;

/// The most records under one AES-GCM key, of 2^24.5 that are safe (RFC 8446, section 5.5). The kernel neither counts
/// them nor changes the key.
const MOST_RECORDS: u64 = 1 << 24;

/// The state of such a connection.
#[derive(Debug)]
pub struct KtlsConnection {
    alt_svc: Box<[u8]>,
    records: u64,
    /// Whether the client was told the end.
    has_closed: bool,
}

impl KtlsConnection {
    /// A connection whose answers have this additional line.
    pub fn new(alt_svc: Box<[u8]>) -> Self {
        Self { alt_svc, records: 0, has_closed: false }
    }

    /// The line of answers that announces HTTP/3, or nothing.
    pub fn alt_svc(&self) -> &[u8] {
        &self.alt_svc
    }

    /// Records that this many bytes were sent in a turn.
    pub fn sent(&mut self, bytes: u64) {
        self.records += bytes.div_ceil(RECORD_BYTES) + 1;
    }

    /// Whether the next answer has to be the last: half of the key is used up, or 128 GiB.
    pub fn nears_key_limit(&self) -> bool {
        self.records >= MOST_RECORDS / 2
    }

    /// Whether nothing more may be sent.
    pub fn is_key_exhausted(&self) -> bool {
        self.records >= MOST_RECORDS
    }

    /// Tells the client the end, once, if there is room.
    pub fn send_close_notify(&mut self, socket: impl AsFd) {
        self.has_closed = self.has_closed || ktls::say_goodbye(socket).is_ok();
    }
}

/// Where the TLS listener hands over connections. No worker ends before this is dropped, so that a connection whose
/// handshake is done when draining starts is served too.
#[derive(Debug)]
pub struct Handover(Arc<SharedState>);

impl Handover {
    /// A handover to the workers of this state.
    pub fn new(shared: &Arc<SharedState>) -> Self {
        shared.handovers.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(shared))
    }
}

impl Offload for Handover {
    /// Gives it to the workers in turn.
    fn take(&self, connection: Offloaded) {
        let next = self.0.offloaded.fetch_add(1, Ordering::Relaxed);
        self.0.completions[next % self.0.completions.len()].push_connection(connection);
    }
}

impl Drop for Handover {
    fn drop(&mut self) {
        // A reader of this value also sees everything that was handed over before.
        self.0.handovers.fetch_sub(1, Ordering::Release);
        self.0.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_not_used_for_ever() {
        let mut ktls = KtlsConnection::new(Box::default());
        for _ in 0..1 << 17 {
            ktls.sent(1 << 20);
        }
        assert!(ktls.nears_key_limit() && !ktls.is_key_exhausted(), "128 GiB in turns of a mebibyte");
        for _ in 0..1 << 23 {
            ktls.sent(1);
        }
        assert!(ktls.is_key_exhausted(), "small answers have a record each");
    }
}
