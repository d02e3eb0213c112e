//! The state that the fast path shares with the connection's task.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use h2::Reason;

use crate::plain::PlainAnswer;

use super::super::library::Responder;
use super::super::request::{self, ConnectionContext};

/// The most answers that may wait for h2 to send them.
const MOST_LEFT: usize = 16;

/// The shared state.
#[derive(Debug, Default)]
pub struct Shared {
    /// The number of requests answered.
    answered: AtomicU64,
    /// Whether some of their output is not yet written.
    unsent: AtomicBool,
    /// The reason to end the connection; 0 if there is none.
    end: AtomicU32,
    /// Answers without room, with their streams, for h2 to send when it gets there.
    left: Mutex<VecDeque<(u32, LeftAnswer)>>,
}

/// An answer's bytes, and its body if that is not among them.
pub type LeftAnswer = (Bytes, Bytes);

impl Shared {
    /// Counts an answered request.
    pub fn count(&self) {
        self.answered.store(self.answered.load(Relaxed) + 1, Relaxed);
    }

    /// The number of answered requests.
    pub fn answered(&self) -> u64 {
        self.answered.load(Relaxed)
    }

    /// Whether output waits for the client to take it.
    pub fn is_unsent(&self) -> bool {
        self.unsent.load(Relaxed)
    }

    /// Sets whether output waits.
    pub fn set_unsent(&self, unsent: bool) {
        self.unsent.store(unsent, Relaxed);
    }

    /// Requests the connection's end.
    pub fn end(&self, reason: Reason) {
        self.end.store(reason.into(), Relaxed);
    }

    /// The reason to end the connection, returned once.
    pub fn take_end(&self) -> Option<Reason> {
        // Called after each read, usually with nothing there.
        if self.end.load(Relaxed) == 0 { None } else { Some(self.end.swap(0, Relaxed).into()) }
    }

    /// Whether another answer can be left to h2.
    pub fn has_room(&self) -> bool {
        self.lock().len() < MOST_LEFT
    }

    /// Leaves an answer to h2.
    pub fn leave(&self, stream: u32, answer: LeftAnswer) {
        self.lock().push_back((stream, answer));
    }

    /// The answer for a stream that h2 has reached, if there is one. h2 has refused those before it.
    pub fn take(&self, stream: u32) -> Option<LeftAnswer> {
        let mut left = self.lock();
        while left.front().is_some_and(|(other, _)| *other < stream) {
            left.pop_front();
        }
        left.pop_front_if(|(other, _)| *other == stream).map(|(_, answer)| answer)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<(u32, LeftAnswer)>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends an answer that was left to h2, as fast as the client takes it.
pub fn send(
    context: Arc<ConnectionContext>,
    (answer, body): LeftAnswer,
    mut respond: Responder,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        let response = PlainAnswer::read(&answer).and_then(|answer| answer.response());
        let sent = match response {
            Some(mut response) => {
                if !body.is_empty() {
                    *response.body_mut() = body;
                }
                request::send_whole(&mut respond, response, &context).await
            }
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
            shared.leave(stream, (Bytes::copy_from_slice(&[stream as u8]), Bytes::new()));
        }
        assert_eq!(shared.take(1), None);
        assert_eq!(shared.take(3).map(|(answer, _)| answer).as_deref(), Some(&[3][..]));
        assert_eq!(shared.take(3), None);
        assert_eq!(shared.take(9), None);
        let last = shared.take(11).map(|(answer, _)| answer);
        assert_eq!(last.as_deref(), Some(&[11][..]), "what is before it was refused");
        (0..MOST_LEFT as u32).for_each(|stream| shared.leave(stream, Default::default()));
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
