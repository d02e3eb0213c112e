//! Who is told of writes.

use std::time::Instant;

use crate::user::UserId;

/// What was written.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// These users, or they were deleted.
    Users(&'a [UserId]),
    /// API keys.
    Keys,
    /// Anything: another process wrote, or nobody knows what was missed.
    All,
}

/// Told of writes, on whatever thread hears of them; it should not take long.
pub trait Watch: Send + Sync + 'static {
    /// Of a write of this process before it is acknowledged, of another's when it is heard of.
    fn changed(&self, change: Change<'_>);

    /// It has been told of every write that was committed before an instant. A database of one process alone
    /// never says so: there, it always has.
    fn heard_all_before(&self, instant: Instant);

    /// The database is away at this moment; others may write to it meanwhile, where they reach it.
    fn away(&self);
}

/// Nobody.
impl Watch for () {
    fn changed(&self, _: Change<'_>) {}

    fn heard_all_before(&self, _: Instant) {}

    fn away(&self) {}
}
