//! Deliberate panics, for tests: a path that contains such a name triggers one.

use std::cell::Cell;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};

/// While a request is answered.
pub const ANSWER: &str = "fault-answer";
/// While the cache is half changed.
pub const CACHE: &str = "fault-cache";
/// While a path is looked up on disk.
pub const LOOKUP: &str = "fault-lookup";
/// While a file is sent.
pub const SENDING: &str = "fault-sending";
/// While a directory is listed.
pub const LISTING: &str = "fault-listing";
/// In the worker's loop, outside of any connection, some time after the request.
pub const LOOP: &str = "fault-loop";
/// Not a panic: a worker waits once at both barriers of [`PAUSED`] before it answers, so that much happens in its next
/// round.
pub const PAUSE: &str = "fault-pause";

/// The worker has arrived, and may continue.
pub static PAUSED: [Barrier; 2] = [Barrier::new(2), Barrier::new(2)];

/// Not a panic: the kernel has no room for a read of the ring, for this many of the worker's attempts.
pub const RING: &str = "fault-ring";
const RING_REFUSALS: u32 = 3;
/// How often that happened.
pub static RING_REFUSED: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static REFUSALS: Cell<u32> = const { Cell::new(0) };
    static DOOMED: Cell<bool> = const { Cell::new(false) };
    static HAS_PAUSED: Cell<bool> = const { Cell::new(false) };
}

/// Panics if `path` requests it.
pub fn strike(fault: &str, path: &[u8]) {
    if memchr::memmem::find(path, LOOP.as_bytes()).is_some() {
        DOOMED.set(true);
    }
    if fault == SENDING && memchr::memmem::find(path, RING.as_bytes()).is_some() {
        REFUSALS.set(RING_REFUSALS);
    }
    if fault == ANSWER && memchr::memmem::find(path, PAUSE.as_bytes()).is_some() && !HAS_PAUSED.replace(true)
    {
        for barrier in &PAUSED {
            barrier.wait();
        }
    }
    assert!(memchr::memmem::find(path, fault.as_bytes()).is_none(), "on purpose: {fault}");
}

/// Panics if [`LOOP`] was requested on this thread.
pub fn strike_loop() {
    assert!(!DOOMED.get(), "on purpose: {LOOP}");
}

/// Whether the kernel should refuse this thread's reads.
pub fn is_ring_refused() -> bool {
    let left = REFUSALS.get();
    REFUSALS.set(left.saturating_sub(1));
    RING_REFUSED.fetch_add(left.min(1), Ordering::Relaxed);
    left > 0
}
