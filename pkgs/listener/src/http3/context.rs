//! The state that the requests of one connection share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::send_window::SendWindow;
use super::stall_detector::StallDetector;
use crate::peer::Peer;
use crate::response::SendBuffer;
use crate::worker_context::WorkerContext;

/// The most requests of a connection that end before their head. h3 keeps the id of each, some 20 bytes, as long as the
/// connection lasts.
const MOST_HEADLESS: u32 = 10_000;

/// A connection, as its requests see it.
pub(super) struct Context {
    pub(super) worker: Arc<WorkerContext>,
    pub(super) peer: Peer,
    pub(super) window: SendWindow,
    /// The response data that its streams have not taken yet.
    pub(super) buffer: Arc<SendBuffer>,
    pub(super) stall: StallDetector,
    /// How many requests have ended before their head.
    pub(super) headless: AtomicU32,
}

impl Context {
    /// Records that a request has ended before its head.
    pub(super) fn count_headless(&self) {
        self.headless.fetch_add(1, Relaxed);
    }

    /// Whether so many have that the connection has to end.
    pub(super) fn has_too_many_headless(&self) -> bool {
        self.headless.load(Relaxed) > MOST_HEADLESS
    }
}
