//! What is known of the fast path to those who serve the connection.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use h2::Reason;

use crate::plain::PlainAnswer;

use super::super::library::Responder;
use super::super::request::{self, ConnectionContext};

/// Answers that may wait for h2 to send them.
const MOST_LEFT: usize = 16;

/// What both sides know.
#[derive(Debug, Default)]
pub struct Shared {
    /// How many requests were answered.
    answered: AtomicU64,
    /// Whether something of that is not written.
    unsent: AtomicBool,
    /// Why the connection is to end; 0 where it is not.
    end: AtomicU32,
    /// Answers for which there was no room, each with its stream, for h2 to send when it comes to that.
    left: Mutex<VecDeque<(u32, Bytes)>>,
}

impl Shared {
    /// A request was answered.
    pub fn count(&self) {
        self.answered.store(self.answered.load(Relaxed) + 1, Relaxed);
    }

    /// How many were.
    pub fn answered(&self) -> u64 {
        self.answered.load(Relaxed)
    }

    /// Whether something waits for the client to take it.
    pub fn is_unsent(&self) -> bool {
        self.unsent.load(Relaxed)
    }

    /// Something does, or does not.
    pub fn set_unsent(&self, unsent: bool) {
        self.unsent.store(unsent, Relaxed);
    }

    /// The connection is to end.
    pub fn end(&self, reason: Reason) {
        self.end.store(reason.into(), Relaxed);
    }

    /// Why it is to end, where it is: told once.
    pub fn take_end(&self) -> Option<Reason> {
        // Asked after each read, when most often nothing is there.
        if self.end.load(Relaxed) == 0 { None } else { Some(self.end.swap(0, Relaxed).into()) }
    }

    /// Whether an answer may yet be left to h2.
    pub fn has_room(&self) -> bool {
        self.lock().len() < MOST_LEFT
    }

    /// Leaves an answer to h2.
    pub fn leave(&self, stream: u32, answer: Bytes) {
        self.lock().push_back((stream, answer));
    }

    /// The answer on a stream that h2 came to, where it is there. Those before it h2 has refused.
    pub fn take(&self, stream: u32) -> Option<Bytes> {
        let mut left = self.lock();
        while left.front().is_some_and(|(other, _)| *other < stream) {
            left.pop_front();
        }
        left.pop_front_if(|(other, _)| *other == stream).map(|(_, answer)| answer)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<(u32, Bytes)>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends an answer that was left to h2, as fast as the client takes it.
pub fn send(
    context: Arc<ConnectionContext>,
    answer: Bytes,
    mut respond: Responder,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        let response = PlainAnswer::read(&answer).and_then(|answer| answer.response());
        let sent = match response {
            Some(response) => request::send_whole(&mut respond, response, &context).await,
            None => None,
        };
        if sent.is_none() {
            respond.send_reset(Reason::INTERNAL_ERROR);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_left_until_h2_comes_to_their_streams() {
        let shared = Shared::default();
        for stream in [3, 7, 11] {
            shared.leave(stream, Bytes::copy_from_slice(&[stream as u8]));
        }
        assert_eq!(shared.take(1), None);
        assert_eq!(shared.take(3).as_deref(), Some(&[3][..]));
        assert_eq!(shared.take(3), None);
        assert_eq!(shared.take(9), None);
        assert_eq!(shared.take(11).as_deref(), Some(&[11][..]), "what is before it was refused");
        (0..MOST_LEFT as u32).for_each(|stream| shared.leave(stream, Bytes::new()));
        assert!(!shared.has_room());
    }

    #[test]
    fn an_end_is_told_once() {
        let shared = Shared::default();
        assert_eq!(shared.take_end(), None);
        shared.end(Reason::ENHANCE_YOUR_CALM);
        assert_eq!(shared.take_end(), Some(Reason::ENHANCE_YOUR_CALM));
        assert_eq!(shared.take_end(), None);
    }
}
