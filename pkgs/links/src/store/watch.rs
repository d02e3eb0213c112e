//! Observers of writes.

use std::time::Instant;

use crate::domains::LinkKey;

/// Told of every commit that changed links.
pub type OnChange = Box<dyn Fn(Change<'_>) + Send + Sync>;

/// The changes of a commit.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// The links with these codes were created, edited or deleted.
    Codes(&'a [LinkKey]),
    /// Anything may have changed: an import, or a commit by another process.
    All,
}

/// An observer if several processes write. Called on whatever thread hears of a write, so it should not take long.
pub trait Watch: Send + Sync + 'static {
    /// Called for a write of this process before it is acknowledged, and for another's when it is heard of.
    fn changed(&self, change: Change<'_>);

    /// Every write that was committed before this time has been reported.
    fn heard_all_before(&self, instant: Instant);

    /// The database is away now. Others that reach it may still write.
    fn away(&self);
}

/// An observer that does nothing.
impl Watch for () {
    fn changed(&self, _: Change<'_>) {}

    fn heard_all_before(&self, _: Instant) {}

    fn away(&self) {}
}
