//! The transfer of a part of a file by a thread's [ring](crate::disk::ring), which reads some blocks ahead.

use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{SendFlags, send};

use crate::disk::blocks::Block;
use crate::disk::ring::{ALIGNMENT, Read, Ring, Token};
use crate::disk::ring_file::RingFile;

/// How often a stream's reads are restarted if the kernel asks for that.
const AGAIN: u32 = 16;

/// Blocks that are being read or sent, in the order of the file.
#[derive(Debug)]
pub struct RingStream {
    /// Opened a second time if it is read around the page cache.
    fd: Arc<OwnedFd>,
    direct: bool,
    parts: VecDeque<Part>,
    /// Where the next block starts.
    ahead: u64,
    end: u64,
    /// How many reads were restarted.
    again: u32,
    _reader: Rc<()>,
}

#[derive(Debug)]
struct Part {
    /// The range of the file that is to be sent.
    range: Range<u64>,
    /// How many blocks it has.
    blocks: usize,
    state: State,
}

#[derive(Debug)]
enum State {
    /// A read with this number is running.
    Reading {
        number: u64,
        skipped: usize,
        direct: bool,
    },
    /// The block is there; the bytes start at this offset in it.
    There(Block, usize),
    Failed(Errno),
}

/// The next data to send.
#[derive(Debug, PartialEq, Eq)]
pub enum NextBlock {
    /// There is some.
    There,
    /// Nothing yet.
    Reading,
    /// There won't be any: the file has become shorter.
    Short,
}

impl RingStream {
    /// A stream for a range of a file. `ring` reads it around the page cache, or through it if it is `admitted` to
    /// that.
    pub fn new(ring: &Ring, file: &impl RingFile, range: Range<u64>, admitted: bool) -> Self {
        let Range { start, end } = range;
        let own = if admitted { None } else { file.around_the_page_cache() };
        let direct = own.is_some();
        let fd = own.unwrap_or_else(|| file.through_the_page_cache());
        Self { fd, direct, parts: VecDeque::new(), ahead: start, end, again: 0, _reader: ring.reader() }
    }

    /// Reads ahead as far as the ring has room.
    ///
    /// # Errors
    /// The ring's.
    pub fn read_ahead(&mut self, ring: &mut Ring, token: Token) -> Result<(), Errno> {
        while self.ahead < self.end {
            let direct = self.direct;
            let start = if direct { self.ahead / ALIGNMENT * ALIGNMENT } else { self.ahead };
            let has = self.parts.iter().map(|part| part.blocks).sum();
            let Some(block) = ring.block(token, has, self.end - start) else { break };
            let blocks = block.count();
            let end = self.end.min(start + block.length() as u64);
            let length = if direct { (end - start).next_multiple_of(ALIGNMENT) } else { end - start };
            let number = ring.read(token, &self.fd, start, length as usize, block)?;
            let state = State::Reading { number, skipped: (self.ahead - start) as usize, direct };
            self.parts.push_back(Part { range: self.ahead..end, blocks, state });
            self.ahead = end;
        }
        Ok(())
    }

    /// A read has ended. Returns whether the front has to be checked.
    pub fn ended(&mut self, number: u64, read: Read, file: &impl RingFile) -> bool {
        let wanted = |part: &Part| matches!(part.state, State::Reading { number: of, .. } if of == number);
        // Otherwise nobody waits for it any more.
        let Some(index) = self.parts.iter().position(wanted) else { return false };
        let part = &mut self.parts[index];
        let State::Reading { skipped, direct, .. } = part.state else { return false };
        match read {
            Ok((block, count)) => {
                let got = part.range.start + count.saturating_sub(skipped) as u64;
                part.state = State::There(block, skipped);
                if got < part.range.end {
                    // The rest and what follows it is read again, which is rare.
                    part.range.end = got;
                    self.read_again_from(index + 1, got);
                }
            }
            // Its file system or disk doesn't support reading this around the page cache.
            Err(Errno::INVAL) if direct => {
                file.refuse_direct();
                (self.fd, self.direct) = (file.through_the_page_cache(), false);
                let start = part.range.start;
                self.read_again_from(index, start);
            }
            Err(Errno::AGAIN | Errno::INTR) if self.again < AGAIN => {
                self.again += 1;
                let start = part.range.start;
                self.read_again_from(index, start);
            }
            Err(errno) => part.state = State::Failed(errno),
        }
        index == 0
    }

    /// Drops all blocks from one on, the first of which starts at `start`.
    fn read_again_from(&mut self, index: usize, start: u64) {
        self.parts.truncate(index);
        self.ahead = start;
    }

    /// What is at the front.
    ///
    /// # Errors
    /// Those of its read.
    pub fn front(&self) -> Result<NextBlock, Errno> {
        match self.parts.front() {
            None | Some(Part { state: State::Reading { .. }, .. }) => Ok(NextBlock::Reading),
            Some(Part { state: State::Failed(errno), .. }) => Err(*errno),
            Some(Part { range, .. }) if range.is_empty() => Ok(NextBlock::Short),
            Some(_) => Ok(NextBlock::There),
        }
    }

    /// The bytes at the front, at most `most`, and whether others of the file follow them.
    pub fn bytes(&self, most: u64) -> Option<(&[u8], bool)> {
        let Part { range, state: State::There(block, offset), .. } = self.parts.front()? else { return None };
        let length = (range.end - range.start).min(most);
        Some((block.bytes(*offset..*offset + length as usize), range.start + length < self.end))
    }

    /// Drops bytes of the front.
    pub fn advance(&mut self, count: usize) {
        if let Some(Part { range, state: State::There(_, offset), .. }) = self.parts.front_mut() {
            *offset += count;
            range.start += count as u64;
            if range.is_empty() {
                self.parts.pop_front();
            }
        }
    }

    /// Sends what is at the front, at most `most` bytes, and returns how much the socket took, and whether it took all
    /// it was given. `more` says whether other bytes follow the file's immediately.
    ///
    /// # Errors
    /// Those of send(2).
    pub fn send(&mut self, socket: impl AsFd, most: u64, more: bool) -> Result<(u64, bool), Errno> {
        let Some((bytes, rest)) = self.bytes(most) else { return Ok((0, false)) };
        let mut flags = SendFlags::NOSIGNAL;
        flags.set(SendFlags::MORE, more || rest);
        let sent = send(socket, bytes, flags)?;
        let all = sent == bytes.len();
        self.advance(sent);
        Ok((sent as u64, all))
    }

    /// Copies what is at the front, and returns how much.
    pub fn take(&mut self, buffer: &mut [u8]) -> usize {
        let Some((bytes, _)) = self.bytes(buffer.len() as u64) else { return 0 };
        let length = bytes.len();
        buffer[..length].copy_from_slice(bytes);
        self.advance(length);
        length
    }

    /// Whether it has no block of what follows, and none being read.
    pub fn is_bare(&self) -> bool {
        self.parts.is_empty() && self.ahead < self.end
    }

    /// Drops what is read and not sent; it will be read again. Returns whether there was anything.
    pub fn release_blocks(&mut self) -> bool {
        let Some(first) = self.parts.front() else { return false };
        let had = self.parts.iter().any(|part| matches!(part.state, State::There(..)));
        self.ahead = first.range.start;
        self.parts.clear();
        had
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;
    use crate::cache::file::OpenFile;
    use crate::disk::ring::{Completion, for_test};
    use crate::site::root::OpenedFile;
    use crate::site::rules::Policy;

    fn file(bytes: &[u8]) -> OpenFile {
        let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).expect("a file");
        std::io::Write::write_all(&mut file, bytes).expect("room");
        let fd = OwnedFd::from(file);
        let (identity, _) = crate::site::root::FileIdentity::of(&fd).expect("a file");
        let opened = OpenedFile { fd, identity, origin: None };
        OpenFile::new(opened, b"f", None, false, &Policy::default(), "", UNIX_EPOCH)
    }

    /// Everything that a stream has of a file, if its first read has the result `first`.
    fn sent(
        file: &OpenFile,
        range: Range<u64>,
        first: impl FnOnce(Read) -> Read,
    ) -> Option<Result<Vec<u8>, Errno>> {
        let mut ring = for_test("what_a_read_lacks_is_read_again", 0)?;
        let mut first = Some(first);
        let mut stream = RingStream::new(&ring, file, range.clone(), false);
        let (give, take) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let taking = std::thread::spawn(move || {
            let mut all = Vec::new();
            std::io::Read::read_to_end(&mut { take }, &mut all).map(|_| all).expect("bytes")
        });
        let mut left = range.end - range.start;
        let outcome = loop {
            if left == 0 {
                break Ok(());
            }
            stream.read_ahead(&mut ring, 1).expect("room");
            match stream.front() {
                Ok(NextBlock::There) => left -= stream.send(&give, u64::MAX, false).expect("sent").0,
                Ok(NextBlock::Short) => break Err(Errno::BADMSG),
                Err(errno) => break Err(errno),
                Ok(NextBlock::Reading) => {
                    let mut ended = VecDeque::new();
                    ring.turn(&mut ended).expect("a turn");
                    for Completion { number, read, .. } in ended {
                        let read = if number == 0 { first.take().expect("once")(read) } else { read };
                        stream.ended(number, read, file);
                    }
                }
            }
        };
        drop(give);
        let all = taking.join().expect("no panic");
        Some(outcome.map(|()| all))
    }

    #[test]
    fn one_file_is_read_around_the_page_cache_and_through_it_at_once() {
        let bytes: Vec<u8> = (0..300_001_u32).map(|at| (at / 5) as u8).collect();
        let file = file(&bytes);
        let Some(mut ring) =
            for_test("one_file_is_read_around_the_page_cache_and_through_it_at_once", 4 << 20)
        else {
            return;
        };
        // If both streams shared the flag for direct reads, the first one's unaligned reads would fail.
        let mut streams =
            [true, false].map(|admitted| RingStream::new(&ring, &file, 4099..300_001, admitted));
        streams[0].read_ahead(&mut ring, 0).expect("room");
        streams[1].read_ahead(&mut ring, 1).expect("room");
        let mut ended = VecDeque::new();
        while streams
            .iter()
            .any(|stream| stream.parts.iter().any(|part| !matches!(part.state, State::There(..))))
        {
            ring.turn(&mut ended).expect("a turn");
            for Completion { token, number, read } in ended.drain(..) {
                assert!(read.is_ok(), "{token}: {read:?}");
                streams[token as usize].ended(number, read, &file);
            }
        }
        for stream in &streams {
            let mut all = Vec::new();
            for Part { range, state, .. } in &stream.parts {
                let State::There(block, offset) = state else { panic!("{state:?}") };
                all.extend_from_slice(block.bytes(*offset..*offset + (range.end - range.start) as usize));
            }
            assert!(all == bytes[4099..], "{} bytes", all.len());
        }
    }

    #[test]
    fn whoever_else_has_the_file_is_not_made_to_read_around_the_page_cache() {
        let file = file(&[1; 10_000]);
        let is_direct =
            |fd: &OwnedFd| rustix::fs::fcntl_getfl(fd).expect("flags").contains(rustix::fs::OFlags::DIRECT);
        let Some(own) = file.around_the_page_cache() else {
            let test = "whoever_else_has_the_file_is_not_made_to_read_around_the_page_cache";
            return bench::skipped(test, "this file system reads nothing around the page cache");
        };
        assert!(is_direct(&own), "nobody else has it");
        assert!(Arc::ptr_eq(&own, &file.around_the_page_cache().expect("as before")));
        let other = Arc::clone(file.fd());
        assert!(!is_direct(&other) && Arc::ptr_eq(&own, &other), "asked for by somebody else");
        drop(own);
        let opened = file.around_the_page_cache().expect("opened once more");
        assert!(is_direct(&opened) && !is_direct(&other));
        drop(other);
        let own = file.around_the_page_cache().expect("nobody else has it any more");
        assert!(is_direct(&own) && !is_direct(&file.through_the_page_cache()));
    }

    #[test]
    fn what_a_read_lacks_is_read_again() {
        let bytes: Vec<u8> = (0..400_001_u32).map(|at| (at / 7) as u8).collect();
        let file = || file(&bytes);
        let range = 4099..400_001;
        let expected = &bytes[4099..];
        type Fault = fn(Read) -> Read;
        let faults: [(&str, Fault); 5] = [
            ("none", |read| read),
            ("not around the page cache", |_| Err(Errno::INVAL)),
            ("interrupted", |_| Err(Errno::INTR)),
            ("a part", |read| read.map(|(block, _)| (block, 5000))),
            ("less than was skipped", |read| read.map(|(block, _)| (block, 2))),
        ];
        for (name, fault) in faults {
            let Some(all) = sent(&file(), range.clone(), fault) else { return };
            match name {
                "less than was skipped" => assert!(all == Err(Errno::BADMSG), "too short"),
                _ => assert!(all.as_deref() == Ok(expected), "{name}"),
            }
        }
        let failed = sent(&file(), range.clone(), |_| Err(Errno::IO));
        assert!(failed == Some(Err(Errno::IO)));
        assert!(sent(&file(), 0..400_002, |read| read) == Some(Err(Errno::BADMSG)), "the file is shorter");
    }
}
