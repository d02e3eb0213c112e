//! Observers of writes.

use std::time::Instant;

use crate::user::UserId;

/// The changes of a write.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// These users were written or deleted.
    Users(&'a [UserId]),
    /// API keys.
    Keys,
    /// Anything may have changed: another process wrote, or changes were missed.
    All,
}

/// An observer. Called on whatever thread hears of a write, so it should not take long.
pub trait Watch: Send + Sync + 'static {
    /// Called for a write of this process before it is acknowledged, and for another's when it is heard of.
    fn changed(&self, change: Change<'_>);

    /// Every write that was committed before this time has been reported. A database of a single process never calls
    /// it, since that is always so.
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
