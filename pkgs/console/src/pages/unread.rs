//! Bounds the memory of pages that their clients haven't read yet.

use axum::body::Body;
use bytes::Bytes;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Pages up to this size, in bytes, take no room: the one to sign in has it even while strangers have taken all of
/// theirs.
const SMALL: usize = 2 << 10;

/// Who a page is for.
#[derive(Clone, Copy)]
pub(super) enum Reader {
    /// Somebody who has signed in.
    Known,
    /// Somebody who has signed in and will not get this page again, such as one with a new key.
    Once,
    /// Anybody, who must not take the room of the others.
    Stranger,
}

impl Reader {
    /// The room of all such pages together, and how many bytes it has.
    fn room(self) -> (&'static Semaphore, usize) {
        const KNOWN: usize = 24 << 20;
        const STRANGERS: usize = 8 << 20;
        static OF_KNOWN: Semaphore = Semaphore::const_new(KNOWN);
        static OF_STRANGERS: Semaphore = Semaphore::const_new(STRANGERS);
        match self {
            Self::Known | Self::Once => (&OF_KNOWN, KNOWN),
            Self::Stranger => (&OF_STRANGERS, STRANGERS),
        }
    }
}

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
pub(super) fn body(text: String, reader: Reader) -> Option<Body> {
    if text.len() <= SMALL || matches!(reader, Reader::Once) {
        return Some(text.into());
    }
    let (room, most) = reader.room();
    within(room, most, text).map(Body::from)
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
    fn strangers_take_no_room_of_others() {
        let page = |bytes: usize, reader| body("a".repeat(bytes), reader);
        // Other tests of this process have small pages.
        let _unread = page(6 << 20, Reader::Stranger).expect("there is room");
        assert!(page(3 << 20, Reader::Stranger).is_none());
        assert!(page(3 << 20, Reader::Known).is_some());
        assert!(page(SMALL, Reader::Stranger).is_some());
        assert!(page(30 << 20, Reader::Once).is_some());
    }

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
