//! A worker: a thread, an epoll instance, its sockets and everything that it need not share.
//!
//! Sockets are registered once, edge-triggered for both directions. So a request costs no system calls but its own: one
//! to read it, and one or two to answer it. The clock is read once per round, and deadlines are checked once per tick.

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use listener::{DRAIN_GRACE, DrainTimes, Offloaded};
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with};
use rustix::time::{ClockId, clock_gettime};
use service::proxies::Source;
use service::socket::is_about_one_connection;
use service::{handover, panics};

use super::attempts::LookupAttempts;
use super::connection::{ClientInfo, Connection, NextStep};
use super::ktls::KtlsConnection;
use super::state::{TurnBuffers, WorkerState};
use crate::disk::ring::{Completion, REFUSED_FOR, Ring, Token};
use crate::http::head::MAX_HEAD_BYTES;
use crate::metrics::ListenerKind;
use crate::response::pending::PendingWork;
use crate::site::Site;
use crate::threads::interest::Interest;
use crate::transfer::engine::EngineState;
use crate::worker::completions::Completed;
use crate::worker::context::{TICK, WorkerContext, ticks};
use crate::worker::shared::{SharedState, TooMany};

/// How many events are taken at once.
const EVENTS: usize = 256;

/// How many connections are accepted at once, so that a flood of them does not keep a worker from existing ones.
const ACCEPTS: usize = 64;

/// The most waiting connections that are accepted when draining starts: the default of net.core.somaxconn since Linux
/// 5.4.
const DRAIN_ACCEPTS: usize = 4096;

/// How much is received at once: more than a head may have, and a full TLS record, which comes with a connection that
/// is taken over.
const SCRATCH_BYTES: usize = 16 * 1024;

/// How long a worker does work that takes longer than an answer from memory before it looks for requests.
const SLICE: Duration = Duration::from_micros(50);

/// How many completed reads are processed in a row, and then how many look-ups: most of that is in the kernel, whose
/// code for one of them is in the processor's caches for the next.
const RUN: usize = 4;

/// How long such a run may take, half of [`SLICE`]: a read of a large file is sent in tens of microseconds.
const RUN_FOR: Duration = Duration::from_micros(25);

/// How many connections are checked per round for blocks that they need not keep.
const RECLAIMS: usize = 1024;

/// Tokens that are not connections; connections' slots are numbered from 0.
const WAKEUP: Token = u64::MAX;
const WATCHER: Token = u64::MAX - 1;
const RING: Token = u64::MAX - 2;
const LISTENER: Token = u64::MAX - 1024;

/// A slot for a connection. Its generation distinguishes the events of successive connections.
#[derive(Default)]
struct Slot {
    generation: u32,
    connection: Option<Box<Connection>>,
}

struct EventLoop {
    /// The worker's number.
    index: usize,
    worker: WorkerState,
    buffers: TurnBuffers,
    epoll: OwnedFd,
    listeners: Vec<TcpListener>,
    /// Whether connections are accepted; not while file descriptors are short.
    accepting: bool,
    /// Whether to check that before the next tick.
    full: bool,
    slots: Vec<Slot>,
    free: Vec<u32>,
    open: usize,
    /// Connections with an answer that is ready to be sent.
    ready: VecDeque<Token>,
    /// Connections with another turn.
    due: VecDeque<Token>,
    /// The time of the last tick, in nanoseconds of the coarse clock.
    ticked: u64,
    /// When draining began, in ticks.
    drained_from: Option<u32>,
    /// Completed reads of the ring.
    ended: VecDeque<Completion>,
    /// Whether look-ups are tried without waiting for the disk.
    attempts: LookupAttempts,
    /// The slot from which the search for transfers with unsent blocks continues.
    hand: usize,
}

/// Runs a worker until shutdown, and until its connections have drained.
///
/// # Errors
/// When it gets no epoll instance, or loses it.
pub fn run(shared: &Arc<SharedState>, index: usize, listeners: Vec<TcpListener>) -> io::Result<()> {
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    let completions = Arc::clone(&shared.completions[index]);
    let settings = &shared.settings;
    // There was one when it was tried. If memory or file descriptors are short now, threads read instead.
    let ring = settings.ring.and_then(|memory| {
        let without = |error: &io::Error| tracing::warn!(worker = index, %error, "no io_uring: threads read");
        Ring::new(memory).inspect_err(without).ok()
    });
    if let Some(ring) = &ring {
        epoll::add(&epoll, ring, EventData::new_u64(RING), EventFlags::IN)?;
    }
    let engine = EngineState::new(settings.engine, ticks(settings.revalidate), ring, &shared.ghosts);
    let memory = if engine.keeps_bytes() { settings.memory } else { 0 };
    let (plain, tls) = (shared.metrics.worker(ListenerKind::Plain), shared.metrics.worker(ListenerKind::Tls));
    let context = WorkerContext::new(shared, plain, tls, memory);
    epoll::add(&epoll, completions.wakeup(), EventData::new_u64(WAKEUP), EventFlags::IN)?;
    if let Some(watcher) = context.watcher() {
        epoll::add(&epoll, watcher, EventData::new_u64(WATCHER), EventFlags::IN)?;
    }
    let mut this = EventLoop {
        index,
        worker: WorkerState { context, completions, engine, waits: VecDeque::new() },
        buffers: TurnBuffers {
            scratch: vec![0; SCRATCH_BYTES].into_boxed_slice(),
            out: Vec::with_capacity(MAX_HEAD_BYTES),
            asked: 0..0,
        },
        epoll,
        listeners,
        accepting: false,
        full: false,
        slots: Vec::new(),
        free: Vec::new(),
        open: 0,
        ready: VecDeque::new(),
        due: VecDeque::new(),
        ticked: coarse(),
        drained_from: None,
        ended: VecDeque::new(),
        attempts: LookupAttempts::default(),
        hand: 0,
    };
    this.listen()?;
    this.run()
}

impl EventLoop {
    fn run(mut self) -> io::Result<()> {
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
        while !self.is_drained() {
            events.clear();
            let is_idle = !self.has_work();
            let wait = if is_idle { self.pause() } else { Timespec { tv_sec: 0, tv_nsec: 0 } };
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&wait)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            self.clock();
            // Changes first, so that no later request is answered with the old state.
            if events.iter().any(|event| event.data.u64() == WATCHER) {
                self.worker.context.watched();
            }
            for event in &events {
                let (token, flags) = (event.data.u64(), event.flags);
                match token {
                    WAKEUP => self.completed()?,
                    WATCHER | RING => {}
                    LISTENER.. => {
                        self.accept((token - LISTENER) as usize)?;
                    }
                    _ => {
                        let hung_up = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
                        let readable = flags.contains(EventFlags::IN);
                        let writable = flags.intersects(EventFlags::OUT | EventFlags::HUP | EventFlags::ERR);
                        self.turn(token, |connection| connection.woken(readable, writable, hung_up));
                    }
                }
            }
            // Sends what is ready now. What becomes ready meanwhile waits for the next round.
            for _ in 0..self.ready.len() {
                if let Some(token) = self.ready.pop_front() {
                    self.turn(token, |_| ());
                }
            }
            self.work()?;
            // A connection that just ended has made room.
            if self.full {
                self.accept_again();
            }
        }
        self.worker.context.flush_log();
        self.worker.context.shared.heartbeats().done(self.index);
        Ok(())
    }

    /// Whether there is work that no event announces.
    fn has_work(&self) -> bool {
        !(self.ready.is_empty()
            && self.due.is_empty()
            && self.ended.is_empty()
            && self.worker.waits.is_empty()
            && !self.worker.engine.ring.as_ref().is_some_and(Ring::may_serve))
    }

    /// Does work that takes longer than an answer from memory: look-ups, completed reads of the ring, and transfers
    /// with another turn. Ends after a slice of time, so that requests for answers from memory need not wait for all of
    /// it.
    fn work(&mut self) -> io::Result<()> {
        if let Some(ring) = &mut self.worker.engine.ring {
            ring.turn(&mut self.ended)?;
        }
        if self.has_work() {
            let end = Instant::now() + SLICE;
            while self.work_once() && Instant::now() < end {}
        }
        // A transfer whose client turned out to take nothing may hold blocks that others wait for.
        self.reclaim();
        // If there is more to do, the next round submits its reads and these in one call.
        if !self.has_work()
            && let Some(ring) = &mut self.worker.engine.ring
        {
            ring.submit()?;
        }
        Ok(())
    }

    /// Does some of each. Returns whether there was any.
    fn work_once(&mut self) -> bool {
        let mut any = !self.ended.is_empty()
            && in_a_row(|| {
                let Some(Completion { token, number, read }) = self.ended.pop_front() else { return false };
                let deadline = self.worker.context.write_deadline();
                self.turn(token, |connection| connection.read(number, read, deadline));
                true
            });
        any |= !self.worker.waits.is_empty()
            && in_a_row(|| {
                let Some((token, wait, site)) = self.worker.waits.pop_front() else { return false };
                self.wait(token, wait, site);
                true
            });
        if let Some(token) = self.due.pop_front() {
            any = true;
            self.turn(token, |_| ());
        }
        self.reclaim();
        if let Some(token) = self.worker.engine.ring.as_mut().and_then(Ring::serve) {
            any = true;
            let deadline = self.worker.context.write_deadline();
            self.turn(token, |connection| connection.served(deadline));
        }
        any
    }

    /// Does what a connection waits for if that needs only memory; otherwise passes it on.
    fn wait(&mut self, token: Token, wait: PendingWork, site: Arc<Site>) {
        let context = &self.worker.context;
        let (shared, completions) = (Arc::clone(&context.shared), Arc::clone(&self.worker.completions));
        let deadline = context.write_deadline();
        let is_tried = self.is_tried(&wait, &site);
        let counts = is_tried && site.origin.is_none();
        let (mut short, mut has_succeeded) = (false, None);
        self.turn(token, |connection| {
            let outcome = if is_tried { wait.at_once(&site) } else { Err((wait, false)) };
            match outcome {
                Ok(outcome) => {
                    has_succeeded = Some(true);
                    connection.done(Completed::Work(outcome), deadline);
                }
                Err((wait, is_short)) => {
                    has_succeeded = Some(false);
                    short = is_short;
                    let done = move |outcome| completions.push(token, Completed::Work(outcome));
                    shared.resolve(wait, site, Interest::ALWAYS, done);
                }
            }
        });
        if let Some(has_succeeded) = has_succeeded.filter(|_| counts) {
            self.attempts.record(has_succeeded);
        }
        // Too many files are open. Those in the cache can be opened again, so a request that may wait gets a
        // descriptor.
        if short {
            self.worker.context.close_files();
        }
    }

    /// Whether this is a look-up that the worker tries itself.
    fn is_tried(&mut self, wait: &PendingWork, site: &Site) -> bool {
        let PendingWork::Lookup(lookup) = wait else { return false };
        let context = &self.worker.context;
        // What is open is in memory, and so are its directories. An origin is only asked what it knows. While a slow
        // disk keeps the threads from their work, an attempt saves more than it costs, or costs little beside it.
        site.origin.is_some()
            || self.attempts.is_due()
            || context.knows(site, lookup.asked())
            || context.shared.disk.is_behind()
    }

    /// If transfers wait for blocks, takes them from transfers whose clients take nothing.
    fn reclaim(&mut self) {
        for _ in 0..self.slots.len().min(RECLAIMS) {
            if !self.worker.engine.ring.as_ref().is_some_and(Ring::is_short) {
                return;
            }
            self.hand = (self.hand + 1) % self.slots.len();
            if let Some(connection) = &mut self.slots[self.hand].connection {
                connection.release_blocks();
            }
        }
    }

    /// Lets a connection continue, after `first` has told it the news.
    fn turn(&mut self, token: Token, first: impl FnOnce(&mut Connection)) {
        let Some(slot) = slot_of(&mut self.slots, token) else { return };
        // Removed for its turn, in which it uses the worker.
        let Some(mut connection) = slot.connection.take() else { return };
        self.buffers.asked = 0..0;
        self.worker.engine.token = token;
        let turn = || {
            first(&mut connection);
            connection.turn(&mut self.worker, &mut self.buffers, token)
        };
        match panics::catch(turn) {
            Err(panic) => self.panicked(&panic, connection, token),
            Ok(NextStep::Close) => self.close(token),
            Ok(next) => {
                match next {
                    NextStep::Send => self.ready.push_back(token),
                    NextStep::Turn => self.due.push_back(token),
                    NextStep::Wait | NextStep::Close => {}
                }
                if let Some(slot) = slot_of(&mut self.slots, token) {
                    slot.connection = Some(connection);
                }
            }
        }
    }

    /// A connection's turn panicked: ends it, and resets what the turn may have left half done.
    #[cold]
    fn panicked(&mut self, panic: &panics::Panic, connection: Box<Connection>, token: Token) {
        panic.log("connection", &connection.about(&self.buffers));
        connection.set_reset();
        self.worker.context.metrics.cut.add(1);
        self.worker.reset();
        self.buffers.out = Vec::with_capacity(MAX_HEAD_BYTES);
        drop(connection);
        self.close(token);
    }

    /// Frees a connection's slot; the connection itself is closed when dropped.
    fn close(&mut self, token: Token) {
        if let Some(slot) = slot_of(&mut self.slots, token) {
            slot.connection = None;
            if let Some(ring) = &mut self.worker.engine.ring {
                ring.leave(token);
            }
            slot.generation = slot.generation.wrapping_add(1) & GENERATIONS;
            self.free.push(token as u32);
            self.open -= 1;
        }
    }

    /// Accepts waiting connections. Returns whether there may be more.
    fn accept(&mut self, listener: usize) -> io::Result<bool> {
        for _ in 0..ACCEPTS {
            // None if draining started in this round: waiting connections were accepted then.
            let Some(socket) = self.listeners.get(listener) else { return Ok(false) };
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            match acceptfrom_with(socket, flags) {
                Ok((stream, peer)) => {
                    let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
                    // The remaining descriptors are for answering accepted clients.
                    let last = self.worker.context.shared.settings.high_water.is_passed_by(&stream);
                    self.admit(stream, peer);
                    if last && !self.worker.context.draining {
                        self.accept_no_more()?;
                        self.full = true;
                        return Ok(false);
                    }
                }
                Err(Errno::AGAIN) => return Ok(false),
                Err(error) if is_about_one_connection(&error.into()) => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot accept connections just now");
                    self.accept_no_more()?;
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn admit(&mut self, stream: OwnedFd, peer: Option<SocketAddr>) {
        let shared = &self.worker.context.shared;
        let address = peer.map(|peer| peer.ip());
        let source = shared.settings.proxies.source(address);
        let permit = match source {
            Source::Connection => match shared.let_in(address) {
                Ok(permit) => permit,
                Err(TooMany) => return self.worker.context.metrics.shed_address.add(1),
            },
            // A proxy's connections count for the client addresses that the proxy reports, not for its own.
            Source::ProxyHeader | Source::Fields => None,
            Source::Nobody => return self.worker.context.metrics.proxy_refused.add(1),
        };
        if self.begin(stream, ClientInfo { address, permit, source }, None, Vec::new()) {
            self.worker.context.metrics.accepted.add(1);
        }
    }

    /// Takes over a connection that the kernel encrypts.
    fn adopt(&mut self, connection: Offloaded) {
        let Offloaded { socket, peer, address: permit, received, alt_svc } = connection;
        // The TLS listener has read the PROXY header, if there was one.
        let source = if peer.proxies.is_some() { Source::Fields } else { Source::Connection };
        let who = ClientInfo { address: peer.remote.map(|peer| peer.ip()), permit, source };
        if self.begin(socket, who, Some(KtlsConnection::new(alt_svc)), received) {
            self.worker.context.metrics.offloaded.add(1);
        }
    }

    /// Starts to serve a connection. Returns whether there is room for it.
    fn begin(
        &mut self,
        stream: OwnedFd,
        who: ClientInfo,
        ktls: Option<KtlsConnection>,
        received: Vec<u8>,
    ) -> bool {
        let settings = &self.worker.context.shared.settings;
        if self.open >= settings.connections {
            self.worker.context.metrics.shed.add(1);
            return false;
        }
        let deadline = self.worker.context.after(settings.head_timeout);
        let place = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[place as usize];
        let token = u64::from(slot.generation) << 32 | u64::from(place);
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        if let Err(error) = epoll::add(&self.epoll, &stream, EventData::new_u64(token), flags) {
            tracing::warn!(%error, "cannot wait for a connection");
            self.worker.context.metrics.accept_errors.add(1);
            self.free.push(place);
            return false;
        }
        slot.connection = Some(Box::new(Connection::new(stream, who, ktls, received, deadline)));
        self.open += 1;
        true
    }

    fn listen(&mut self) -> io::Result<()> {
        if !self.accepting {
            self.accepting = true;
            for (token, listener) in (LISTENER..).zip(&self.listeners) {
                epoll::add(&self.epoll, listener, EventData::new_u64(token), EventFlags::IN)?;
            }
        }
        Ok(())
    }

    fn listen_no_more(&mut self) -> io::Result<()> {
        if self.accepting {
            self.accepting = false;
            for listener in &self.listeners {
                epoll::delete(&self.epoll, listener.as_fd())?;
            }
        }
        Ok(())
    }

    /// Accepts again if there are file descriptors for it.
    fn accept_again(&mut self) {
        if self.accepting || self.worker.context.draining {
            self.full = false;
        } else if !self.worker.context.shared.settings.high_water.is_reached(&self.epoll) {
            self.full = false;
            if self.listen().is_err() {
                self.accepting = false;
            }
        }
    }

    /// Pauses accepting, and drops what need not be kept.
    fn accept_no_more(&mut self) -> io::Result<()> {
        let context = &self.worker.context;
        context.metrics.accept_errors.add(1);
        context.shared.disk.is_short();
        self.listen_no_more()
    }

    /// Processes what the disk has done, and other threads' messages.
    fn completed(&mut self) -> io::Result<()> {
        let completed = self.worker.completions.take();
        let deadline = self.worker.context.write_deadline();
        for (token, done) in completed.done {
            self.turn(token, |connection| connection.done(done, deadline));
        }
        completed.arrived.into_iter().for_each(|connection| self.adopt(connection));
        let context = &mut self.worker.context;
        context.refresh();
        if context.shared.shutdown.is_triggered() && !context.draining {
            context.draining = true;
            self.drained_from = Some(context.tick);
            // Connections that were waiting before are served: by the process that has taken over, or else here. The
            // loop is bounded, since under load there is always another connection.
            let waited_for = if handover::is_handed_over() { 0 } else { self.listeners.len() };
            for listener in 0..waited_for {
                for _ in 0..DRAIN_ACCEPTS / ACCEPTS {
                    if !self.accept(listener)? {
                        break;
                    }
                }
            }
            self.listen_no_more()?;
            self.listeners.clear();
        }
        Ok(())
    }

    /// Whether there is no connection, and none will come. TLS connections come until the TLS listener has drained; it
    /// has as much time as the connections here.
    fn is_drained(&self) -> bool {
        let Some(from) = self.drained_from.filter(|_| self.open == 0) else { return false };
        let shared = &self.worker.context.shared;
        let end = from.saturating_add(ticks(shared.settings.drain_timeout + DRAIN_GRACE));
        let awaited = shared.handovers.load(Ordering::Acquire) > 0 && self.worker.context.tick < end;
        // In this order, so that the last one handed over is seen.
        !awaited && self.worker.completions.is_empty()
    }

    /// Ticks, if it is time.
    fn clock(&mut self) {
        #[cfg(test)]
        crate::faults::strike_loop();
        let now = coarse();
        if now.saturating_sub(self.ticked) < TICK.as_nanos() as u64 {
            return;
        }
        self.ticked = now;
        self.worker.context.shared.heartbeats().beat(self.index);
        self.worker.context.tick();
        self.worker.context.shared.pipe_copies.tidy();
        self.worker.engine.tidy(self.worker.context.tick);
        self.expire();
        let metrics = &self.worker.context.metrics;
        metrics.open.store(self.open as u64, Ordering::Relaxed);
        let ring_reads = self.worker.engine.ring.as_ref().map_or(0, Ring::begun);
        metrics.ring_reads.store(ring_reads, Ordering::Relaxed);
        self.accept_again();
    }

    /// Closes connections whose time is up.
    fn expire(&mut self) {
        let tick = self.worker.context.tick;
        let settings = &self.worker.context.shared.settings;
        let drain = self.drained_from.map(|from| {
            let times = DrainTimes::new(settings.drain_timeout, DRAIN_GRACE);
            (from.saturating_add(ticks(times.grace())), from.saturating_add(ticks(times.whole())))
        });
        for place in 0..self.slots.len() {
            let slot = &mut self.slots[place];
            let Some(connection) = &mut slot.connection else { continue };
            let late = connection.deadline <= tick && !connection.is_kept_waiting();
            let drained = drain.is_some_and(|(grace, end)| tick >= end || (tick >= grace && connection.idle));
            if !late && !drained {
                continue;
            }
            // A lingering connection was counted when it was told the reason, or it has an answer.
            self.worker.context.metrics.timed_out.add(u64::from(late && !connection.is_lingering()));
            let token = u64::from(slot.generation) << 32 | place as u64;
            if drained {
                connection.close();
                self.close(token);
                continue;
            }
            self.buffers.asked = 0..0;
            match panics::catch(|| connection.expire(&mut self.worker)) {
                Ok(true) => {}
                Ok(false) => self.close(token),
                Err(panic) => {
                    if let Some(connection) = slot.connection.take() {
                        self.panicked(&panic, connection, token);
                    }
                }
            }
        }
    }

    /// How long to wait for events: until the next tick, or until refused reads are tried again.
    fn pause(&self) -> Timespec {
        let passed = coarse().saturating_sub(self.ticked);
        let left = (TICK.as_nanos() as u64).saturating_sub(passed);
        let is_refused = self.worker.engine.ring.as_ref().is_some_and(Ring::is_refused);
        let left = if is_refused { left.min(REFUSED_FOR.as_nanos() as u64) } else { left };
        Timespec { tv_sec: 0, tv_nsec: left as i64 }
    }
}

/// Does something up to [`RUN`] times, and not again after [`RUN_FOR`], as long as there is any. Returns whether there
/// was.
fn in_a_row(mut once: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + RUN_FOR;
    let mut count = 0;
    while count < RUN && (count == 0 || Instant::now() < end) && once() {
        count += 1;
    }
    count > 0
}

/// Generations fit between slot numbers and other tokens.
const GENERATIONS: u32 = u32::MAX >> 1;

fn slot_of(slots: &mut [Slot], token: Token) -> Option<&mut Slot> {
    let slot = slots.get_mut(token as u32 as usize)?;
    (u64::from(slot.generation) == token >> 32).then_some(slot)
}

/// The coarse monotonic clock, in nanoseconds: exact to a few milliseconds, and cheap.
fn coarse() -> u64 {
    let time = clock_gettime(ClockId::MonotonicCoarse);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_ends_with_what_there_is_or_its_number_or_its_time() {
        let done = |there: usize, takes: Duration| {
            let mut done = 0;
            let any = in_a_row(|| {
                if done == there {
                    return false;
                }
                std::thread::sleep(takes);
                done += 1;
                true
            });
            (any, done)
        };
        assert_eq!(done(0, Duration::ZERO), (false, 0));
        assert_eq!(done(1, Duration::ZERO), (true, 1));
        assert_eq!(done(9, 2 * RUN_FOR), (true, 1));
        // It may be interrupted for longer than it has time.
        assert!((1..=RUN).contains(&done(9, Duration::ZERO).1));
    }
}
