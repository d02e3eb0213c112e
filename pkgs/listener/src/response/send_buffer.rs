//! Response data that a connection holds until its client takes it.
//!
//! Libraries limit it per stream, but a client may have a hundred streams. Here, the streams of a connection share one
//! buffer. Each connection may always hold a little, and more while the budget of all connections has room. A stream
//! without room for its next piece waits until other pieces are sent, and does not ask the service for more meanwhile.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::limits::ResponseReservation;

/// The most bytes of a piece. Two TLS records (RFC 8446, section 5.1: 16 KiB each).
pub const PIECE_BYTES: usize = 32 * 1024;
/// What each connection may hold, whatever others hold: a piece that is being sent, and the next one.
const LEAST_BYTES: usize = 2 * PIECE_BYTES;

/// The buffer of one connection.
#[derive(Debug)]
pub struct SendBuffer {
    held: Mutex<Held>,
    freed: Notify,
}

#[derive(Debug)]
struct Held {
    bytes: usize,
    /// The reservation for what exceeds [`LEAST_BYTES`].
    beyond: ResponseReservation,
}

/// Room for one piece. Dropping it returns it.
#[derive(Debug)]
pub struct Room {
    buffer: Arc<SendBuffer>,
    bytes: usize,
}

/// A piece, and its room.
struct Piece {
    bytes: Bytes,
    _room: Room,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl SendBuffer {
    /// An empty buffer.
    pub fn new(beyond: ResponseReservation) -> Arc<Self> {
        Arc::new(Self { held: Mutex::new(Held { bytes: 0, beyond }), freed: Notify::new() })
    }

    /// Room for a piece, if there is any now.
    pub fn room(self: &Arc<Self>) -> Option<Room> {
        let mut held = self.held();
        let before = held.bytes;
        if !held.resize(before + PIECE_BYTES) {
            held.resize(before);
            return None;
        }
        Some(Room { buffer: Arc::clone(self), bytes: PIECE_BYTES })
    }

    /// Waits until there may be more room. Nothing is missed between a call of [`room`](Self::room) and this one.
    pub fn freed(&self) -> Notified<'_> {
        self.freed.notified()
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn free(&self, bytes: usize) {
        if bytes > 0 {
            let mut held = self.held();
            let left = held.bytes - bytes;
            held.resize(left);
            drop(held);
            // If the waiting stream is gone when it is woken, it wakes the next one.
            self.freed.notify_one();
        }
    }
}

impl Held {
    /// Sets the number of bytes. Returns whether there is room for that many.
    fn resize(&mut self, bytes: usize) -> bool {
        self.bytes = bytes;
        self.beyond.resize(bytes.saturating_sub(LEAST_BYTES) as u64)
    }
}

impl Room {
    /// A piece of at most [`PIECE_BYTES`] that returns its room when all parts of it are sent.
    pub fn hold(mut self, piece: Bytes) -> Bytes {
        debug_assert!(piece.len() <= PIECE_BYTES);
        let spare = self.bytes.saturating_sub(piece.len());
        self.bytes -= spare;
        self.buffer.free(spare);
        if piece.is_empty() { piece } else { Bytes::from_owner(Piece { bytes: piece, _room: self }) }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.buffer.free(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use crate::config::Limits;
    use crate::limits::ResponseBudget;

    use super::*;

    fn buffers(total: usize) -> [Arc<SendBuffer>; 2] {
        let answers = ResponseBudget::new(&Limits { answer_bytes_total: total as u64, ..Limits::default() });
        [(); 2].map(|()| SendBuffer::new(answers.held()))
    }

    #[test]
    fn a_connection_has_a_little_and_what_others_leave() {
        let [first, second] = buffers(PIECE_BYTES);
        let mut held: Vec<_> = (0..3).map(|_| first.room().expect("two of its own, and one more")).collect();
        assert!(first.room().is_none());
        let _least = [(); 2].map(|()| second.room().expect("its own"));
        assert!(second.room().is_none(), "the first has the rest");
        held.pop();
        let _more = second.room().expect("what the first has returned");
        assert!(first.room().is_none() && second.room().is_none());
    }

    #[test]
    fn a_piece_returns_its_room_once_all_of_it_is_sent() {
        let [buffer, _] = buffers(0);
        let piece = Bytes::from(vec![7; 20_000]);
        let mut held = buffer.room().expect("room").hold(piece.clone());
        assert_eq!(buffer.held().bytes, 20_000);
        let part = held.split_to(5_000);
        assert_eq!((&part[..], &held[..]), (&piece[..5_000], &piece[5_000..]));
        drop(held);
        assert_eq!(buffer.held().bytes, 20_000);
        drop(part);
        assert_eq!(buffer.held().bytes, 0);
        assert!(buffer.room().expect("room").hold(Bytes::new()).is_empty());
        assert_eq!(buffer.held().bytes, 0);
    }

    #[test]
    fn who_waits_is_woken_by_what_is_returned() {
        let [buffer, _] = buffers(0);
        let (first, second) = (buffer.room().expect("room"), buffer.room().expect("room"));
        let mut context = Context::from_waker(Waker::noop());
        let mut freed = pin!(buffer.freed());
        assert!(buffer.room().is_none() && freed.as_mut().poll(&mut context).is_pending());
        let held = first.hold(Bytes::from_static(b"a piece"));
        assert!(freed.poll(&mut context).is_ready(), "most of it is spare");
        drop((held, second));
        // No wake-up is lost if room was returned before somebody waited.
        assert!(pin!(buffer.freed()).poll(&mut context).is_ready());
    }
}
