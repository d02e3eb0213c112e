//! What a connection still has to send.

use std::io::IoSlice;
use std::ops::Range;
use std::os::fd::AsFd;
use std::rc::Rc;

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{SendAncillaryBuffer, SendFlags, send, sendmsg};

use crate::cache::file::OpenFile;
use crate::cache::responses::{CachedResponse, SendOutcome};
use crate::response::multipart::MultipartRanges;
use crate::stream::pool::{Block, BlockStream};
use crate::stream::source::Error;
use crate::transfer::engine::{EngineState, SendStatus, TransferError};
use crate::transfer::file_transfer::Transfer;

/// Bytes, then bytes of a file, then more of either.
#[derive(Debug, Default)]
pub struct WriteQueue {
    head: Vec<u8>,
    sent: usize,
    body: Option<Transfer>,
    /// Whether nothing is sent with the body's head that need not wait for the body.
    is_alone: bool,
    /// The prepared answer, if head and body are available together. Until it is sent, both are still to come.
    cached: Option<Rc<CachedResponse>>,
    more: More,
}

/// What follows the bytes of a file.
#[derive(Debug, Default)]
enum More {
    /// Nothing.
    #[default]
    None,
    /// Further ranges of it.
    Multipart(Box<MultipartRanges>),
    /// Blocks of a stream, and the next one if it is ready.
    Stream(Box<(BlockStream, Option<Block>)>),
}

/// The state of sending.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress {
    /// Everything is sent.
    Done,
    /// The socket is full.
    Blocked,
    /// It is the others' turn.
    Yield,
    /// Other connections have to be read first. Ready answers are then sent one after the other, which keeps the
    /// kernel's code for it in the processor's cache.
    Ready,
    /// This has to be read from disk first.
    Cold(Range<u64>),
    /// The start of this has to be fetched from the origin first.
    Missing(Range<u64>),
    /// The ring is reading it.
    AwaitingRing,
    /// The next block of a stream has to be requested.
    NeedsBlock,
}

/// Why a connection has to be cut.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The transfer of a file failed.
    #[error(transparent)]
    Transfer(#[from] TransferError),
    /// The client is gone.
    #[error(transparent)]
    Socket(#[from] Errno),
    /// A stream ended early.
    #[error("the stream ended early: {0}")]
    Stream(#[from] Error),
}

impl WriteQueue {
    /// Whether there is nothing left.
    pub fn is_done(&self) -> bool {
        self.sent == self.head.len() && self.body.is_none() && matches!(self.more, More::None)
    }

    /// Adds bytes of a file. `is_alone` says whether its head is sent by itself, without earlier answers.
    pub fn file(&mut self, transfer: Transfer, is_alone: bool) {
        self.body = Some(transfer);
        self.is_alone = is_alone;
    }

    /// Adds several ranges of a file.
    pub fn parts(&mut self, parts: Box<MultipartRanges>) {
        self.more = More::Multipart(parts);
    }

    /// Adds blocks of a stream.
    pub fn stream(&mut self, stream: BlockStream) {
        self.more = More::Stream(Box::new((stream, None)));
    }

    /// The stream whose next block has to be requested.
    pub fn stream_in_need(&self) -> Option<&BlockStream> {
        match &self.more {
            More::Stream(paced) => Some(&paced.0),
            _ => None,
        }
    }

    /// Adds the next block of the stream.
    pub fn block(&mut self, block: Block) {
        if let More::Stream(paced) = &mut self.more {
            paced.1 = Some(block);
        }
    }

    /// The file that is being sent.
    pub fn sent_file(&self) -> Option<&OpenFile> {
        self.body.as_ref().map(Transfer::file)
    }

    /// The current transfer of a file.
    pub fn transfer(&mut self) -> Option<&mut Transfer> {
        self.body.as_mut()
    }

    /// Sends `head` and what follows it. Keeps what the socket does not take of `head`.
    ///
    /// # Errors
    /// [`SendError`].
    pub fn begin(
        &mut self,
        head: &[u8],
        socket: impl AsFd,
        engine: &mut EngineState,
        tick: u32,
        count: &mut u64,
    ) -> Result<Progress, SendError> {
        self.cached = self.body.as_ref().and_then(|transfer| transfer.cached(head, engine, tick));
        if self.cached.is_some() {
            return Ok(Progress::Ready);
        }
        if !head.is_empty() {
            // While the ring reads a body, its head is kept, so that one call sends both.
            if let Some(transfer) = self.body.as_mut().filter(|_| self.is_alone)
                && transfer.begin_if_cold(engine, tick)
            {
                self.head.clear();
                self.head.extend_from_slice(head);
                self.sent = 0;
                return self.go_on(socket, engine, tick, count);
            }
            let sent = self.send_head(head, &socket, count)?;
            if sent < head.len() {
                self.head.clear();
                self.head.extend_from_slice(&head[sent..]);
                self.sent = 0;
                return Ok(Progress::Blocked);
            }
        }
        self.go_on(socket, engine, tick, count)
    }

    /// Sends until the socket is full, it is the others' turn or everything is sent; `count` counts the bytes.
    ///
    /// # Errors
    /// [`SendError`].
    pub fn go_on(
        &mut self,
        socket: impl AsFd,
        engine: &mut EngineState,
        tick: u32,
        count: &mut u64,
    ) -> Result<Progress, SendError> {
        if let Some(cached) = self.cached.take() {
            let length = cached.length() as u64;
            match (cached.send(&socket, &mut engine.pipes)?, &mut self.body) {
                (SendOutcome::All, body) => {
                    *body = None;
                    *count += length;
                }
                (SendOutcome::Rest(pipe), Some(body)) => {
                    *count += length - pipe.holds as u64;
                    body.all_but(pipe);
                }
                _ => self.head.extend_from_slice(cached.head()),
            }
        }
        loop {
            if self.sent < self.head.len() {
                if let Some(transfer) = &mut self.body
                    && !transfer.is_ready(engine)?
                {
                    return Ok(Progress::AwaitingRing);
                }
                let head = std::mem::take(&mut self.head);
                let sent = self.send_head(&head[self.sent..], &socket, count);
                self.head = head;
                self.sent += sent?;
                if self.sent < self.head.len() {
                    return Ok(Progress::Blocked);
                }
                // A buffer is kept only while needed.
                self.head = Vec::new();
                self.sent = 0;
            }
            if let Some(mut transfer) = self.body.take() {
                let before = transfer.left();
                let more = matches!(self.more, More::Multipart(_));
                let turn = transfer.push(&socket, engine, more, tick);
                *count += before - transfer.left();
                match turn? {
                    SendStatus::Done => transfer.end(engine),
                    other => {
                        self.body = Some(transfer);
                        return Ok(match other {
                            SendStatus::Blocked => Progress::Blocked,
                            SendStatus::Cold(range) => Progress::Cold(range),
                            SendStatus::Missing(range) => Progress::Missing(range),
                            SendStatus::AwaitingRing => Progress::AwaitingRing,
                            SendStatus::Yield | SendStatus::Done => Progress::Yield,
                        });
                    }
                }
            }
            match &mut self.more {
                More::None => return Ok(Progress::Done),
                More::Multipart(parts) => match parts.next() {
                    Some((head, range)) => {
                        self.head = head.into_bytes();
                        self.body = range.map(|(file, range)| Transfer::new(file, range));
                    }
                    None => self.more = More::None,
                },
                More::Stream(paced) => match paced.1.take() {
                    Some(Ok(Some(block))) => self.head = block,
                    Some(Ok(None)) => self.more = More::None,
                    None => return Ok(Progress::NeedsBlock),
                    Some(Err(error)) => return Err(error.into()),
                },
            }
        }
    }

    /// Sends bytes, together with the body if that is in memory. Returns how many of the bytes were taken.
    fn send_head(&mut self, head: &[u8], socket: impl AsFd, count: &mut u64) -> Result<usize, SendError> {
        let front = self.body.as_ref().and_then(Transfer::front);
        let mut flags = SendFlags::NOSIGNAL;
        flags.set(SendFlags::MORE, front.map_or(self.body.is_some(), |(_, rest)| rest));
        let result = retry_on_intr(|| match front {
            Some((body, _)) => {
                let buffers = [IoSlice::new(head), IoSlice::new(body)];
                sendmsg(&socket, &buffers, &mut SendAncillaryBuffer::default(), flags)
            }
            None => send(&socket, head, flags),
        });
        let sent = match result {
            Ok(sent) => sent,
            Err(Errno::AGAIN) => 0,
            Err(errno) => return Err(errno.into()),
        };
        *count += sent as u64;
        let of_head = sent.min(head.len());
        if let Some(transfer) = &mut self.body
            && sent > of_head
        {
            transfer.advance(sent - of_head);
        }
        Ok(of_head)
    }
}
