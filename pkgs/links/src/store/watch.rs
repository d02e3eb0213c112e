//! Who is told of writes.

use std::time::Instant;

use crate::domains::LinkKey;

/// Told of every commit that changed links.
pub type OnChange = Box<dyn Fn(Change<'_>) + Send + Sync>;

/// What a commit touched.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// The links with these codes were created, edited or deleted.
    Codes(&'a [LinkKey]),
    /// Anything may have changed: an import, or a commit by another process.
    All,
}

/// Told of writes where several processes write, on whatever thread hears of them; it should not take long.
pub trait Watch: Send + Sync + 'static {
    /// Of a write of this process before it is acknowledged, of another's when it is heard of.
    fn changed(&self, change: Change<'_>);

    /// It has been told of every write that was committed before an instant.
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
