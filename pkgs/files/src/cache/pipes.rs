//! A worker's pipes, from which bytes are spliced into sockets. Few are made, and they are reused.

use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use rustix::io::{Errno, retry_on_intr};
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

/// How many pipes are kept for later.
const KEPT: usize = 64;

/// How many pipes may be lent at once. Slow readers keep theirs, and further ones go without.
const LENT: usize = 256;

/// The size of a large pipe: the most without privileges (/proc/sys/fs/pipe-max-size).
const LARGE_BYTES: usize = 1 << 20;

/// A pipe, and how many of its bytes are to be sent.
#[derive(Debug)]
pub struct Pipe {
    /// The end to take from.
    pub read: OwnedFd,
    /// The end to put into.
    pub write: OwnedFd,
    /// How many bytes are to be sent.
    pub holds: usize,
    /// Whether the pipe contains nothing after those; otherwise others cannot use it.
    pub is_all: bool,
    /// Counts lent pipes.
    _lent: Rc<()>,
}

/// A pool of pipes.
#[derive(Debug)]
pub struct PipePool {
    kept: Vec<Pipe>,
    lent: Rc<()>,
    large: bool,
}

impl PipePool {
    /// Pipes with the usual sixteen slots, which fit a part of a copy, or with as many as allowed.
    pub fn new(large: bool) -> Self {
        Self { kept: Vec::new(), lent: Rc::default(), large }
    }

    /// An empty pipe. None if too many are lent, or it cannot be made.
    pub fn lend(&mut self) -> Option<Pipe> {
        if self.kept.is_empty() && Rc::strong_count(&self.lent) > LENT {
            return None;
        }
        self.take().ok()
    }

    /// An empty pipe, even if many are lent.
    ///
    /// # Errors
    /// Those of pipe2(2).
    pub fn take(&mut self) -> Result<Pipe, Errno> {
        if let Some(pipe) = self.kept.pop() {
            return Ok(pipe);
        }
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        if self.large {
            // Beyond the user's limit, the pipe stays at 64 KiB.
            let _ = fcntl_setpipe_size(&write, LARGE_BYTES);
        }
        Ok(Pipe { read, write, holds: 0, is_all: true, _lent: Rc::clone(&self.lent) })
    }

    /// Returns a pipe, which is kept if it is empty.
    pub fn give(&mut self, pipe: Pipe) {
        if pipe.holds == 0 && pipe.is_all && self.kept.len() < KEPT {
            self.kept.push(pipe);
        }
    }
}

impl Pipe {
    /// Sends its content, as much as the socket takes. `more` says whether other bytes follow at once.
    ///
    /// # Errors
    /// Those of splice(2), except for a full socket.
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
