//! How many archives there may be at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Archives at once, from when they are asked for until their clients have them or are gone. Each takes an encoder of some
/// mebibyte, and 200 bytes an entry.
pub const ARCHIVES: usize = 16;

/// Those that there may be.
#[derive(Debug, Default)]
pub struct Permits(Arc<AtomicUsize>);

/// That an archive is one of [`ARCHIVES`]; until it is dropped.
#[derive(Debug)]
pub struct Permit(Arc<AtomicUsize>);

impl Permits {
    /// One more; none where there are as many as may be.
    pub fn take(&self) -> Option<Permit> {
        let one_more = |count| (count < ARCHIVES).then_some(count + 1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(Permit(Arc::clone(&self.0)))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
