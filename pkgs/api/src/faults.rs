//! Deliberate panics, for tests.

use std::sync::atomic::{AtomicBool, Ordering};

static WRITER: AtomicBool = AtomicBool::new(false);

/// Makes the thread that writes to SQLite panic outside of any write, after its next transaction.
pub fn doom_writer() {
    WRITER.store(true, Ordering::Relaxed);
}

/// Panics if requested.
pub fn strike_writer() {
    assert!(!WRITER.load(Ordering::Relaxed), "on purpose: the writer");
}
