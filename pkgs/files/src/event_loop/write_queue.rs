//! What a connection has yet to send.

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
    /// Where head and body are to be had together. Until they are sent, both are yet to come.
    cached: Option<Rc<CachedResponse>>,
    more: More,
}

/// What follows the bytes of a file.
#[derive(Debug, Default)]
enum More {
    /// Nothing.
    #[default]
    None,
    /// Further parts of it.
    Multipart(Box<MultipartRanges>),
    /// Blocks of a stream, and the next, where it is there.
    Stream(Box<(BlockStream, Option<Block>)>),
}

/// How sending goes on.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress {
    /// All is sent.
    Done,
    /// The socket is full.
    Blocked,
    /// Others are due.
    Yield,
    /// Others are read first: answers that are ready to be sent go out one after the other, which keeps the kernel's
    /// instructions for it in the processor's cache.
    Ready,
    /// This has to be read from the disk first.
    Cold(Range<u64>),
    /// What begins this has to be fetched from the origin first.
    Missing(Range<u64>),
    /// The ring is reading it.
    AwaitingRing,
    /// The next block of a stream has to be asked for.
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
    /// Whether there is nothing.
    pub fn is_done(&self) -> bool {
        self.sent == self.head.len() && self.body.is_none() && matches!(self.more, More::None)
    }

    /// Bytes of a file are to follow.
    pub fn file(&mut self, transfer: Transfer) {
        self.body = Some(transfer);
    }

    /// Several ranges of a file are to follow.
    pub fn parts(&mut self, parts: Box<MultipartRanges>) {
        self.more = More::Multipart(parts);
    }

    /// Blocks of a stream are to follow.
    pub fn stream(&mut self, stream: BlockStream) {
        self.more = More::Stream(Box::new((stream, None)));
    }

    /// The stream whose next block is to be asked for.
    pub fn stream_in_need(&self) -> Option<&BlockStream> {
        match &self.more {
            More::Stream(paced) => Some(&paced.0),
            _ => None,
        }
    }

    /// The next block of the stream is there.
    pub fn block(&mut self, block: Block) {
        if let More::Stream(paced) = &mut self.more {
            paced.1 = Some(block);
        }
    }

    /// The file that is being sent.
    pub fn sent_file(&self) -> Option<&OpenFile> {
        self.body.as_ref().map(Transfer::file)
    }

    /// The transfer of a file that is under way.
    pub fn transfer(&mut self) -> Option<&mut Transfer> {
        self.body.as_mut()
    }

    /// Sends `head`, and what is to follow it. What the socket does not take of `head` is kept.
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

    /// Sends until the socket is full, others are due or all is sent; `count` counts the bytes.
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
                let head = std::mem::take(&mut self.head);
                let sent = self.send_head(&head[self.sent..], &socket, count);
                self.head = head;
                self.sent += sent?;
                if self.sent < self.head.len() {
                    return Ok(Progress::Blocked);
                }
                // A buffer is kept only while it is needed.
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
                        self.body = range.map(|(file, range)| Transfer::new(file, range, false));
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

    /// Sends bytes, together with the body where that is in memory, and returns how many of the bytes were taken.
    fn send_head(&mut self, head: &[u8], socket: impl AsFd, count: &mut u64) -> Result<usize, SendError> {
        let more = self.body.is_some();
        let body = self.body.as_mut().filter(|transfer| transfer.bytes().is_some());
        let result = retry_on_intr(|| match &body {
            Some(transfer) => {
                let buffers = [IoSlice::new(head), IoSlice::new(transfer.bytes().unwrap_or_default())];
                sendmsg(&socket, &buffers, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)
            }
            None => {
                let mut flags = SendFlags::NOSIGNAL;
                flags.set(SendFlags::MORE, more);
                send(&socket, head, flags)
            }
        });
        let sent = match result {
            Ok(sent) => sent,
            Err(Errno::AGAIN) => 0,
            Err(errno) => return Err(errno.into()),
        };
        *count += sent as u64;
        let of_head = sent.min(head.len());
        if let Some(transfer) = body {
            transfer.advance(sent - of_head);
        }
        Ok(of_head)
    }
}
