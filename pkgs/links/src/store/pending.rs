//! The answer to a write.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use super::Error;

/// The answer to a write: a future for servers, [`Pending::wait`] for the command line.
pub struct Pending<T>(oneshot::Receiver<Result<T, Error>>);

impl<T> Pending<T> {
    /// The answer that is sent to this receiver.
    pub(super) fn of(receiver: oneshot::Receiver<Result<T, Error>>) -> Self {
        Self(receiver)
    }

    /// A write that is already refused.
    pub(super) fn refused(error: Error) -> Self {
        let (answer, pending) = oneshot::channel();
        let _ = answer.send(Err(error));
        Self(pending)
    }

    /// Blocks until the commit. Not for use on an async thread.
    pub fn wait(self) -> Result<T, Error> {
        self.0.blocking_recv().unwrap_or(Err(Error::Closed))
    }
}

impl<T> Future for Pending<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map(|answer| answer.unwrap_or(Err(Error::Closed)))
    }
}
