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

/// An observer. Its methods are called on any thread that learns of a write, so they should not take long.
pub trait Watch: Send + Sync + 'static {
    /// Called for a write of this process before it is acknowledged, and for a write of another process once it is
    /// known.
    fn changed(&self, change: Change<'_>);

    /// Every write that was committed before this time has been reported. If only one process uses the database, this
    /// is always true, and the method is never called.
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
