//! The transfer of a part of a file to a socket. Its turns are limited, so that a client with a fast line doesn't keep
//! a worker from the others.

use std::ops::Range;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;

use origin::Fetched;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::sendfile;
use rustix::io::{Errno, pread};
use rustix::net::sockopt::set_tcp_cork;
use rustix::net::{SendFlags, send};
use rustix::pipe::{SpliceFlags, splice, tee};

use super::engine::{Engine, EngineState, SendStatus, TransferError};
use super::ring_stream::{NextBlock, RingStream};
use crate::cache::copy::FileCopy;
use crate::cache::file::OpenFile;
use crate::cache::pipe_copy::PipeCopy;
use crate::cache::pipes::Pipe;
use crate::cache::responses::CachedResponse;
use crate::disk::resident::is_resident;
use crate::disk::ring::Read;

/// The most bytes per turn: the kernel takes one MiB in about 70 µs, a fraction of the target latency.
const TURN_BYTES: u64 = 1 << 20;

/// The same for what the ring reads, which is copied into the socket.
const RING_TURN_BYTES: u64 = 256 << 10;

/// Files up to this size are checked as a whole for being in the page cache; for larger ones, only what is sent next
/// is.
const LOOK_BYTES: u64 = 64 << 20;

/// A part of a file being sent.
#[derive(Debug)]
pub struct Transfer {
    file: Rc<OpenFile>,
    at: u64,
    end: u64,
    /// The disk was read up to here, with whatever result.
    warmed: u64,
    /// The file's copy, as long as there are pipes to send from.
    copy: Option<Arc<FileCopy<PipeCopy>>>,
    pipe: Option<Pipe>,
    /// Whether the socket holds back incomplete segments.
    corked: bool,
    /// What the ring reads of it, once it is found to be cold.
    stream: Option<Box<RingStream>>,
    /// The result of the last fetch from the origin: an error, or bytes for which there was no room in the file.
    fetched: Option<Box<Result<Fetched, origin::Error>>>,
}

impl Transfer {
    /// A transfer of a range of a file.
    pub fn new(file: Rc<OpenFile>, range: Range<u64>) -> Self {
        let (at, end) = (range.start, range.end);
        Self { file, at, end, warmed: 0, copy: None, pipe: None, corked: false, stream: None, fetched: None }
    }

    /// Sends it from a copy of the file.
    pub fn from_copy(self, copy: Option<Arc<FileCopy<PipeCopy>>>) -> Self {
        Self { copy, ..self }
    }

    /// The kept answer with this head and the whole file, if there is one.
    pub fn cached(&self, head: &[u8], engine: &mut EngineState, tick: u32) -> Option<Rc<CachedResponse>> {
        let whole = self.pipe.is_none() && (self.at, self.end) == (0, self.file.identity.size);
        let copy = self.copy.as_ref().filter(|_| whole)?;
        engine.responses.cached(copy, head, tick)
    }

    /// Everything except what this pipe holds has been sent.
    pub fn all_but(&mut self, pipe: Pipe) {
        self.at = self.end;
        self.pipe = Some(pipe);
    }

    /// The rest of it, if that is in memory and can be sent from there.
    pub fn bytes(&self) -> Option<&[u8]> {
        // The file may be in memory only since its transfer began in another way: a pipe may hold what comes next, and
        // a socket that was corked would stay so.
        if self.corked || self.pipe.as_ref().is_some_and(|pipe| pipe.holds > 0) {
            return None;
        }
        let (at, end) = (usize::try_from(self.at).ok()?, usize::try_from(self.end).ok()?);
        self.file.bytes().and_then(|bytes| bytes.get(at..end))
    }

    /// How many bytes are left.
    pub fn left(&self) -> u64 {
        self.end - self.at + self.pipe.as_ref().map_or(0, |pipe| pipe.holds as u64)
    }

    /// What can be sent together with its head: the rest of it from memory, or what the ring has read next. Also says
    /// whether others of its bytes follow.
    pub fn front(&self) -> Option<(&[u8], bool)> {
        match &self.stream {
            Some(stream) => stream.bytes(RING_TURN_BYTES),
            None => self.bytes().map(|bytes| (bytes, false)),
        }
    }

    /// Counts bytes of the [`front`](Self::front) that were sent.
    pub fn advance(&mut self, sent: usize) {
        self.at += sent as u64;
        if let Some(stream) = &mut self.stream {
            stream.advance(sent);
        }
    }

    /// Lets the ring read it, if it is cold. Returns whether it does.
    pub fn begin_if_cold(&mut self, engine: &mut EngineState, tick: u32) -> bool {
        let size = self.file.identity.size;
        let may_be_cold = engine.ring.is_some()
            && self.stream.is_none()
            && self.copy.is_none()
            && self.bytes().is_none()
            && self.file.incomplete().is_none()
            // Others are looked at piece by piece.
            && size <= LOOK_BYTES;
        may_be_cold && self.cold(engine, tick, self.end).is_some() && self.begin_stream(engine)
    }

    /// Whether the next bytes can be sent; not while the ring is reading them.
    ///
    /// # Errors
    /// [`TransferError`].
    pub fn is_ready(&mut self, engine: &mut EngineState) -> Result<bool, TransferError> {
        let Some(stream) = &mut self.stream else { return Ok(true) };
        let EngineState { ring: Some(ring), token, .. } = engine else { return Err(Errno::IO.into()) };
        stream.read_ahead(ring, *token)?;
        match stream.front()? {
            // Checked after reading and before sending: what is in memory now was read earlier.
            NextBlock::There if self.file.is_intact() => Ok(true),
            NextBlock::Reading => Ok(false),
            NextBlock::There | NextBlock::Short => Err(TransferError::Changed),
        }
    }

    /// The file.
    pub fn file(&self) -> &OpenFile {
        &self.file
    }

    /// The disk was read up to here: if it is still cold, waiting again wouldn't help.
    pub fn warmed(&mut self, end: u64) {
        self.warmed = end;
    }

    /// A fetch from the origin has ended.
    pub fn fetched(&mut self, result: Result<Fetched, origin::Error>) {
        self.fetched = Some(Box::new(result)).filter(|result| **result != Ok(Fetched::Stored));
    }

    /// A read by the ring has ended. Returns whether the transfer can continue.
    pub fn ended(&mut self, number: u64, read: Read) -> bool {
        self.stream.as_mut().is_some_and(|stream| stream.ended(number, read, &*self.file))
    }

    /// Drops what was read ahead and not sent. Returns whether there was anything.
    pub fn release_blocks(&mut self) -> bool {
        self.stream.as_mut().is_some_and(|stream| stream.release_blocks())
    }

    /// Returns the pipe.
    pub fn end(self, engine: &mut EngineState) {
        if let Some(pipe) = self.pipe {
            engine.pipes.give(pipe);
        }
    }

    /// Sends until the socket is full, the turn is over or everything is sent. `more` says whether other bytes follow
    /// immediately; `tick` is the current time.
    ///
    /// # Errors
    /// [`TransferError`].
    pub fn push(
        &mut self,
        socket: impl AsFd,
        engine: &mut EngineState,
        more: bool,
        tick: u32,
    ) -> Result<SendStatus, TransferError> {
        while let Some(bytes) = self.bytes() {
            if bytes.is_empty() {
                return Ok(SendStatus::Done);
            }
            let mut flags = SendFlags::NOSIGNAL;
            flags.set(SendFlags::MORE, more);
            match send(&socket, bytes, flags) {
                Ok(sent) => self.advance(sent),
                Err(Errno::AGAIN) => return Ok(SendStatus::Blocked),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        let turn = self.go_on(&socket, engine, more, tick);
        if matches!(turn, Ok(SendStatus::Missing(_))) {
            // Sends what there is now, since the rest may take long.
            let _ = set_tcp_cork(&socket, false);
            self.corked = false;
            return turn;
        }
        // An incomplete segment waits for the rest, and leaves with it.
        let ends = matches!(turn, Ok(SendStatus::Done));
        // Each send of data from the ring says whether more follows.
        if ends == self.corked
            && turn.is_ok()
            && engine.engine != Engine::Copy
            && (ends || self.stream.is_none())
        {
            self.corked = set_tcp_cork(&socket, !ends).is_ok() && !ends;
        }
        turn
    }

    /// A turn with what isn't in the worker's memory.
    fn go_on(
        &mut self,
        socket: impl AsFd,
        engine: &mut EngineState,
        more: bool,
        tick: u32,
    ) -> Result<SendStatus, TransferError> {
        #[cfg(test)]
        crate::faults::strike(crate::faults::SENDING, self.file.path());
        let mut left = TURN_BYTES;
        let mut looked = false;
        loop {
            if !self.drain(&socket, more)? {
                return Ok(SendStatus::Blocked);
            }
            if self.at == self.end {
                return Ok(SendStatus::Done);
            }
            if left == 0 {
                return Ok(SendStatus::Yield);
            }
            if self.stream.is_some() {
                return self.by_ring(&socket, engine, more);
            }
            if self.copy.is_some() {
                left = left.saturating_sub(self.take(engine));
                continue;
            }
            let mut end = self.end;
            if let Some(origin) = self.file.incomplete() {
                if let Some(result) = self.fetched.take() {
                    match self.send_fetched(&socket, *result, more)? {
                        Some(sent) => left = left.saturating_sub(sent),
                        None => return Ok(SendStatus::Blocked),
                    }
                    continue;
                }
                end = origin.available(&(self.at..self.end.min(self.at + left)));
                if end == self.at {
                    return Ok(SendStatus::Missing(self.at..self.end));
                }
            }
            // The file is checked once per turn: earlier turns were checked, and later ones will be. That its directory
            // reports no change doesn't suffice: the file may be written by a name elsewhere.
            if !looked {
                looked = true;
                if !self.file.is_intact() {
                    return Err(TransferError::Changed);
                }
                if let Some(cold) = self.cold(engine, tick, end) {
                    if self.file.incomplete().is_some() || !self.begin_stream(engine) {
                        return Ok(SendStatus::Cold(cold));
                    }
                    continue;
                }
            }
            let wanted = usize::try_from((end - self.at).min(left)).unwrap_or(usize::MAX);
            let sent = match engine.engine {
                Engine::Auto | Engine::Sendfile => self.sendfile(&socket, wanted),
                Engine::Splice => match self.load(engine, wanted) {
                    // Without a pipe.
                    Err(Errno::MFILE | Errno::NFILE) => self.sendfile(&socket, wanted),
                    loaded => loaded,
                },
                Engine::Copy => self.copy(&socket, engine, wanted, more),
            };
            match sent {
                // The file has become shorter.
                Ok(0) => return Err(TransferError::Changed),
                // Usually the socket is full. Another call would only send the little that was acknowledged in the
                // meantime. Waiting until a third of the buffer is free costs 5 % less.
                Ok(sent) if sent < wanted && engine.engine != Engine::Splice => {
                    return if self.file.is_intact() {
                        Ok(fell_short(&socket))
                    } else {
                        Err(TransferError::Changed)
                    };
                }
                Ok(sent) => left = left.saturating_sub(sent as u64),
                Err(Errno::AGAIN) => return Ok(fell_short(&socket)),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Sends fetched bytes, and returns how many; none if the socket is full. The rest is kept.
    fn send_fetched(
        &mut self,
        socket: impl AsFd,
        result: Result<Fetched, origin::Error>,
        more: bool,
    ) -> Result<Option<u64>, TransferError> {
        let Fetched::Passed(start, bytes) = result? else { return Ok(Some(0)) };
        let range = start..start + bytes.len() as u64;
        if !range.contains(&self.at) {
            return Ok(Some(0));
        }
        let end = self.end.min(range.end);
        let part = &bytes[(self.at - start) as usize..(end - start) as usize];
        let mut flags = SendFlags::NOSIGNAL;
        flags.set(SendFlags::MORE, more || end < self.end);
        let sent = match send(socket, part, flags) {
            Ok(sent) => Some(sent as u64),
            Err(Errno::INTR) => Some(0),
            Err(Errno::AGAIN) => None,
            Err(errno) => return Err(errno.into()),
        };
        self.at += sent.unwrap_or(0);
        if self.at < end {
            self.fetched = Some(Box::new(Ok(Fetched::Passed(start, bytes))));
        }
        Ok(sent)
    }

    /// The next part to be sent, up to `end`, if it isn't in the page cache.
    fn cold(&self, engine: &EngineState, tick: u32, end: u64) -> Option<Range<u64>> {
        if self.file.resident_until.get() > tick || self.at < self.warmed {
            return None;
        }
        let size = self.file.identity.size;
        let next = self.at..end.min(self.at + TURN_BYTES);
        if size <= LOOK_BYTES && self.file.incomplete().is_none() {
            if is_resident(&**self.file.fd(), &(0..size)) {
                self.file.resident_until.set(tick.saturating_add(engine.resident_for));
                return None;
            }
            if next == (0..size) {
                return Some(next);
            }
        }
        (!is_resident(&**self.file.fd(), &next)).then_some(next)
    }

    /// Makes the ring read the rest of it, if there is one.
    fn begin_stream(&mut self, engine: &mut EngineState) -> bool {
        let EngineState { ring: Some(ring), ghosts, .. } = engine else { return false };
        let admitted = ghosts.admit(self.file.identity.place(), &(self.at..self.end));
        self.stream = Some(Box::new(RingStream::new(ring, &*self.file, self.at..self.end, admitted)));
        true
    }

    /// A turn with what the ring reads.
    fn by_ring(
        &mut self,
        socket: impl AsFd,
        engine: &mut EngineState,
        more: bool,
    ) -> Result<SendStatus, TransferError> {
        let EngineState { ring: Some(ring), token, .. } = engine else { return Err(Errno::IO.into()) };
        let Some(stream) = &mut self.stream else { return Ok(SendStatus::Yield) };
        let mut left = RING_TURN_BYTES;
        let mut looked = false;
        loop {
            stream.read_ahead(ring, *token)?;
            match stream.front()? {
                NextBlock::There => {}
                NextBlock::Reading => return Ok(SendStatus::AwaitingRing),
                NextBlock::Short => return Err(TransferError::Changed),
            }
            // Checked after reading and before sending, once per turn: what is in memory now was read earlier.
            if !std::mem::replace(&mut looked, true) && !self.file.is_intact() {
                return Err(TransferError::Changed);
            }
            match stream.send(&socket, left, more) {
                Ok((sent, all)) => {
                    self.at += sent;
                    left = left.saturating_sub(sent);
                    if self.at == self.end {
                        return Ok(SendStatus::Done);
                    }
                    if !all {
                        return Ok(SendStatus::Blocked);
                    }
                }
                Err(Errno::AGAIN) => return Ok(SendStatus::Blocked),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            if left == 0 {
                return Ok(SendStatus::Yield);
            }
        }
    }

    /// Takes the next part of the copy into a pipe, and returns how much. Without a copy or a pipe, the file itself is
    /// sent from there on.
    fn take(&mut self, engine: &mut EngineState) -> u64 {
        let taken = self.copy.as_ref().and_then(|copy| {
            let segment = copy.content().segment(self.at)?;
            let pipe = match &mut self.pipe {
                Some(pipe) => pipe,
                None => self.pipe.insert(engine.pipes.lend()?),
            };
            let wanted = usize::try_from(self.end.min(segment.range.end) - self.at).ok()?;
            pipe.holds = tee(&segment.pipe, &pipe.write, wanted, SpliceFlags::NONBLOCK).ok()?;
            (pipe.holds > 0).then_some(pipe.holds as u64)
        });
        match taken {
            Some(taken) => self.at += taken,
            None => self.copy = None,
        }
        taken.unwrap_or(0)
    }

    /// Sends bytes of the file, and returns how many.
    fn sendfile(&mut self, socket: impl AsFd, wanted: usize) -> Result<usize, Errno> {
        let mut at = self.at;
        let sent = sendfile(socket, &**self.file.fd(), Some(&mut at), wanted)?;
        self.at += sent as u64;
        Ok(sent)
    }

    /// Moves bytes of the file into a pipe, and returns how many.
    fn load(&mut self, engine: &mut EngineState, wanted: usize) -> Result<usize, Errno> {
        let pipe = match &mut self.pipe {
            Some(pipe) => pipe,
            None => self.pipe.insert(engine.pipes.take()?),
        };
        let mut at = self.at;
        let moved = splice(&**self.file.fd(), Some(&mut at), &pipe.write, None, wanted, SpliceFlags::MOVE)?;
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
        engine: &mut EngineState,
        wanted: usize,
        more: bool,
    ) -> Result<usize, Errno> {
        let wanted = wanted.min(engine.buffer.len());
        let read = pread(&**self.file.fd(), &mut engine.buffer[..wanted], self.at)?;
        if read == 0 {
            return Ok(0);
        }
        let mut flags = SendFlags::NOSIGNAL;
        flags.set(SendFlags::MORE, more || self.at + (read as u64) < self.end);
        // What the socket doesn't take is read again.
        let sent = send(socket, &engine.buffer[..read], flags)?;
        self.at += sent as u64;
        Ok(sent)
    }
}

/// The next step if less was sent than requested. A call also ends early if parts of a file are not in memory and
/// others are reading them from disk (seen with Linux 6.18). The socket then has room, and never announces that again.
fn fell_short(socket: impl AsFd) -> SendStatus {
    let mut sockets = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::OUT)];
    match poll(&mut sockets, Some(&Timespec::default())) {
        Ok(0) => SendStatus::Blocked,
        _ => SendStatus::Yield,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::cache::copies::tests::copy_of;
    use crate::cache::memory_budget::MemoryBudget;
    use crate::disk::admission::GhostQueue;
    use crate::site::root::{FileIdentity, OpenedFile};
    use crate::site::rules::Policy;

    #[test]
    fn a_transfer_ends_as_it_began_though_the_file_is_in_memory_by_now() {
        let test = "a_transfer_ends_as_it_began_though_the_file_is_in_memory_by_now";
        let bytes: Vec<u8> = (0..4000_u32).map(|at| (at / 7) as u8).collect();
        let now = SystemTime::now() + Duration::from_secs(60);
        let mut engine = EngineState::new(Engine::Auto, 1, None, &Arc::new(GhostQueue::new(1 << 20)));
        for begun in ["as a kept answer", "from a copy", "corked"] {
            // On a disk, since tmpfs reads nothing for those who don't wait.
            let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).expect("a file");
            std::io::Write::write_all(&mut file, &bytes).expect("room");
            let fd = OwnedFd::from(file);
            let (identity, _) = FileIdentity::of(&fd).expect("a file");
            let opened = OpenedFile { fd, identity, origin: None };
            let file = Rc::new(OpenFile::new(opened, b"f", None, false, &Policy::default(), "", now));
            let mut transfer = Transfer::new(Rc::clone(&file), 0..4000);
            let copy = copy_of(&bytes);
            match begun {
                "as a kept answer" => {
                    let mut pipe = engine.pipes.lend().expect("a pipe");
                    let kept = &copy.content().segment(0).expect("a segment").pipe;
                    pipe.holds = tee(kept, &pipe.write, 4000, SpliceFlags::NONBLOCK).expect("bytes");
                    transfer.all_but(pipe);
                }
                "from a copy" => {
                    transfer = transfer.from_copy(Some(copy));
                    assert_eq!(transfer.take(&mut engine), 4000);
                }
                _ => transfer.corked = true,
            }
            if !file.keep_bytes(now, &MemoryBudget::new(bytes.len())) {
                return bench::skipped(test, "this file system reads nothing for those who don't wait");
            }
            let (ours, mut theirs) = UnixStream::pair().expect("sockets");
            assert_eq!(transfer.left(), 4000, "{begun}");
            let turn = transfer.push(&ours, &mut engine, false, 1).expect("sent");
            assert_eq!((turn, transfer.corked), (SendStatus::Done, false), "{begun}");
            drop(ours);
            let mut sent = Vec::new();
            theirs.read_to_end(&mut sent).expect("bytes");
            assert!(sent == bytes, "{begun}: {} bytes", sent.len());
        }
    }
}
