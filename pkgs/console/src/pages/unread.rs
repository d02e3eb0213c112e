//! Bounds the memory of pages that their clients haven't read yet.

use axum::body::Body;
use bytes::Bytes;
use tokio::sync::{Semaphore, SemaphorePermit};

/// The most bytes of all such pages together.
const MOST_BYTES: usize = 32 << 20;

static ROOM: Semaphore = Semaphore::const_new(MOST_BYTES);

/// A page, and its part of the room.
struct Page {
    text: String,
    _room: SemaphorePermit<'static>,
}

impl AsRef<[u8]> for Page {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

/// The body of a page, which takes room until it is dropped. None if there is no room.
pub(super) fn body(text: String) -> Option<Body> {
    within(&ROOM, MOST_BYTES, text).map(Body::from)
}

/// A page that is larger than all of the room takes all of it.
fn within(room: &'static Semaphore, most: usize, text: String) -> Option<Bytes> {
    let bytes = u32::try_from(text.capacity().min(most)).ok()?;
    let room = room.try_acquire_many(bytes).ok()?;
    Some(Bytes::from_owner(Page { text, _room: room }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_nobody_reads_take_so_much_room() {
        static ROOM: Semaphore = Semaphore::const_new(100);
        let page = |bytes: usize| within(&ROOM, 100, "a".repeat(bytes));
        let unread = page(60).expect("there is room");
        assert_eq!(page(60), None);
        let part = unread.slice(..1);
        drop(unread);
        assert_eq!(page(60), None, "a part of it is still being sent");
        drop(part);
        assert_eq!(page(1000).expect("all of the room").len(), 1000);
        assert!(page(100).is_some());
    }
}
