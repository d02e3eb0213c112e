//! The pipes of a worker, out of which bytes are spliced into sockets: few are made, and they are used again.

use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use rustix::io::{Errno, retry_on_intr};
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

/// Pipes kept for later.
const KEPT: usize = 64;

/// Pipes that may be lent at once: slow readers keep theirs, and further ones do without.
const LENT: usize = 256;

/// What a large pipe has: what one without privileges may have at most (/proc/sys/fs/pipe-max-size).
const LARGE_BYTES: usize = 1 << 20;

/// A pipe and how many bytes of it are to be sent.
#[derive(Debug)]
pub struct Pipe {
    /// The end to take from.
    pub read: OwnedFd,
    /// The end to put into.
    pub write: OwnedFd,
    /// How many bytes are to be sent.
    pub holds: usize,
    /// Whether nothing is behind those: what has more is of no use to others.
    pub is_all: bool,
    /// Counts those there are.
    _lent: Rc<()>,
}

/// Pipes to be had.
#[derive(Debug)]
pub struct PipePool {
    kept: Vec<Pipe>,
    lent: Rc<()>,
    large: bool,
}

impl PipePool {
    /// Pipes with the usual sixteen places, which is what a part of a copy takes, or with as many as there may be.
    pub fn new(large: bool) -> Self {
        Self { kept: Vec::new(), lent: Rc::default(), large }
    }

    /// An empty pipe. None where too many are lent, or none can be had.
    pub fn lend(&mut self) -> Option<Pipe> {
        if self.kept.is_empty() && Rc::strong_count(&self.lent) > LENT {
            return None;
        }
        self.take().ok()
    }

    /// An empty pipe, however many are lent.
    ///
    /// # Errors
    /// Those of pipe2(2).
    pub fn take(&mut self) -> Result<Pipe, Errno> {
        if let Some(pipe) = self.kept.pop() {
            return Ok(pipe);
        }
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        if self.large {
            // Beyond the user's limit the pipe stays at 64 KiB.
            let _ = fcntl_setpipe_size(&write, LARGE_BYTES);
        }
        Ok(Pipe { read, write, holds: 0, is_all: true, _lent: Rc::clone(&self.lent) })
    }

    /// Gives a pipe back, which is kept where it is empty.
    pub fn give(&mut self, pipe: Pipe) {
        if pipe.holds == 0 && pipe.is_all && self.kept.len() < KEPT {
            self.kept.push(pipe);
        }
    }
}

impl Pipe {
    /// Sends what it holds, or as much of it as the socket takes. `more` is whether other bytes follow at once.
    ///
    /// # Errors
    /// Those of splice(2), but for a socket that is full.
    pub fn send(&mut self, socket: impl AsFd, more: bool) -> Result<(), Errno> {
        let mut flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        flags.set(SpliceFlags::MORE, more);
        match retry_on_intr(|| splice(&self.read, None, &socket, None, self.holds, flags)) {
            Ok(sent) => self.holds -= sent,
            Err(Errno::AGAIN) => {}
            Err(errno) => return Err(errno),
        }
        Ok(())
    }
}
