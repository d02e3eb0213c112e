//! Observers of writes.

use std::time::Instant;

use crate::domains::LinkKey;

/// Called for every commit that changed links.
pub type OnChange = Box<dyn Fn(Change<'_>) + Send + Sync>;

/// The changes of a commit.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// The links with these codes were created, edited or deleted.
    Codes(&'a [LinkKey]),
    /// Anything may have changed: an import, or a commit by another process.
    All,
}

/// An observer of the writes of several processes. It is called on the thread that learns of a write, so it should not
/// take long.
pub trait Watch: Send + Sync + 'static {
    /// Called for a write of this process before it is acknowledged, and for another process's write when this process
    /// learns of it.
    fn changed(&self, change: Change<'_>);

    /// Called when every write that was committed before this time has been reported.
    fn heard_all_before(&self, instant: Instant);

    /// Called when the database is unreachable. Other processes that reach it may still write.
    fn away(&self);
}

/// An observer that does nothing.
impl Watch for () {
    fn changed(&self, _: Change<'_>) {}

    fn heard_all_before(&self, _: Instant) {}

    fn away(&self) {}
}
