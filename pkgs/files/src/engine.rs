//! The ways in which bytes of a file get into a socket.
//!
//! `sendfile` and `splice` hand the kernel's own pages on; `copy` goes through a buffer of the worker; `auto` takes
//! files that are asked for often from [copies](crate::copies). A turn of a transfer is bounded, so that one
//! client with a fast line does not keep a worker from the others.

use std::ops::Range;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;

use clap::ValueEnum;
use rustix::fs::sendfile;
use rustix::io::{Errno, pread};
use rustix::net::sockopt::set_tcp_cork;
use rustix::net::{SendFlags, send};
use rustix::pipe::{SpliceFlags, splice, tee};

use crate::admission::{Ghosts, memory};
use crate::copies::Piped;
use crate::disk::Token;
use crate::pipes::{Pipe, Pipes};
use crate::resident::is_resident;
use crate::ring::{Read, Ring};
use crate::shelf::FileCopy;
use crate::site::file::File;
use crate::stream::{Front, Stream};
use crate::whole::{Supply, Wholes};

/// How bytes get from files into sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Engine {
    /// Small files from memory, together with their heads; those that are asked for often out of pipes; others
    /// by sendfile. The fastest in the bench.
    Auto,
    /// sendfile(2), for files of all sizes.
    Sendfile,
    /// splice(2) through a pipe.
    Splice,
    /// pread(2) and send(2).
    Copy,
}

/// The most bytes of a turn: the kernel takes a mebibyte in some 70 µs, a fraction of the latency aimed at.
const TURN_BYTES: u64 = 1 << 20;

/// The same of what the ring reads, which is copied into the socket.
const RING_TURN_BYTES: u64 = 256 << 10;

/// The buffer of `copy`.
const BUFFER_BYTES: usize = 1 << 20;

/// Files up to this size are looked at whole for whether they are in the page cache; of larger ones only what
/// is sent next.
const LOOK_BYTES: u64 = 64 << 20;

/// A part of a file on its way.
#[derive(Debug)]
pub struct Transfer {
    file: Rc<File>,
    at: u64,
    end: u64,
    /// Up to here the disk was read, whatever came of it.
    warmed: u64,
    /// Whether the file is known to be as it was opened, without a look at it.
    intact: bool,
    /// The file's copy, as long as there are pipes to send out of.
    copy: Option<Arc<FileCopy<Piped>>>,
    pipe: Option<Pipe>,
    /// Whether the socket keeps back what fills no segment.
    corked: bool,
    /// What the ring reads of it, from when it is found cold.
    stream: Option<Box<Stream>>,
}

/// How a turn ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Turn {
    /// All is sent.
    Done,
    /// The socket is full.
    Blocked,
    /// Others are due.
    Over,
    /// This has to be read from the disk first.
    Cold(Range<u64>),
    /// The ring is reading what is next, or has no room for that yet.
    Reading,
}

/// Why a transfer cannot go on: the connection has to be cut.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The client is gone, or the disk is.
    #[error(transparent)]
    Failed(#[from] Errno),
    /// The file is not what its head said.
    #[error("the file changed while it was sent")]
    Changed,
}

/// What the transfers of a worker share.
#[derive(Debug)]
pub struct Means {
    engine: Engine,
    /// How long a file that is found in the page cache is taken to stay there, in ticks.
    resident_for: u32,
    buffer: Vec<u8>,
    /// What is sent through.
    pub pipes: Pipes,
    wholes: Wholes,
    /// What reads what is cold; none where threads do.
    pub ring: Option<Ring>,
    /// What was read around the page cache.
    ghosts: Ghosts,
    /// Whose turn it is.
    pub token: Token,
}

impl Means {
    /// Those of an engine.
    pub fn new(engine: Engine, resident_for: u32, ring: Option<Ring>) -> Self {
        let buffer = if engine == Engine::Copy { vec![0; BUFFER_BYTES] } else { Vec::new() };
        let pipes = Pipes::new(engine == Engine::Splice);
        Self {
            engine,
            resident_for,
            buffer,
            pipes,
            wholes: Wholes::default(),
            ring,
            ghosts: Ghosts::new(memory()),
            token: 0,
        }
    }

    /// Lets go of what nobody asks for any more.
    pub fn tidy(&mut self, tick: u32) {
        self.wholes.tidy(tick);
    }

    /// Whether bytes of files are kept: of small ones in memory, of others in pipes.
    pub fn keeps_bytes(&self) -> bool {
        self.engine == Engine::Auto
    }
}

impl Transfer {
    /// Of these bytes of a file. `intact` is whether somebody watches that the file is as it was opened, so that
    /// the first turn need not look.
    pub fn new(file: Rc<File>, range: Range<u64>, intact: bool) -> Self {
        let (at, end) = (range.start, range.end);
        Self { file, at, end, warmed: 0, intact, copy: None, pipe: None, corked: false, stream: None }
    }

    /// Has it sent out of a copy of the file.
    pub fn from_copy(self, copy: Option<Arc<FileCopy<Piped>>>) -> Self {
        Self { copy, ..self }
    }

    /// Where all of the file is to be had behind its head.
    pub fn supply(&self, head: &[u8], means: &mut Means, tick: u32) -> Option<Rc<Supply>> {
        let whole = self.pipe.is_none() && (self.at, self.end) == (0, self.file.identity.size);
        let copy = self.copy.as_ref().filter(|_| whole)?;
        means.wholes.supply(copy, head, tick)
    }

    /// All but what this pipe holds is sent.
    pub fn all_but(&mut self, pipe: Pipe) {
        self.at = self.end;
        self.pipe = Some(pipe);
    }

    /// What is left of it, where that is in memory.
    pub fn bytes(&self) -> Option<&[u8]> {
        let (at, end) = (usize::try_from(self.at).ok()?, usize::try_from(self.end).ok()?);
        self.file.bytes().and_then(|bytes| bytes.get(at..end))
    }

    /// How many bytes are left.
    pub fn left(&self) -> u64 {
        self.end - self.at + self.pipe.as_ref().map_or(0, |pipe| pipe.holds as u64)
    }

    /// Counts bytes that were sent from memory.
    pub fn advance(&mut self, sent: usize) {
        self.at += sent as u64;
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The disk was read up to here: if it is cold all the same, waiting again would not help.
    pub fn warmed(&mut self, end: u64) {
        self.warmed = end;
    }

    /// A read of the ring has ended. Returns whether the transfer can go on.
    pub fn ended(&mut self, number: u64, read: Read) -> bool {
        self.stream.as_mut().is_some_and(|stream| stream.ended(number, read, &self.file))
    }

    /// Lets go of what was read ahead and is not sent. Returns whether there was something.
    pub fn let_go(&mut self) -> bool {
        self.stream.as_mut().is_some_and(|stream| stream.let_go())
    }

    /// Gives the pipe back.
    pub fn end(self, means: &mut Means) {
        if let Some(pipe) = self.pipe {
            means.pipes.give(pipe);
        }
    }

    /// Sends until the socket is full, the turn is over or all is sent. `more` is whether other bytes follow
    /// these at once; `tick` is the present.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn push(
        &mut self,
        socket: impl AsFd,
        means: &mut Means,
        more: bool,
        tick: u32,
    ) -> Result<Turn, Failure> {
        while let Some(bytes) = self.bytes() {
            if bytes.is_empty() {
                return Ok(Turn::Done);
            }
            let mut flags = SendFlags::NOSIGNAL;
            flags.set(SendFlags::MORE, more);
            match send(&socket, bytes, flags) {
                Ok(sent) => self.advance(sent),
                Err(Errno::AGAIN) => return Ok(Turn::Blocked),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        let turn = self.go_on(&socket, means, more, tick);
        // What fills no segment waits for the rest, and leaves with it.
        let ends = matches!(turn, Ok(Turn::Done));
        // What the ring reads says with each send whether more follows.
        if ends == self.corked
            && turn.is_ok()
            && means.engine != Engine::Copy
            && (ends || self.stream.is_none())
        {
            self.corked = set_tcp_cork(&socket, !ends).is_ok() && !ends;
        }
        turn
    }

    /// A turn with what is not in the worker's memory.
    fn go_on(
        &mut self,
        socket: impl AsFd,
        means: &mut Means,
        more: bool,
        tick: u32,
    ) -> Result<Turn, Failure> {
        #[cfg(test)]
        crate::faults::strike(crate::faults::SENDING, self.file.path());
        let mut left = TURN_BYTES;
        let mut looked = false;
        loop {
            if !self.drain(&socket, more)? {
                return Ok(Turn::Blocked);
            }
            if self.at == self.end {
                return Ok(Turn::Done);
            }
            if left == 0 {
                return Ok(Turn::Over);
            }
            if self.stream.is_some() {
                return self.by_ring(&socket, means, more);
            }
            if self.copy.is_some() {
                left = left.saturating_sub(self.take(means));
                continue;
            }
            // A turn's worth is looked at at a time: what was sent before was right, and what follows will be.
            if !looked {
                looked = true;
                if !std::mem::take(&mut self.intact) && !self.file.is_intact() {
                    return Err(Failure::Changed);
                }
                if let Some(cold) = self.cold(means, tick) {
                    if !self.begin_stream(means) {
                        return Ok(Turn::Cold(cold));
                    }
                    continue;
                }
            }
            let wanted = usize::try_from((self.end - self.at).min(left)).unwrap_or(usize::MAX);
            let sent = match means.engine {
                Engine::Auto | Engine::Sendfile => self.sendfile(&socket, wanted),
                Engine::Splice => match self.load(means, wanted) {
                    // Without a pipe.
                    Err(Errno::MFILE | Errno::NFILE) => self.sendfile(&socket, wanted),
                    loaded => loaded,
                },
                Engine::Copy => self.copy(&socket, means, wanted, more),
            };
            match sent {
                // The file has become shorter.
                Ok(0) => return Err(Failure::Changed),
                // The socket is full. Asking again would push what little has been acknowledged meanwhile, at
                // the price of a whole call: waiting until a third of the buffer is free costs 5 % less.
                Ok(sent) if sent < wanted && means.engine != Engine::Splice => {
                    return if self.file.is_intact() { Ok(Turn::Blocked) } else { Err(Failure::Changed) };
                }
                Ok(sent) => left = left.saturating_sub(sent as u64),
                Err(Errno::AGAIN) => return Ok(Turn::Blocked),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// What is to be sent next, where it is not in the page cache.
    fn cold(&self, means: &Means, tick: u32) -> Option<Range<u64>> {
        if self.file.resident_until.get() > tick || self.at < self.warmed {
            return None;
        }
        let size = self.file.identity.size;
        if size <= LOOK_BYTES && is_resident(&*self.file.fd, &(0..size)) {
            self.file.resident_until.set(tick.saturating_add(means.resident_for));
            return None;
        }
        let next = self.at..self.end.min(self.at + TURN_BYTES);
        (!is_resident(&*self.file.fd, &next)).then_some(next)
    }

    /// Has the ring read the rest of it, where there is one.
    fn begin_stream(&mut self, means: &mut Means) -> bool {
        let Means { ring: Some(ring), ghosts, .. } = means else { return false };
        let admitted = ghosts.admit(self.file.identity.place(), self.end - self.at);
        self.stream = Some(Box::new(Stream::new(ring, &self.file, self.at..self.end, admitted)));
        true
    }

    /// A turn with what the ring reads.
    fn by_ring(&mut self, socket: impl AsFd, means: &mut Means, more: bool) -> Result<Turn, Failure> {
        let Means { ring: Some(ring), token, .. } = means else { return Err(Errno::IO.into()) };
        let Some(stream) = &mut self.stream else { return Ok(Turn::Over) };
        let mut left = RING_TURN_BYTES;
        let mut looked = false;
        loop {
            stream.read_ahead(ring, *token)?;
            match stream.front()? {
                Front::There => {}
                Front::Reading => return Ok(Turn::Reading),
                Front::Short => return Err(Failure::Changed),
            }
            // After the reading, and before anything of it is sent. What is there now was read before.
            if !std::mem::replace(&mut looked, true) && !self.file.is_intact() {
                return Err(Failure::Changed);
            }
            match stream.send(&socket, more) {
                Ok((sent, all)) => {
                    self.at += sent;
                    left = left.saturating_sub(sent);
                    if self.at == self.end {
                        return Ok(Turn::Done);
                    }
                    if !all {
                        return Ok(Turn::Blocked);
                    }
                }
                Err(Errno::AGAIN) => return Ok(Turn::Blocked),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            if left == 0 {
                return Ok(Turn::Over);
            }
        }
    }

    /// Takes the part of the copy that comes next into a pipe, and returns how much. From where there is none, or
    /// no pipe, the file itself is sent.
    fn take(&mut self, means: &mut Means) -> u64 {
        let taken = self.copy.as_ref().and_then(|copy| {
            let part = copy.content().part(self.at)?;
            let pipe = match &mut self.pipe {
                Some(pipe) => pipe,
                None => self.pipe.insert(means.pipes.lend()?),
            };
            let wanted = usize::try_from(self.end.min(part.range.end) - self.at).ok()?;
            pipe.holds = tee(&part.pipe, &pipe.write, wanted, SpliceFlags::NONBLOCK).ok()?;
            (pipe.holds > 0).then_some(pipe.holds as u64)
        });
        match taken {
            Some(taken) => self.at += taken,
            None => {
                self.copy = None;
                // It was as the copy is when the copy was made.
                self.intact = false;
            }
        }
        taken.unwrap_or(0)
    }

    /// Sends bytes of the file, and returns how many.
    fn sendfile(&mut self, socket: impl AsFd, wanted: usize) -> Result<usize, Errno> {
        let mut at = self.at;
        let sent = sendfile(socket, &*self.file.fd, Some(&mut at), wanted)?;
        self.at += sent as u64;
        Ok(sent)
    }

    /// Moves bytes of the file into a pipe, and returns how many.
    fn load(&mut self, means: &mut Means, wanted: usize) -> Result<usize, Errno> {
        let pipe = match &mut self.pipe {
            Some(pipe) => pipe,
            None => self.pipe.insert(means.pipes.take()?),
        };
        let mut at = self.at;
        let moved = splice(&*self.file.fd, Some(&mut at), &pipe.write, None, wanted, SpliceFlags::MOVE)?;
        self.at += moved as u64;
        pipe.holds = moved;
        Ok(moved)
    }

    /// Sends what a pipe holds. Returns whether that was all of it.
    fn drain(&mut self, socket: impl AsFd, more: bool) -> Result<bool, Errno> {
        let Some(pipe) = self.pipe.as_mut().filter(|pipe| pipe.holds > 0) else { return Ok(true) };
        pipe.send(socket, more || self.at < self.end)?;
        Ok(pipe.holds == 0)
    }

    fn copy(
        &mut self,
        socket: impl AsFd,
        means: &mut Means,
        wanted: usize,
        more: bool,
    ) -> Result<usize, Errno> {
        let wanted = wanted.min(means.buffer.len());
        let read = pread(&*self.file.fd, &mut means.buffer[..wanted], self.at)?;
        if read == 0 {
            return Ok(0);
        }
        let mut flags = SendFlags::NOSIGNAL;
        flags.set(SendFlags::MORE, more || self.at + (read as u64) < self.end);
        // What the socket does not take is read again.
        let sent = send(socket, &means.buffer[..read], flags)?;
        self.at += sent as u64;
        Ok(sent)
    }
}
