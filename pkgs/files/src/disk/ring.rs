//! Reads for which no thread waits: each worker has an io_uring(7), which its epoll instance watches like a socket.
//! Each thread of the TLS listener has one too, watched by its runtime.
//!
//! Data is read into blocks of a memory of fixed size. A block belongs to the ring as long as the kernel may write to
//! it, whatever happened to its connection, and then to the connection.

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

/// The connection of a worker that a read is for.
pub type Token = u64;

/// Offsets, lengths and memory are aligned to this, as disks with 4 KiB sectors require for direct reads.
pub const ALIGNMENT: u64 = 4096;

/// The most running reads of a worker. Beyond what the device queues (`nr_requests`, usually 256), the kernel would use
/// waiting threads.
const FLIGHTS: u32 = 128;

/// Reads are submitted together while there is other work: a virtual disk is notified once for all of them, which takes
/// as long as half of the reading.
const BATCH: usize = 16;

/// Other work delays reads by at most so many turns.
const BATCH_TURNS: u32 = 8;

/// The most blocks of a single transfer; several transfers share them.
const AHEAD_BLOCKS: usize = 32;
/// The most and the fewest blocks ahead: one is sent while another is read.
const MOST_AHEAD: usize = 16;
const LEAST_AHEAD: usize = 2;

/// After this long, the kernel is offered again the reads for which it had no room.
pub const REFUSED_FOR: Duration = Duration::from_millis(1);

/// How long the end of a ring waits for running reads.
const END_WITHIN: Duration = Duration::from_secs(2);

/// The result of a read: the block, and how many bytes it has.
pub type Read = Result<(Block, usize), Errno>;

/// A read that has ended.
#[derive(Debug)]
pub struct Completion {
    /// The connection it was for.
    pub token: Token,
    /// The number of the read.
    pub number: u64,
    /// Its result.
    pub read: Read,
}

/// A running read. It keeps the file open and the block in place.
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
    /// By the number that the kernel has for each.
    flights: Vec<Option<InFlightRead>>,
    places: Vec<u32>,
    /// Blocks of running reads.
    read_into: usize,
    /// Reads that were not submitted yet.
    queued: usize,
    /// Turns since reads were submitted.
    turns: u32,
    next: u64,
    /// Transfers that wait for a block, in order.
    waiting: VecDeque<Token>,
    /// The transfer that may take one now.
    served: Option<Token>,
    /// Counts the transfers that use the ring.
    readers: Rc<()>,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("under_way", &self.under_way()).finish_non_exhaustive()
    }
}

impl Ring {
    /// A ring with blocks of this many bytes in total, for the thread that makes it.
    ///
    /// # Errors
    /// When the kernel has none (before Linux 6.0), or forbids it: `kernel.io_uring_disabled`, seccomp(2).
    pub fn new(memory: usize) -> io::Result<Self> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            // Completions are processed at the worker's next system call, whichever it is, and end its wait for events.
            // With `IORING_SETUP_DEFER_TASKRUN` its epoll instance would not be told, and an idle worker would sleep
            // until its next tick.
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
            turns: 0,
            next: 0,
            waiting: VecDeque::new(),
            served: None,
            readers: Rc::new(()),
        })
    }

    /// Counts another transfer that uses it, until the returned value is dropped.
    pub fn reader(&self) -> Rc<()> {
        Rc::clone(&self.readers)
    }

    /// How many blocks a transfer may have now.
    fn share(&self) -> usize {
        let readers = Rc::strong_count(&self.readers).saturating_sub(1).max(1);
        (AHEAD_BLOCKS / readers).clamp(LEAST_AHEAD, MOST_AHEAD)
    }

    /// A block for a transfer that already has `has` blocks and is to read `wanted` more bytes, or an extent of blocks
    /// if it can use one. A transfer without blocks waits for its turn, in which [`serve`](Self::serve) returns it. The
    /// last quarter of the blocks is not used for reading ahead.
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

    /// Removes a transfer that ends from those that wait. Otherwise, transfers that come and go while a disk stalls
    /// would accumulate.
    pub fn leave(&mut self, token: Token) {
        self.waiting.retain(|waiting| *waiting != token);
    }

    /// How many transfers wait for a block.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether a waiting transfer may take a block now.
    pub fn may_serve(&self) -> bool {
        !self.waiting.is_empty() && !self.places.is_empty() && self.memory.free() > 0
    }

    /// Whether transfers wait for blocks that others hold without sending.
    pub fn is_short(&self) -> bool {
        !self.waiting.is_empty() && self.memory.free() == 0 && self.read_into < self.memory.blocks()
    }

    /// The number of running reads.
    pub fn under_way(&self) -> usize {
        self.flights.len() - self.places.len()
    }

    /// The number of reads started.
    pub fn begun(&self) -> u64 {
        self.next
    }

    /// Starts to read `length` bytes from `offset` into the block. Returns the read's number. Both must be multiples of
    /// [`ALIGNMENT`] for a direct read.
    ///
    /// # Errors
    /// The kernel's, if it accepts no more.
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
        // Added to the table before the kernel knows it.
        self.flights[place as usize] = Some(InFlightRead { token, number, _file: Arc::clone(file), block });
        // SAFETY: the table's entry keeps the file open and the block mapped and untouched until its completion;
        // without one, the memory is never unmapped.
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

    /// Submits reads if there are several, or if they have waited for some turns, and collects completions.
    ///
    /// # Errors
    /// Those of io_uring_enter(2) that do not concern a single read.
    pub fn turn(&mut self, ended: &mut VecDeque<Completion>) -> io::Result<()> {
        self.turns = self.turns.saturating_add(1);
        let has_waited = self.queued >= BATCH || self.turns >= BATCH_TURNS;
        if self.ring.submission().taskrun() || (self.queued > 0 && has_waited) {
            self.enter()?;
        }
        self.take(ended);
        Ok(())
    }

    /// Submits reads.
    ///
    /// # Errors
    /// Those of io_uring_enter(2) that do not concern a single read.
    pub fn submit(&mut self) -> io::Result<()> {
        if self.queued > 0 { self.enter() } else { Ok(()) }
    }

    /// Whether there are reads for which the kernel had no room. Nothing signals them: submit again after
    /// [`REFUSED_FOR`].
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
            // Temporarily out of memory, or interrupted: they stay queued.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY | libc::EINTR)) => {}
            Err(error) => return Err(error),
        }
        self.queued = self.ring.submission().len();
        self.turns = 0;
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
    /// Signals completions to a task of this thread's runtime.
    ///
    /// # Errors
    /// When no file descriptor is left.
    pub fn wait(&self) -> io::Result<AsyncFd<OwnedFd>> {
        let ring = self.as_fd().try_clone_to_owned()?;
        // SAFETY: an `OwnedFd` that nobody takes out stays open and unchanged as long as it lives.
        Ok(unsafe { AsyncFd::register_with_interest(ring, Interest::READABLE) }?)
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring is open while it is borrowed.
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
            // A disk that does not answer may still do so, so the memory is left to it.
            std::mem::forget(Rc::clone(&self.memory));
            self.flights.drain(..).for_each(std::mem::forget);
        }
    }
}

/// A ring for a test. If the kernel has none for this process, says so and returns none.
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
        // The timer becomes readable after a while, as data from a disk does.
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
        // Reads into all blocks, so that nobody holds a block that is not being read into.
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
