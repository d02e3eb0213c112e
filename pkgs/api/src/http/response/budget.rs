//! Limits the memory of all large answers that are being collected or sent, however slowly they are read.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

/// Answers up to this size, in bytes, are not counted, since a connection holds as much anyway.
pub const SMALL: u64 = 64 << 10;

/// The bytes that large answers currently hold.
#[derive(Debug)]
pub struct ResponseBudget {
    limit: u64,
    held: AtomicU64,
}

/// The bytes of one answer. Dropping it returns them.
#[derive(Debug)]
pub struct Reservation {
    answers: Arc<ResponseBudget>,
    bytes: u64,
}

impl ResponseBudget {
    /// At most this many bytes. A single answer always has room.
    pub fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self { limit, held: AtomicU64::new(0) })
    }

    /// Whether no further large answer has room.
    pub fn is_full(&self) -> bool {
        self.held.load(Relaxed) >= self.limit
    }

    /// Counts a body until it is sent or dropped; None if there is no room for it, unless it `always` has some.
    pub fn hold(self: &Arc<Self>, body: axum::body::Body, always: bool) -> Option<axum::body::Body> {
        let bytes = body.size_hint().lower();
        if bytes <= SMALL {
            return Some(body);
        }
        let mut reservation = self.reservation();
        let room = reservation.grow_to(bytes) || always;
        room.then(|| axum::body::Body::new(Held { body, _reservation: reservation }))
    }

    /// A reservation of nothing yet, for an answer that is being collected.
    pub fn reservation(self: &Arc<Self>) -> Reservation {
        Reservation { answers: Arc::clone(self), bytes: 0 }
    }
}

impl Reservation {
    /// Counts this many bytes in all. Returns whether there is room; where there is not, they count nevertheless. A
    /// small answer is not counted, and a single one always has room.
    pub fn grow_to(&mut self, bytes: u64) -> bool {
        if bytes <= SMALL {
            return true;
        }
        let more = bytes.saturating_sub(self.bytes);
        let before = self.answers.held.fetch_add(more, Relaxed);
        let single = before == self.bytes;
        self.bytes += more;
        single || before.saturating_add(more) <= self.answers.limit
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.answers.held.fetch_sub(self.bytes, Relaxed);
    }
}

struct Held {
    body: axum::body::Body,
    _reservation: Reservation,
}

impl Body for Held {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        // Always false, so that a body of a single piece is not dropped before the piece is written.
        false
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_answers_have_a_sum_and_small_ones_are_let_by() {
        let answers = ResponseBudget::new(300 << 10);
        let body = |kib: usize| axum::body::Body::from(vec![0; kib << 10]);
        let (first, second) =
            (answers.hold(body(100), false).expect("room"), answers.hold(body(200), false).expect("room"));
        assert!(answers.hold(body(65), false).is_none());
        assert!(answers.hold(body(64), false).is_some());
        drop(first);
        drop(answers.hold(body(100), false).expect("room again"));
        drop(second);
        assert_eq!(answers.held.load(Relaxed), 0);
        assert!(answers.hold(body(1000), false).is_some(), "one always has room");
    }

    #[test]
    fn an_answer_counts_while_it_is_collected() {
        let answers = ResponseBudget::new(300 << 10);
        let (mut first, mut second) = (answers.reservation(), answers.reservation());
        assert!(first.grow_to(100 << 10) && first.grow_to(200 << 10));
        assert!(second.grow_to(SMALL), "small ones are let by");
        assert!(second.grow_to(100 << 10) && !second.grow_to(101 << 10));
        drop(first);
        assert!(second.grow_to(1000 << 10), "one always has room");
        drop(second);
        assert_eq!(answers.held.load(Relaxed), 0);
    }

    #[test]
    fn an_answer_that_always_has_room_counts_all_the_same() {
        let answers = ResponseBudget::new(300 << 10);
        let body = |kib: usize| axum::body::Body::from(vec![0; kib << 10]);
        let first = answers.hold(body(200), false).expect("room");
        let second = answers.hold(body(200), true).expect("always");
        drop(first);
        assert!(answers.hold(body(101), false).is_none());
        drop(second);
        assert_eq!(answers.held.load(Relaxed), 0);
    }
}
