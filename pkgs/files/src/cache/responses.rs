//! Frequently requested answers, kept whole: the head in the same pipe as the body, several times over.
//!
//! Sending a head separately is a system call, a tenth of a small file's cost. It changes once a second with its
//! `Date`; until then, a frequently requested file always has the same one. Since all answers are equal, one tee(2)
//! takes as many as a pipe has room for. A request then costs a recv(2), a splice(2) and little else.

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, pipe_with, tee};

use super::copy::FileCopy;
use super::page_coalescer::{PIECE_BYTES, PageCoalescer};
use super::pipe_copy::PipeCopy;
use super::pipes::{Pipe, PipePool};

/// A worker's answers; each has two pipes.
const ANSWERS: usize = 64;

/// The most bytes of a head: one slot of a pipe (Linux's `PIPE_BUF`, a page).
const HEAD_BYTES: usize = 4096;

/// The number of requests from which a pipe is worth making: it costs about as much as ten answers save.
const WORTH: u32 = 4;

/// An answer that is unused for this many ticks is dropped; its `Date` has passed by then.
const UNUSED: u32 = 6;

/// A worker's answers.
#[derive(Debug, Default)]
pub struct ResponseCache(Vec<Slot>);

#[derive(Debug)]
struct Slot {
    copy: Arc<FileCopy<PipeCopy>>,
    head: Vec<u8>,
    asked: u32,
    /// When it was last requested.
    tick: u32,
    cached: Option<Rc<CachedResponse>>,
}

/// An answer for repeated use.
#[derive(Debug)]
pub struct CachedResponse {
    head: Vec<u8>,
    /// The length of the head and the whole file.
    length: usize,
    /// The end to tee from, and how many copies of the answer it has.
    source: (OwnedFd, usize),
    ready: RefCell<Option<ReadyPipe>>,
}

/// The pipe that is sent from, and how many copies of the answer it has.
#[derive(Debug)]
struct ReadyPipe {
    pipe: Pipe,
    answers: usize,
}

/// The result of sending an answer.
#[derive(Debug)]
pub enum SendOutcome {
    /// All of it is sent.
    All,
    /// This part is still to be sent.
    Rest(Pipe),
    /// There is no pipe to send from.
    NoPipe,
}

impl ResponseCache {
    /// The answer of this head and the whole file. None if it was not requested often enough, or the file needs more
    /// than one pipe.
    pub fn cached(
        &mut self,
        copy: &Arc<FileCopy<PipeCopy>>,
        head: &[u8],
        tick: u32,
    ) -> Option<Rc<CachedResponse>> {
        let Some(whole) = self.0.iter_mut().find(|whole| Arc::ptr_eq(&whole.copy, copy)) else {
            if self.0.len() < ANSWERS && head.len() <= HEAD_BYTES && copy.content().whole().is_some() {
                let (copy, head) = (Arc::clone(copy), head.to_vec());
                self.0.push(Slot { copy, head, asked: 1, tick, cached: None });
            }
            return None;
        };
        whole.tick = tick;
        if whole.head != head {
            if head.len() <= HEAD_BYTES {
                whole.head.clear();
                whole.head.extend_from_slice(head);
                (whole.asked, whole.cached) = (1, None);
            }
            return None;
        }
        if whole.cached.is_none() {
            whole.asked = whole.asked.saturating_add(1);
            if whole.asked == WORTH {
                whole.cached = CachedResponse::new(head, whole.copy.content().whole()?).map(Rc::new).ok();
            }
        }
        whole.cached.clone()
    }

    /// Drops unused answers.
    pub fn tidy(&mut self, tick: u32) {
        self.0.retain(|whole| whole.tick.saturating_add(UNUSED) > tick);
    }
}

impl CachedResponse {
    /// A head followed by all of `body`.
    fn new(head: &[u8], (body, length): (impl AsFd, usize)) -> io::Result<Self> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let mut write = std::fs::File::from(write);
        let whole = head.len() + length;
        let piece = if whole <= PIECE_BYTES { Some(join(head, &body, length)?) } else { None };
        let mut add = || match &piece {
            Some(piece) => takes_all(piece, &write, whole),
            None => write.write_all(head).is_ok() && takes_all(&body, &write, length),
        };
        let mut answers = 0;
        // The last one may not fit, or only in part, which nobody takes.
        while add() {
            answers += 1;
        }
        if answers == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(Self { head: head.to_vec(), length: whole, source: (read, answers), ready: RefCell::default() })
    }

    /// Its head.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// Its length in bytes.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Sends the answer once.
    ///
    /// # Errors
    /// Those of splice(2).
    pub fn send(&self, socket: impl AsFd, pipes: &mut PipePool) -> Result<SendOutcome, Errno> {
        let mut ready = self.ready.borrow_mut();
        if ready.is_none() {
            *ready = pipes.lend().map(|pipe| ReadyPipe { pipe, answers: 0 });
        }
        let Some(ReadyPipe { pipe, answers }) = ready.as_mut() else { return Ok(SendOutcome::NoPipe) };
        if *answers == 0 {
            let (source, all) = &self.source;
            let wanted = all * self.length;
            if !takes_all(source, &pipe.write, wanted) {
                // Its current content is useless.
                *ready = None;
                return Ok(SendOutcome::NoPipe);
            }
            *answers = *all;
        }
        pipe.holds = self.length;
        pipe.send(socket, false)?;
        *answers -= 1;
        if pipe.holds == 0 {
            return Ok(SendOutcome::All);
        }
        pipe.is_all = *answers == 0;
        // Other answers follow the rest of this one. They stay there, and the next answer gets a new pipe.
        Ok(ready.take().map_or(SendOutcome::NoPipe, |ready| SendOutcome::Rest(ready.pipe)))
    }
}

/// Whether `to` takes this many bytes from `from`.
fn takes_all(from: impl AsFd, to: impl AsFd, bytes: usize) -> bool {
    tee(from, to, bytes, SpliceFlags::NONBLOCK) == Ok(bytes)
}

/// Joins a head and its body into one piece, which takes one slot in a pipe and in a socket's queue. This copies once a
/// second, but each answer then has one page whose references are counted, instead of two or three.
fn join(head: &[u8], body: impl AsFd, length: usize) -> io::Result<OwnedFd> {
    let flags = PipeFlags::CLOEXEC | PipeFlags::NONBLOCK;
    let (read, write) = pipe_with(flags)?;
    if !takes_all(body, write, length) {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let whole = head.len() + length;
    // The socket's memory comes in powers of two, and is in one piece only if they are full.
    let mut bytes = vec![0; whole.next_power_of_two()];
    bytes[..head.len()].copy_from_slice(head);
    std::fs::File::from(read).read_exact(&mut bytes[head.len()..whole])?;
    let (read, write) = pipe_with(flags)?;
    match PageCoalescer::new()?.put(&bytes, whole, write)? {
        taken if taken == whole => Ok(read),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use rustix::net::sockopt::set_socket_send_buffer_size;
    use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};

    use super::*;
    use crate::cache::copies::tests::copy_of;

    /// The bytes of a file whose parts all differ.
    fn file(size: usize) -> Vec<u8> {
        (0..size).map(|at| (at / 251) as u8 ^ at as u8).collect()
    }

    /// A socket to send to without waiting, and the one to read from.
    fn sockets() -> (OwnedFd, UnixStream) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("sockets");
        let theirs = UnixStream::from(theirs);
        theirs.set_nonblocking(false).expect("a socket");
        (ours, theirs)
    }

    /// The same, but they take little at a time.
    fn narrow_sockets() -> (OwnedFd, UnixStream) {
        let (ours, theirs) = sockets();
        set_socket_send_buffer_size(&ours, 8 * 1024).expect("a socket");
        (ours, theirs)
    }

    /// Sends an answer to its end. Returns what arrives, and whether sending took a pipe of its own.
    fn receive(
        cached: &CachedResponse,
        pipes: &mut PipePool,
        (ours, mut theirs): (OwnedFd, UnixStream),
    ) -> (Vec<u8>, bool) {
        let sent = cached.send(&ours, pipes).expect("sent");
        let mut received = vec![0; cached.length()];
        match sent {
            SendOutcome::All => {
                theirs.read_exact(&mut received).expect("an answer");
                (received, false)
            }
            SendOutcome::Rest(mut pipe) => {
                let mut at = 0;
                while at < received.len() {
                    at += theirs.read(&mut received[at..]).expect("bytes");
                    pipe.send(&ours, false).expect("sent");
                }
                assert_eq!(pipe.holds, 0);
                pipes.give(pipe);
                (received, true)
            }
            SendOutcome::NoPipe => panic!("there are pipes"),
        }
    }

    #[test]
    fn what_is_asked_for_again_is_kept_with_its_head() {
        let body = file(16 * 1024);
        let copy = copy_of(&body);
        let (mut responses, mut pipes) = (ResponseCache::default(), PipePool::new(false));
        for head in ["one\r\n\r\n", "another\r\n\r\n"] {
            for asked in 1..WORTH {
                assert!(responses.cached(&copy, head.as_bytes(), 1).is_none(), "{asked}");
            }
            let cached = responses.cached(&copy, head.as_bytes(), 1).expect("a cached");
            assert!(cached.source.1 > 1, "several at once");
            for _ in 0..3 * cached.source.1 {
                assert_eq!(
                    receive(&cached, &mut pipes, sockets()),
                    ([head.as_bytes(), &body].concat(), false)
                );
            }
        }
        responses.tidy(1 + UNUSED);
        assert!(responses.0.is_empty());
    }

    #[test]
    fn what_a_socket_does_not_take_follows_later_and_the_next_answers_are_whole() {
        // A pipe holds one answer of the first size, and several of the second.
        for size in [400_000, 100_000] {
            let body = file(size);
            let whole = [&b"head"[..], &body].concat();
            let cached = CachedResponse::new(b"head", copy_of(&body).content().whole().expect("one pipe"))
                .expect("a cached");
            let mut pipes = PipePool::new(false);
            let (full, _theirs) = sockets();
            while send(&full, &[0; 4096], SendFlags::empty()).is_ok() {}
            for _ in 0..3 {
                let (received, in_pieces) = receive(&cached, &mut pipes, narrow_sockets());
                assert!(received == whole && in_pieces, "{size}");
                // A socket that takes nothing at all.
                let Ok(SendOutcome::Rest(pipe)) = cached.send(&full, &mut pipes) else {
                    panic!("nothing is taken")
                };
                assert_eq!(pipe.holds, whole.len());
            }
        }
    }

    #[test]
    fn a_client_that_is_gone_costs_the_others_nothing() {
        let body = file(16 * 1024);
        let cached = CachedResponse::new(b"head", copy_of(&body).content().whole().expect("one pipe"))
            .expect("a cached");
        let mut pipes = PipePool::new(false);
        for _ in 0..20 {
            let (ours, theirs) = sockets();
            drop(theirs);
            assert_eq!(cached.send(&ours, &mut pipes).err(), Some(Errno::PIPE));
            assert_eq!(receive(&cached, &mut pipes, sockets()), ([&b"head"[..], &body].concat(), false));
        }
    }

    #[test]
    fn without_a_pipe_nothing_is_sent() {
        let cached = CachedResponse::new(b"head", copy_of(b"body").content().whole().expect("one pipe"))
            .expect("a cached");
        let mut pipes = PipePool::new(false);
        let lent: Vec<Pipe> = std::iter::from_fn(|| pipes.lend()).collect();
        let (ours, _theirs) = sockets();
        assert!(matches!(cached.send(&ours, &mut pipes), Ok(SendOutcome::NoPipe)));
        drop(lent);
        assert_eq!(receive(&cached, &mut pipes, sockets()).0, b"headbody");
    }

    #[test]
    fn what_does_not_fit_is_not_kept() {
        let mut responses = ResponseCache::default();
        // A body that fills a pipe, one that needs two pipes, and a head that takes two slots.
        let cases =
            [(512 * 1024, "head".to_owned()), (600_000, "head".to_owned()), (1, "x".repeat(HEAD_BYTES + 1))];
        for (size, head) in cases {
            let copy = copy_of(&vec![1; size]);
            for _ in 0..2 * WORTH {
                assert!(responses.cached(&copy, head.as_bytes(), 1).is_none(), "{size}");
            }
        }
    }

    #[test]
    fn there_are_never_more_than_so_many() {
        let mut responses = ResponseCache::default();
        let copies: Vec<_> = (0..=ANSWERS).map(|_| copy_of(b"body")).collect();
        for copy in &copies {
            responses.cached(copy, b"head", 1);
        }
        assert_eq!(responses.0.len(), ANSWERS);
    }
}
