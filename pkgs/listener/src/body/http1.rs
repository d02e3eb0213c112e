//! The service's end of an HTTP/1.1 body that did not arrive with its head. At most one piece lies between it and the
//! connection, so the client has to wait for the service.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use super::Error;

/// The service's end.
pub struct Reader {
    pub shared: Arc<Shared>,
    pub exact: Option<u64>,
}

#[derive(Default)]
pub struct Shared(Mutex<State>);

#[derive(Default)]
pub struct State {
    pub piece: Option<Bytes>,
    pub end: Option<Result<(), Error>>,
    /// Whether the service has requested a piece.
    pub wanted: bool,
    /// The service's task, if it waits for a piece.
    pub reader: Option<Waker>,
    /// The connection's task, if it waits until the piece is taken.
    pub receiver: Option<Waker>,
    /// Whether the service has dropped the body.
    pub abandoned: bool,
    /// Whether waiting for it has timed out.
    pub late: bool,
}

impl Shared {
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes a waiting task, unless it is the one that is running.
pub fn wake(waiting: Option<Waker>, context: &Context<'_>) {
    if let Some(waker) = waiting.filter(|waker| !waker.will_wake(context.waker())) {
        waker.wake();
    }
}

impl Reader {
    pub fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let mut state = self.shared.lock();
        let Some(piece) = state.piece.take() else {
            if let Some(end) = &mut state.end {
                // An error is reported once.
                return Poll::Ready(std::mem::replace(end, Ok(())).err().map(Err));
            }
            state.wanted = true;
            state.reader = Some(context.waker().clone());
            let waiting = state.receiver.take();
            drop(state);
            wake(waiting, context);
            return Poll::Pending;
        };
        let waiting = state.receiver.take();
        drop(state);
        wake(waiting, context);
        if let Some(exact) = &mut self.exact {
            *exact -= piece.len() as u64;
        }
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    /// Stops waiting for the body.
    pub fn give_up(&self) {
        self.shared.lock().late = true;
    }

    pub fn is_end(&self) -> bool {
        let state = self.shared.lock();
        state.piece.is_none() && matches!(state.end, Some(Ok(())))
    }

    pub fn size_hint(&self) -> SizeHint {
        self.exact.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.abandoned = true;
        state.piece = None;
    }
}
