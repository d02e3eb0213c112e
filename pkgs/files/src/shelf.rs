//! Copies of files that are asked for again and again, kept in pipes, out of which tee(2) and splice(2) send them.
//!
//! sendfile(2) takes a file page by page, and hands a socket sixteen pages at a time. A copy that has passed through
//! a Unix socket lies in pieces of 32 KiB, and a pipe of the common sixteen places holds half a mebibyte of it,
//! which goes to a socket in one call: that takes half of the time. The copies are in the kernel's memory, not in
//! the process's; their number and bytes are bounded, and who is not asked for is let go of.
//!
//! A copy is of the file as it was: what is written in place later is not in it, and a transfer out of it ends with
//! the bytes it began with. That a file changed makes its name be looked up anew, which is another file to the cache.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use rustix::io::{Errno, pread};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};
use rustix::pipe::{PipeFlags, SpliceFlags, pipe_with, splice};
use service::metrics::{Family, Registry};

use crate::disk::Disk;
use crate::site::file::{File, is_untouched};
use crate::site::root::Identity;

/// What a Unix socket keeps in one piece: pages of the order the kernel still allocates readily
/// (`UNIX_SKB_FRAGS_SZ`, net/unix/af_unix.c).
pub const PIECE_BYTES: usize = 32 * 1024;

/// Pipes on the shelf: each has a file descriptor.
const PIPES: usize = 512;

/// The part of the shelf that one file may have.
const SHARE: u64 = 4;

/// A copy nobody asks for in such a time is let go of.
const UNUSED: Duration = Duration::from_secs(10);

/// The copies, for all workers.
#[derive(Debug)]
pub struct Shelf {
    /// In bytes.
    capacity: u64,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    copies: Vec<Arc<FileCopy>>,
    /// Whether a copy is being made: one is at a time.
    making: bool,
    /// When copies that nobody asked for were last let go of.
    tidied: Instant,
}

/// A copy of a file.
#[derive(Debug)]
pub struct FileCopy {
    identity: Identity,
    parts: Vec<Part>,
    used: AtomicBool,
}

/// What one pipe has of it.
#[derive(Debug)]
pub struct Part {
    /// Which bytes of the file.
    pub range: Range<u64>,
    /// The end to tee from.
    pub pipe: OwnedFd,
}

impl Shelf {
    /// An empty one, for so many bytes.
    pub fn new(capacity: u64) -> Self {
        let inner = Inner { copies: Vec::new(), making: false, tidied: Instant::now() };
        Self { capacity, inner: Mutex::new(inner) }
    }

    /// Whether a file of this size may have a copy.
    fn takes(&self, size: u64) -> bool {
        size <= self.capacity / SHARE
    }

    /// The copy to send a file out of; one that is asked for again and again gets one. `tick` and `now` are the
    /// present.
    pub fn copy_of(
        self: &Arc<Self>,
        file: &File,
        disk: &Disk,
        tick: u32,
        now: SystemTime,
    ) -> Option<Arc<FileCopy>> {
        if !self.takes(file.identity.size) {
            return None;
        }
        let mut copy = file.copy.borrow().upgrade();
        if copy.is_none() && file.is_hot(tick) {
            copy = self.find(&file.identity);
            if let Some(copy) = &copy {
                file.copy.replace(Arc::downgrade(copy));
            } else if file.is_settled(now) && self.reserve(&file.identity) {
                let (this, fd, identity) = (Arc::clone(self), Arc::clone(&file.fd), file.identity);
                disk.run(move |_| this.make(&fd, identity));
            }
        }
        copy.inspect(|copy| copy.used())
    }

    /// The copy of a file, where there is one.
    fn find(&self, identity: &Identity) -> Option<Arc<FileCopy>> {
        let inner = self.inner();
        inner.copies.iter().find(|copy| copy.identity == *identity).map(Arc::clone)
    }

    /// Whether a copy of this file is to be made now.
    fn reserve(&self, identity: &Identity) -> bool {
        let mut inner = self.inner();
        let known = inner.copies.iter().any(|copy| copy.identity == *identity);
        if known || inner.making || !self.takes(identity.size) {
            return false;
        }
        if !self.has_room(&inner, identity.size) {
            inner.copies.retain(|copy| copy.used.load(Ordering::Relaxed));
        }
        inner.making = self.has_room(&inner, identity.size);
        inner.making
    }

    /// Makes the copy that was reserved. It reads the file, and may wait for the disk.
    fn make(&self, fd: &OwnedFd, identity: Identity) {
        let copy = FileCopy::of(fd, identity);
        let mut inner = self.inner();
        inner.making = false;
        match copy {
            Ok(copy) => inner.copies.push(Arc::new(copy)),
            Err(errno) => tracing::debug!(%errno, "a file cannot be kept in pipes"),
        }
    }

    fn has_room(&self, inner: &Inner, size: u64) -> bool {
        let pipes: usize = inner.copies.iter().map(|copy| copy.parts.len()).sum();
        bytes(inner) + size <= self.capacity && pipes < PIPES
    }

    /// Now and then lets go of what nobody asked for.
    pub fn tidy(&self) {
        let mut inner = self.inner();
        if inner.tidied.elapsed() >= UNUSED {
            inner.tidied = Instant::now();
            inner.copies.retain(|copy| copy.used.swap(false, Ordering::Relaxed));
        }
    }

    /// Lets go of all copies, but for those that are being sent.
    pub fn clear(&self) {
        self.inner().copies.clear();
    }

    /// Shows how full it is in `registry`.
    pub fn register(self: &Arc<Self>, registry: &mut Registry) {
        let this = Arc::clone(self);
        Family::new("files_pipe_bytes", "Bytes of often asked files that are kept in pipes")
            .with(&[], move || bytes(&this.inner()) as f64)
            .register(registry);
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn bytes(inner: &Inner) -> u64 {
    inner.copies.iter().map(|copy| copy.identity.size).sum()
}

impl FileCopy {
    fn of(fd: &OwnedFd, identity: Identity) -> Result<Self, Errno> {
        let parts = fill(fd, identity.size)?;
        // Looked at after reading: what was read while it changed is not kept.
        if !is_untouched(fd, &identity) {
            return Err(Errno::BUSY);
        }
        Ok(Self { identity, parts, used: AtomicBool::new(true) })
    }

    /// It is asked for.
    fn used(&self) {
        // Looked at first, for writing takes the cache line from the other workers.
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    /// All of it, where one pipe has that: the end to tee from, and how many bytes.
    pub fn whole(&self) -> Option<(&OwnedFd, usize)> {
        let [part] = &self.parts[..] else { return None };
        Some((&part.pipe, usize::try_from(part.range.end).ok()?))
    }

    /// The part that begins at `at`.
    pub fn part(&self, at: u64) -> Option<&Part> {
        let index = self.parts.binary_search_by_key(&at, |part| part.range.start).ok()?;
        self.parts.get(index)
    }
}

/// Puts the first `size` bytes of a file into as many pipes as they need.
fn fill(fd: &OwnedFd, size: u64) -> Result<Vec<Part>, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (give, take) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // From a socket, a pipe takes a page for each place that is free: only an empty one takes a piece as it is. From
    // another pipe it takes what that has.
    let (from, to) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    let mut buffer = vec![0; PIECE_BYTES];
    let mut parts = Vec::new();
    let (mut given, mut taken) = (0, 0);
    while taken < size {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let start = taken;
        while taken < size {
            if given == taken {
                let wanted = usize::try_from(size - given).unwrap_or(usize::MAX).min(PIECE_BYTES);
                let count = pread(fd, &mut buffer[..wanted], given)?;
                if count == 0 {
                    return Err(Errno::BUSY);
                }
                let sent = send(&give, &buffer[..count], SendFlags::NOSIGNAL)?;
                given +=
                    splice(&take, None, &to, None, sent, SpliceFlags::MOVE | SpliceFlags::NONBLOCK)? as u64;
            }
            let there = (given - taken) as usize;
            match splice(&from, None, &write, None, there, SpliceFlags::MOVE | SpliceFlags::NONBLOCK) {
                Ok(count) => taken += count as u64,
                // There are bytes: it is the other pipe that is full.
                Err(Errno::AGAIN) => break,
                Err(errno) => return Err(errno),
            }
        }
        if taken == start {
            return Err(Errno::NOBUFS);
        }
        parts.push(Part { range: start..taken, pipe: read });
    }
    Ok(parts)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::{Read, Write};

    use super::*;

    /// A copy of a file of these bytes.
    pub fn copy_of(bytes: &[u8]) -> Arc<FileCopy> {
        let (fd, identity) = file(bytes);
        Arc::new(FileCopy::of(&fd, identity).expect("a copy"))
    }

    fn file(bytes: &[u8]) -> (OwnedFd, Identity) {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(bytes).expect("room");
        let fd = OwnedFd::from(file);
        let (identity, _) = Identity::of(&fd).expect("a file");
        (fd, identity)
    }

    #[test]
    fn parts_have_all_bytes_in_order() {
        for size in [1, 4095, 32 * 1024, 512 * 1024, 512 * 1024 + 1, 2_400_000] {
            let bytes: Vec<u8> = (0..size).map(|at: usize| (at * 31 + at / 257) as u8).collect();
            let (fd, identity) = file(&bytes);
            let copy = FileCopy::of(&fd, identity).expect("a copy");
            let mut read = Vec::new();
            for part in copy.parts {
                assert_eq!(part.range.start, read.len() as u64, "{size}");
                std::fs::File::from(part.pipe).read_to_end(&mut read).expect("bytes");
                assert_eq!(part.range.end, read.len() as u64, "{size}");
            }
            assert!(read == bytes, "{size}");
        }
    }

    #[test]
    fn a_pipe_takes_as_many_pieces_as_it_has_places() {
        let (fd, identity) = file(&vec![1; 64 * PIECE_BYTES]);
        let copy = FileCopy::of(&fd, identity).expect("a copy");
        // Four, and one more where the kernel has no large pages just then.
        assert!(copy.parts.len() <= 5, "{:?}", copy.parts);
    }

    #[test]
    fn room_is_made_of_what_is_not_used() {
        let shelf = Shelf::new(400);
        let files = [file(&[1; 100]), file(&[2; 100]), file(&[3; 100]), file(&[4; 100]), file(&[5; 100])];
        for (fd, identity) in &files[..4] {
            assert!(shelf.reserve(identity));
            assert!(!shelf.reserve(identity), "one at a time");
            shelf.make(fd, *identity);
        }
        let (_, fifth) = &files[4];
        assert!(!shelf.reserve(fifth), "all are new");
        for copy in &shelf.inner().copies {
            copy.used.store(false, Ordering::Relaxed);
        }
        shelf.find(&files[1].1).expect("a copy").used();
        assert!(shelf.reserve(fifth));
        let kept = files.iter().map(|(_, identity)| shelf.find(identity).is_some());
        assert_eq!(kept.collect::<Vec<_>>(), [false, true, false, false, false]);
        assert!(!shelf.takes(101), "a file may have a quarter");
    }

    #[test]
    fn a_file_that_changed_has_no_copy() {
        let (fd, identity) = file(&[1; 100]);
        rustix::fs::ftruncate(&fd, 50).expect("shorter");
        assert_eq!(FileCopy::of(&fd, identity).err(), Some(Errno::BUSY));
    }
}
