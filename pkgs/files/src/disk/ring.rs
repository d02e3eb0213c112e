//! Reads that no thread waits for: each worker has an io_uring(7), which its epoll instance watches like any socket, and so
//! does that of the runtime behind each thread of the TLS listener.
//!
//! What is read goes into blocks of a memory of fixed size. A block belongs to the ring for as long as the kernel may
//! write to it, whatever has become of the connection it was for, and to the connection after that.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use io_uring::{IoUring, opcode, types};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::blocks::{BLOCK_BYTES, Block, EXTENT_BLOCKS, Memory};

/// Whom a read is for: a connection of a worker.
pub type Token = u64;

/// To this offsets, lengths and memory are aligned: what disks with sectors of 4 KiB ask of reads around the page cache.
pub const ALIGNMENT: u64 = 4096;

/// Reads under way of one worker. Beyond what the device has places for (`nr_requests`, 256 as a rule) the kernel would have
/// threads of its own wait.
const FLIGHTS: u32 = 128;

/// What one transfer may have in blocks, where it is the only one; several share in it.
const AHEAD_BLOCKS: usize = 32;
/// The most of one transfer, and the least: one is sent while the other is read.
const MOST_AHEAD: usize = 16;
const LEAST_AHEAD: usize = 2;

/// After so long the kernel is told again of reads it had no room for.
pub const REFUSED_FOR: Duration = Duration::from_millis(1);

/// How long the end of a ring waits for reads that are under way.
const END_WITHIN: Duration = Duration::from_secs(2);

/// What was read: the block, and how many bytes of it.
pub type Read = Result<(Block, usize), Errno>;

/// A read that has ended.
#[derive(Debug)]
pub struct Completion {
    /// Whom it was for.
    pub token: Token,
    /// Which read it was.
    pub number: u64,
    /// What came of it.
    pub read: Read,
}

/// A read under way. It keeps the file open and the block where it is.
struct InFlightRead {
    token: Token,
    number: u64,
    _file: Arc<OwnedFd>,
    block: Block,
}

/// A worker's ring.
pub struct Ring {
    ring: IoUring,
    memory: Rc<Memory>,
    /// By the number the kernel has for each.
    flights: Vec<Option<InFlightRead>>,
    places: Vec<u32>,
    /// Blocks of reads under way.
    read_into: usize,
    /// Reads that the kernel has not been told of.
    queued: usize,
    next: u64,
    /// Transfers that wait for a block, in the order they came.
    waiting: VecDeque<Token>,
    /// Whose turn it is to take one.
    served: Option<Token>,
    /// Transfers that read by the ring.
    readers: Rc<()>,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("under_way", &self.under_way()).finish_non_exhaustive()
    }
}

impl Ring {
    /// One with blocks of so many bytes together, for the thread that makes it.
    ///
    /// # Errors
    /// When the kernel has none (before Linux 6.0), or does not allow it: `kernel.io_uring_disabled`, seccomp(2).
    pub fn new(memory: usize) -> io::Result<Self> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            // What has ended is taken in with the next call of the worker, whichever it is, and ends its waiting for events. Taken in
            // only when it asks (`IORING_SETUP_DEFER_TASKRUN`), nobody would tell its epoll instance: a worker without other
            // work would sleep until its next tick.
            .setup_coop_taskrun()
            .setup_taskrun_flag()
            .build(FLIGHTS)?;
        Ok(Self {
            ring,
            memory: Memory::new(memory)?,
            flights: (0..FLIGHTS).map(|_| None).collect(),
            places: (0..FLIGHTS).rev().collect(),
            read_into: 0,
            queued: 0,
            next: 0,
            waiting: VecDeque::new(),
            served: None,
            readers: Rc::new(()),
        })
    }

    /// Counts one more transfer that reads by it, until what is returned is dropped.
    pub fn reader(&self) -> Rc<()> {
        Rc::clone(&self.readers)
    }

    /// How many blocks a transfer may have now.
    fn share(&self) -> usize {
        let readers = Rc::strong_count(&self.readers).saturating_sub(1).max(1);
        (AHEAD_BLOCKS / readers).clamp(LEAST_AHEAD, MOST_AHEAD)
    }

    /// A block for a transfer that has so many already and is to read so many bytes more, or an extent of blocks where it
    /// has use for one. A transfer without any waits for its turn, and is told; the last quarter is for blocks of those.
    pub fn block(&mut self, token: Token, has: usize, wanted: u64) -> Option<Block> {
        let spare = self.memory.free().saturating_sub(self.memory.blocks() / 4);
        let may = if has > 0 {
            self.waiting.is_empty() && has < self.share() && spare > 0
        } else {
            self.waiting.is_empty() || self.served == Some(token)
        };
        if may && !self.places.is_empty() {
            let several = wanted > BLOCK_BYTES as u64 && spare >= EXTENT_BLOCKS;
            let extent = if several { self.memory.extent() } else { None };
            if let Some(block) = extent.or_else(|| self.memory.block()) {
                return Some(block);
            }
        }
        if has == 0 {
            self.waiting.push_back(token);
        }
        None
    }

    /// The transfer that may take a block now.
    pub fn serve(&mut self) -> Option<Token> {
        self.served = if self.may_serve() { self.waiting.pop_front() } else { None };
        self.served
    }

    /// A transfer is over, whether it waited for a block or not: those who come and go while a disk stalls would add up.
    pub fn leave(&mut self, token: Token) {
        self.waiting.retain(|waiting| *waiting != token);
    }

    /// How many wait for a block, those included who have left.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether there is one who may.
    pub fn may_serve(&self) -> bool {
        !self.waiting.is_empty() && !self.places.is_empty() && self.memory.free() > 0
    }

    /// Whether transfers wait for blocks that others have and do not send.
    pub fn is_short(&self) -> bool {
        !self.waiting.is_empty() && self.memory.free() == 0 && self.read_into < self.memory.blocks()
    }

    /// Reads under way.
    pub fn under_way(&self) -> usize {
        self.flights.len() - self.places.len()
    }

    /// Reads that were begun.
    pub fn begun(&self) -> u64 {
        self.next
    }

    /// Has `length` bytes from `offset` read into the block, and returns the number of the read. Both are multiples of
    /// [`ALIGNMENT`] where the file is read around the page cache.
    ///
    /// # Errors
    /// The kernel's, where it takes no more.
    pub fn read(
        &mut self,
        token: Token,
        file: &Arc<OwnedFd>,
        offset: u64,
        length: usize,
        block: Block,
    ) -> Result<u64, Errno> {
        let length = length.min(block.length());
        let place = self.places.pop().ok_or(Errno::BUSY)?;
        let number = self.next;
        let entry = opcode::Read::new(types::Fd(file.as_raw_fd()), block.start().as_ptr(), length as u32)
            .offset(offset)
            .build()
            .user_data(u64::from(place));
        let blocks = block.count();
        // In the table before the kernel knows of it.
        self.flights[place as usize] = Some(InFlightRead { token, number, _file: Arc::clone(file), block });
        // SAFETY: the flight keeps the file open, and the block mapped and untouched, until the completion arrives; where
        // none does, the memory is never unmapped.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        if pushed.is_err() {
            self.flights[place as usize] = None;
            self.places.push(place);
            return Err(Errno::BUSY);
        }
        self.next += 1;
        self.queued += 1;
        self.read_into += blocks;
        Ok(number)
    }

    /// Tells the kernel of reads, and takes in what has ended.
    ///
    /// # Errors
    /// Those of io_uring_enter(2) that are none of a single read.
    pub fn turn(&mut self, ended: &mut VecDeque<Completion>) -> io::Result<()> {
        if self.ring.submission().taskrun() {
            self.enter()?;
        } else {
            self.submit()?;
        }
        self.take(ended);
        Ok(())
    }

    /// Tells the kernel of reads.
    ///
    /// # Errors
    /// Those of io_uring_enter(2) that are none of a single read.
    pub fn submit(&mut self) -> io::Result<()> {
        if self.queued > 0 { self.enter() } else { Ok(()) }
    }

    /// Whether there are reads that the kernel had no room for, of which nobody will tell: they are to be submitted again
    /// after [`REFUSED_FOR`].
    pub fn is_refused(&self) -> bool {
        self.queued > 0
    }

    fn enter(&mut self) -> io::Result<()> {
        #[cfg(not(test))]
        let entered = self.ring.submit();
        #[cfg(test)]
        let entered = match crate::faults::is_ring_refused() {
            true => Err(io::Error::from_raw_os_error(libc::EAGAIN)),
            false => self.ring.submit(),
        };
        match entered {
            Ok(_) => {}
            // Out of memory for a moment, or interrupted: they stay queued.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY | libc::EINTR)) => {}
            Err(error) => return Err(error),
        }
        self.queued = self.ring.submission().len();
        Ok(())
    }

    fn take(&mut self, ended: &mut VecDeque<Completion>) {
        for entry in self.ring.completion() {
            let place = entry.user_data() as u32;
            let Some(flight) = self.flights.get_mut(place as usize).and_then(Option::take) else { continue };
            self.places.push(place);
            self.read_into -= flight.block.count();
            let result = entry.result();
            let read = match usize::try_from(result) {
                Ok(count) => Ok((flight.block, count)),
                Err(_) => Err(Errno::from_raw_os_error(-result)),
            };
            ended.push_back(Completion { token: flight.token, number: flight.number, read });
        }
    }
}

impl Ring {
    /// What tells a task of this thread's runtime that reads have ended.
    ///
    /// # Errors
    /// When no file descriptor is left.
    pub fn wait(&self) -> io::Result<AsyncFd<OwnedFd>> {
        let ring = self.as_fd().try_clone_to_owned()?;
        // SAFETY: an `OwnedFd` that nobody takes out stays open, and the same, for as long as it lives.
        Ok(unsafe { AsyncFd::register_with_interest(ring, Interest::READABLE) }?)
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring is open for as long as it is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let until = std::time::Instant::now() + END_WITHIN;
        let mut ended = VecDeque::new();
        while self.under_way() > 0 && std::time::Instant::now() < until {
            let wait = types::Timespec::from(Duration::from_millis(100));
            let wait = types::SubmitArgs::new().timespec(&wait);
            let _ = self.ring.submitter().submit_with_args(1, &wait);
            self.take(&mut ended);
            ended.clear();
        }
        if self.under_way() > 0 {
            // A disk that does not answer may yet: the memory is left to it.
            std::mem::forget(Rc::clone(&self.memory));
            self.flights.drain(..).for_each(std::mem::forget);
        }
    }
}

/// A ring for a test; none, and that is said, where the kernel has none for this process.
#[cfg(test)]
pub fn for_test(test: &'static str, memory: usize) -> Option<Ring> {
    let refused = |error: &io::Error| bench::skipped(test, &format!("no io_uring here: {error}"));
    Ring::new(memory).inspect_err(refused).ok()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use rustix::buffer::spare_capacity;
    use rustix::event::Timespec;
    use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
    };

    use super::super::blocks::MIN_BLOCKS;
    use super::*;

    fn file(bytes: &[u8]) -> Arc<OwnedFd> {
        let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).expect("a file");
        file.write_all(bytes).expect("room");
        Arc::new(file.into())
    }

    fn wait(ring: &mut Ring) -> Vec<Completion> {
        let mut ended = VecDeque::new();
        while ring.under_way() > 0 {
            ring.turn(&mut ended).expect("a turn");
            std::thread::yield_now();
        }
        ended.into()
    }

    #[test]
    fn what_is_read_is_what_the_file_has() {
        let Some(mut ring) = for_test("what_is_read_is_what_the_file_has", 0) else { return };
        let bytes: Vec<u8> = (0..300_000_u32).map(|at| (at / 3) as u8).collect();
        let file = file(&bytes);
        let block = ring.block(7, 0, 1).expect("a block");
        let number = ring.read(7, &file, 262_144, BLOCK_BYTES, block).expect("room");
        let ended = wait(&mut ring);
        let [Completion { token: 7, number: ended, read: Ok((block, 37_856)) }] = &ended[..] else {
            panic!("{ended:?}")
        };
        assert_eq!((*ended, block.bytes(0..37_856)), (number, &bytes[262_144..]));
    }

    #[test]
    fn a_read_that_ends_wakes_whoever_waits_for_events() {
        let Some(mut ring) = for_test("a_read_that_ends_wakes_whoever_waits_for_events", 0) else { return };
        let epoll = epoll::create(CreateFlags::CLOEXEC).expect("an epoll instance");
        epoll::add(&epoll, &ring, EventData::new_u64(0), EventFlags::IN).expect("it is watched");
        // It can be read after a while, as what comes from a disk.
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC).expect("a timer");
        let once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let soon = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        let times = Itimerspec { it_interval: once, it_value: soon };
        timerfd_settime(&timer, TimerfdTimerFlags::empty(), &times).expect("it is set");
        let timer = Arc::new(timer);
        let block = ring.block(1, 0, 1).expect("a block");
        ring.read(1, &timer, 0, 8, block).expect("room");
        ring.submit().expect("the kernel takes it");
        let mut ended = VecDeque::new();
        let mut events: Vec<epoll::Event> = Vec::with_capacity(8);
        while ended.is_empty() {
            events.clear();
            let long = Timespec { tv_sec: 30, tv_nsec: 0 };
            let woken = epoll::wait(&epoll, spare_capacity(&mut events), Some(&long));
            assert_ne!(woken, Ok(0), "nobody tells of it");
            ring.turn(&mut ended).expect("a turn");
        }
        assert!(matches!(&ended[0], Completion { token: 1, read: Ok((_, 8)), .. }), "{ended:?}");
    }

    #[test]
    fn an_error_comes_back_and_so_does_the_block() {
        let Some(mut ring) = for_test("an_error_comes_back_and_so_does_the_block", 0) else { return };
        let directory = Arc::new(std::fs::File::open("/").expect("a directory").into());
        let block = ring.block(1, 0, 1).expect("a block");
        ring.read(1, &directory, 0, 4096, block).expect("room");
        assert!(matches!(&wait(&mut ring)[..], [Completion { read: Err(Errno::ISDIR), .. }]));
        assert_eq!(ring.memory.free(), MIN_BLOCKS);
    }

    #[test]
    fn blocks_are_shared_and_waited_for_in_turn() {
        let Some(mut ring) = for_test("blocks_are_shared_and_waited_for_in_turn", 0) else { return };
        let reader = ring.reader();
        let mut blocks: Vec<Block> = (0..MOST_AHEAD).map_while(|has| ring.block(1, has, 1)).collect();
        assert_eq!(blocks.len(), MIN_BLOCKS - MIN_BLOCKS / 4, "the last quarter is for those without any");
        blocks.extend([2, 3].map(|token| ring.block(token, 0, 1).expect("a block")));
        assert!(ring.block(4, 0, 1).is_none() && ring.block(5, 0, 1).is_none());
        assert!(ring.is_short() && ring.serve().is_none());
        blocks.pop();
        assert!(ring.block(1, 1, 1).is_none(), "who has some does not overtake");
        assert!(ring.block(6, 0, 1).is_none(), "nor does who came later");
        assert_eq!(ring.serve(), Some(4));
        assert!(ring.block(4, 0, 1).is_some());
        ring.leave(5);
        assert_eq!(ring.waiting(), 1, "one who leaves is waited for by nobody");
        drop(reader);
    }

    #[test]
    fn large_files_get_extents_as_long_as_there_are_blocks_for_small_ones() {
        let Some(mut ring) =
            for_test("large_files_get_extents_as_long_as_there_are_blocks_for_small_ones", 0)
        else {
            return;
        };
        let (small, large) = (BLOCK_BYTES as u64, BLOCK_BYTES as u64 + 1);
        let blocks: Vec<_> = [(1, 0, large), (1, 4, small), (1, 5, large), (2, 0, large), (3, 0, large)]
            .into_iter()
            .map(|(token, has, wanted)| ring.block(token, has, wanted))
            .collect();
        let counts: Vec<_> = blocks.iter().map(|block| block.as_ref().map(Block::count)).collect();
        assert_eq!(counts, [Some(4), Some(1), Some(1), Some(1), Some(1)], "the last quarter is two blocks");
        assert!(ring.block(4, 0, large).is_none() && ring.is_short());
        // It reads into all that there is: nobody keeps a block for himself.
        let file = file(&vec![7; EXTENT_BLOCKS * BLOCK_BYTES]);
        for block in blocks.into_iter().flatten() {
            ring.read(1, &file, 0, usize::MAX, block).expect("room");
        }
        assert!(!ring.is_short());
        let ended = wait(&mut ring);
        let lengths: Vec<_> = ended
            .iter()
            .map(|ended| ended.read.as_ref().map(|(block, count)| (block.count(), *count)))
            .collect();
        assert!(lengths.contains(&Ok((EXTENT_BLOCKS, EXTENT_BLOCKS * BLOCK_BYTES))), "{lengths:?}");
    }

    #[test]
    fn a_ring_that_ends_with_reads_under_way_waits_for_them() {
        let Some(mut ring) = for_test("a_ring_that_ends_with_reads_under_way_waits_for_them", 0) else {
            return;
        };
        let file = file(&vec![1; BLOCK_BYTES]);
        let memory = Rc::downgrade(&ring.memory);
        for _ in 0..MIN_BLOCKS {
            let block = ring.block(1, 0, 1).expect("a block");
            ring.read(1, &file, 0, BLOCK_BYTES, block).expect("room");
        }
        drop(ring);
        assert!(memory.upgrade().is_none(), "nothing writes to it any more");
    }
}
