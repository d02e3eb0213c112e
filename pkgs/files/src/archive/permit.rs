//! The limit of archives at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Archives at once, from their request until their clients have them or are gone. Each takes an encoder of about one
/// MiB, and 200 bytes per entry.
pub const ARCHIVES: usize = 16;

/// The permits for archives.
#[derive(Debug, Default)]
pub struct Permits(Arc<AtomicUsize>);

/// Permission for one of [`ARCHIVES`], until it is dropped.
#[derive(Debug)]
pub struct Permit(Arc<AtomicUsize>);

impl Permits {
    /// Takes a permit; none if all are taken.
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
