//! Limits the memory of all writes that wait for the database or for their commit. A write goes on when its client
//! leaves, so what the listener counts for the client does not bound them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::Error;

/// How many bytes writes may hold together before further ones are refused, unless an option says otherwise. It is far
/// more than waits for a database that keeps up, and small beside the memory of a machine that has one.
pub const WRITE_BYTES: u64 = 128 << 20;

/// The bytes that writes currently hold.
#[derive(Debug)]
pub struct WriteBudget {
    limit: u64,
    held: AtomicU64,
}

/// The bytes of one write. Dropping it returns them.
#[derive(Debug)]
pub struct WriteReservation {
    writes: Arc<WriteBudget>,
    bytes: u64,
}

impl WriteBudget {
    /// A budget of this many bytes, of which nothing is held.
    pub fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self { limit, held: AtomicU64::new(0) })
    }

    /// Counts a write of this many bytes. It may need more than is left, so that a large one is not refused as long as
    /// small ones keep coming.
    ///
    /// # Errors
    /// [`Error::Busy`] if nothing is left.
    pub fn reserve(self: &Arc<Self>, bytes: u64) -> Result<WriteReservation, Error> {
        let before = self.held.fetch_add(bytes, Relaxed);
        // Dropping that of a refused write returns it.
        let reserved = WriteReservation { writes: Arc::clone(self), bytes };
        if before < self.limit { Ok(reserved) } else { Err(Error::Busy) }
    }
}

impl Drop for WriteReservation {
    fn drop(&mut self) {
        self.writes.held.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_have_a_sum_and_a_large_one_has_room_beside_small_ones() {
        let writes = WriteBudget::new(100);
        let small = writes.reserve(1).expect("room");
        let large = writes.reserve(1_000).expect("room, as long as some is left");
        assert!(matches!(writes.reserve(1), Err(Error::Busy)));
        drop(large);
        let (_first, second) = (writes.reserve(98).expect("room again"), writes.reserve(1).expect("room"));
        assert!(matches!(writes.reserve(1), Err(Error::Busy)), "refused ones are not counted, and these are");
        drop((small, second));
        assert!(writes.reserve(1).is_ok());
    }
}
