//! The bytes of a connection, in both directions.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite};

use crate::config::Limits;
use crate::lifecycle::ConnectionDeadline;
use crate::limits::{MIN_PROGRESS_BYTES, ResponseReservation};
use crate::worker_context::WorkerContext;

use super::buffer_pool::{Input, Output};

/// A connection's socket, with its input and output.
pub struct BufferedIo<'a, I> {
    pub worker: &'a WorkerContext,
    pub deadline: &'a ConnectionDeadline,
    pub io: I,
    pub input: Input,
    pub output: Output,
    /// How much a waited-for client has taken since its deadline was last extended.
    stalled: Option<usize>,
    /// The reservation for the bytes that wait for it.
    held: Option<ResponseReservation>,
    /// Whether no further request can be read.
    pub broken: bool,
}

impl<'a, I: AsyncRead + AsyncWrite + Unpin> BufferedIo<'a, I> {
    pub fn new(worker: &'a WorkerContext, deadline: &'a ConnectionDeadline, io: I, received: &[u8]) -> Self {
        let input = Input::with(received, worker.config.limits.head_bytes);
        Self {
            worker,
            deadline,
            io,
            input,
            output: Output::default(),
            stalled: None,
            held: None,
            broken: false,
        }
    }

    pub fn limits(&self) -> &'a Limits {
        &self.worker.config.limits
    }

    /// Receives more. Returns how many bytes came; zero at the end. Must not be called when the input is full.
    pub fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.input.poll_read(&mut self.io, context, self.worker.config.limits.head_bytes)
    }

    /// Sends everything. Fails if the client takes next to nothing for too long, or if the waiting bytes exceed the
    /// budget.
    #[inline]
    pub fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Called before each read, usually with nothing to send.
        if self.output.is_empty() && self.stalled.is_none() {
            Poll::Ready(Ok(()))
        } else {
            self.poll_send_output(context)
        }
    }

    fn poll_send_output(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut taken = 0;
        let mut sent = self.output.poll_write(&mut self.io, context, |count| taken += count);
        if sent.is_ready() {
            // Flushes the buffers above the socket, if there are any.
            sent = Pin::new(&mut self.io).poll_flush(context);
        }
        if sent.is_pending() {
            return self.stall(taken);
        }
        if self.stalled.take().is_some() {
            self.held = None;
            self.deadline.clear();
        }
        sent
    }

    /// The client still has to take output; it took `taken` bytes just now. Updates the reservation and the deadline.
    #[cold]
    fn stall(&mut self, taken: usize) -> Poll<io::Result<()>> {
        let (worker, deadline) = (self.worker, self.deadline);
        let held = self.held.get_or_insert_with(|| worker.answers.held());
        if !held.resize(self.output.held() as u64) {
            worker.counts().shed_answers.increment();
            return Poll::Ready(Err(io::ErrorKind::OutOfMemory.into()));
        }
        let before = self.stalled.replace(0);
        let enough =
            before.map(|before| before.saturating_add(taken)).filter(|taken| *taken < MIN_PROGRESS_BYTES);
        let Some(taken) = enough else {
            deadline.set(&worker.registry, worker.config.limits.write_stall);
            return Poll::Pending;
        };
        self.stalled = Some(taken);
        if deadline.has_passed(&worker.registry) {
            worker.counts().timed_out.increment();
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Poll::Pending
    }

    /// While a service works: sends pending output, and checks whether the client is gone.
    ///
    /// # Errors
    /// When it is gone.
    pub fn poll_meanwhile(&mut self, context: &mut Context<'_>, watch: bool) -> io::Result<()> {
        if let Poll::Ready(sent) = self.poll_send(context) {
            sent?;
        }
        while watch && !self.input.is_full() {
            match self.poll_receive(context) {
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Poll::Ready(received) => received?,
                Poll::Pending => break,
            };
        }
        Ok(())
    }
}
