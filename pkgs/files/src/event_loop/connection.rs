//! A connection: requests are read, answered and sent, in turns.
//!
//! A waiting connection has no buffer: requests are read into the worker's buffer, and answered into the worker's. Only
//! an incomplete head, or an answer that the client is slow to take, uses memory of the connection.

use std::net::IpAddr;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use listener::ktls;
use listener::proxy::{self, Header};
use listener::{LINGER, Refusal};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use service::access_log::{ConnectionInfo, LogEntry, RequestSummary, Shown};
use service::address_limits::AddressPermit;
use service::proxies::Source;
use service::request_id::RequestId;

use super::ktls::KtlsConnection;
use super::state::{TurnBuffers, WorkerState};
use super::write_queue::{Progress, SendError, WriteQueue};
use crate::disk::ring::{Read, Token};
use crate::http::head::{self, Request};
use crate::response::built::Payload;
use crate::response::pending::{MAX_PENDING, PendingWork, Resumed, WorkOutcome};
use crate::site::Site;
use crate::site::errors::HttpError;
use crate::transfer::file_transfer::Transfer;
use crate::worker::completions::Completed;
use crate::worker::context::{WorkerContext, site_of};

/// Bodies up to this size are appended to their heads, and sent with the other answers of a pipeline.
const INLINE_BYTES: usize = 2 * 1024;

/// Answers are sent once they have this many bytes, however long the pipeline is.
const FLUSH_BYTES: usize = 32 * 1024;

/// How often a socket is read in a turn. If a client never pauses, other connections have their turns in between.
const READS: usize = 4;

/// A connection.
pub struct Connection {
    pub stream: OwnedFd,
    who: ClientInfo,
    /// The state of kernel TLS, if the kernel encrypts.
    ktls: Option<KtlsConnection>,
    /// Received but not yet answered: usually nothing, otherwise part of a head.
    buffered: Vec<u8>,
    /// Whether it may contain complete requests.
    whole: bool,
    queue: WriteQueue,
    /// The log line of the current answer, if it is logged.
    logged: Option<Box<Logged>>,
    state: State,
    /// The result of what the first buffered request had to wait for, on which site, and how often it waited.
    outcome: Option<(WorkOutcome, Arc<Site>)>,
    /// What that request keeps of earlier results while it waits.
    resumed: Resumed,
    /// Since when it waits, if a rule may report that.
    waiting_since: Option<Instant>,
    waits: u8,
    /// Whether the last answer is being sent.
    last: bool,
    readable: bool,
    writable: bool,
    hung_up: bool,
    /// The tick from which the connection is closed.
    pub deadline: u32,
    /// Whether it waits for a request.
    pub idle: bool,
}

/// The log line of the current answer.
struct Logged {
    entry: LogEntry,
    /// How many bytes are still to be sent before its body.
    ahead: u64,
    /// Whether it has its status. Until then, what is sent belongs to earlier answers.
    is_answered: bool,
}

/// The client of a connection.
pub struct ClientInfo {
    /// The other end's address, or the one in a PROXY header.
    pub address: Option<IpAddr>,
    /// Its permit; none if its address has no limits or is not a client's.
    pub permit: Option<AddressPermit>,
    /// What reports the client of each request.
    pub source: Source,
}

/// The state of a connection.
enum State {
    /// It waits for a PROXY header.
    ReadingProxyHeader,
    /// It reads, answers and sends.
    Active,
    /// It waits for what an answer needs on this site, usually for a look-up on disk.
    AwaitingWork(Arc<Site>),
    /// It waits until a part of a file is read from disk.
    AwaitingDisk(Range<u64>),
    /// It waits until the ring has read a part of a file, or has room for that.
    AwaitingRing,
    /// It waits for a block of a stream.
    AwaitingBlock,
    /// It waits for a part of a file from the origin.
    AwaitingOrigin,
    /// The last answer is sent.
    Lingering,
}

/// What a connection does after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// It waits for its socket or the disk.
    Wait,
    /// It has another turn after the others.
    Turn,
    /// It sends after the others' requests are read.
    Send,
    /// It closes.
    Close,
}

impl Connection {
    /// A newly accepted connection, or one from which `received` was already read.
    pub fn new(
        stream: OwnedFd,
        who: ClientInfo,
        ktls: Option<KtlsConnection>,
        received: Vec<u8>,
        deadline: u32,
    ) -> Self {
        let has_proxy_header = who.source == Source::ProxyHeader;
        Self {
            stream,
            who,
            ktls,
            whole: !received.is_empty(),
            buffered: received,
            queue: WriteQueue::default(),
            logged: None,
            state: if has_proxy_header { State::ReadingProxyHeader } else { State::Active },
            outcome: None,
            resumed: Resumed::default(),
            waiting_since: None,
            waits: 0,
            last: false,
            // A new client usually has sent something, and trying costs no more than waiting for an event.
            readable: true,
            writable: true,
            hung_up: false,
            deadline,
            idle: true,
        }
    }

    /// Events of its socket.
    pub fn woken(&mut self, readable: bool, writable: bool, hung_up: bool) {
        self.readable |= readable | hung_up;
        self.writable |= writable;
        self.hung_up |= hung_up;
    }

    /// Whether it waits for the disk, which is not its client's fault: it has no deadline meanwhile.
    pub fn is_kept_waiting(&self) -> bool {
        matches!(
            self.state,
            State::AwaitingWork(_)
                | State::AwaitingDisk(_)
                | State::AwaitingRing
                | State::AwaitingBlock
                | State::AwaitingOrigin
        )
    }

    /// The disk's work is done. From here on, its client has time until the tick `deadline`.
    pub fn done(&mut self, done: Completed, deadline: u32) {
        if self.is_kept_waiting() {
            self.deadline = deadline;
        }
        match (std::mem::replace(&mut self.state, State::Active), done) {
            (State::AwaitingWork(site), Completed::Work(outcome)) => self.outcome = Some((outcome, site)),
            (State::AwaitingDisk(range), Completed::Warm) => {
                if let Some(transfer) = self.queue.transfer() {
                    transfer.warmed(range.end);
                }
            }
            (State::AwaitingBlock, Completed::Block(block)) => self.queue.block(block),
            (State::AwaitingOrigin, Completed::Fetched(result)) => {
                if let Some(transfer) = self.queue.transfer() {
                    transfer.fetched(result);
                }
            }
            (state, _) => self.state = state,
        }
    }

    /// The ring has read something for it. From here on, its client has time until the tick `deadline`.
    pub fn read(&mut self, number: u64, read: Read, deadline: u32) {
        let goes_on = self.queue.transfer().is_some_and(|transfer| transfer.ended(number, read));
        if goes_on && matches!(self.state, State::AwaitingRing) {
            self.state = State::Active;
            self.deadline = deadline;
        }
    }

    /// The ring has room for it. It waited for others, and has time until the tick `deadline`.
    pub fn served(&mut self, deadline: u32) {
        if matches!(self.state, State::AwaitingRing) {
            self.state = State::Active;
            self.deadline = deadline;
        }
    }

    /// Releases what was read ahead, if its client does not take it. Returns whether there was anything.
    pub fn release_blocks(&mut self) -> bool {
        !self.writable && self.queue.transfer().is_some_and(Transfer::release_blocks)
    }

    /// Continues as far as it can.
    pub fn turn(&mut self, worker: &mut WorkerState, buffers: &mut TurnBuffers, token: Token) -> NextStep {
        for _ in 0..READS {
            match self.state {
                State::Active => {}
                State::ReadingProxyHeader => match self.read_proxy_header(worker, buffers) {
                    Ok(()) => continue,
                    Err(next) => return next,
                },
                State::AwaitingWork(_)
                | State::AwaitingDisk(_)
                | State::AwaitingRing
                | State::AwaitingBlock
                | State::AwaitingOrigin => return NextStep::Wait,
                State::Lingering => return self.linger(&mut buffers.scratch),
            }
            let step = if !self.queue.is_done() {
                if !self.writable {
                    return NextStep::Wait;
                }
                self.send(worker, token, &[])
            } else if self.last {
                self.finish(worker);
                continue;
            } else {
                self.receive(worker, buffers, token)
            };
            if let Some(next) = step {
                return next;
            }
        }
        NextStep::Turn
    }

    /// Reads the PROXY header as far as it has arrived, and what follows it.
    fn read_proxy_header(&mut self, worker: &WorkerState, buffers: &mut TurnBuffers) -> Result<(), NextStep> {
        let length = self.take_in(&mut buffers.scratch)?;
        let received = &buffers.scratch[..length];
        self.buffered.clear();
        let (header, used) = match proxy::take(received) {
            Ok(Some(taken)) => taken,
            Ok(None) => {
                self.buffered.extend_from_slice(received);
                return Ok(());
            }
            Err(error) => {
                tracing::debug!(%error, "a connection was refused");
                worker.context.metrics.proxy_refused.add(1);
                return Err(NextStep::Close);
            }
        };
        if let Header::Proxied { remote, .. } = header {
            self.who.address = Some(remote.ip());
        }
        self.who.permit = worker.context.shared.let_in(self.who.address).map_err(|_| {
            worker.context.metrics.shed_address.add(1);
            NextStep::Close
        })?;
        self.buffered.extend_from_slice(&received[used..]);
        self.whole = !self.buffered.is_empty();
        self.state = State::Active;
        Ok(())
    }

    /// Reads and answers once. None to continue.
    fn receive(
        &mut self,
        worker: &mut WorkerState,
        buffers: &mut TurnBuffers,
        token: Token,
    ) -> Option<NextStep> {
        let length = match self.take_in(&mut buffers.scratch) {
            Ok(length) => length,
            Err(next) => return Some(next),
        };
        buffers.out.clear();
        let TurnBuffers { scratch, out, asked } = buffers;
        self.answer_all(worker, token, &scratch[..length], out, asked);
        if out.is_empty() && self.queue.is_done() { None } else { self.send(worker, token, out) }
    }

    /// Puts buffered and newly received bytes into `scratch`. Returns their number.
    fn take_in(&mut self, scratch: &mut [u8]) -> Result<usize, NextStep> {
        let before = self.buffered.len();
        scratch[..before].copy_from_slice(&self.buffered);
        if self.whole || self.outcome.is_some() {
            return Ok(before);
        }
        if !self.readable {
            return Err(NextStep::Wait);
        }
        loop {
            let space = &mut scratch[before..];
            let most = space.len();
            match receive(&self.stream, self.ktls.as_ref(), space) {
                // The client has ended its side, but may still receive.
                Ok(0) if self.ktls.is_some() && !self.hung_up => {
                    self.last = true;
                    return Ok(0);
                }
                Ok(0) => return Err(NextStep::Close),
                Ok(count) => {
                    // Fewer than there was room for: an event will announce the rest, except for the end and for a
                    // record of another kind, which is received separately.
                    self.readable = count == most || self.hung_up || self.ktls.is_some();
                    return Ok(before + count);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.readable = false;
                    return Err(NextStep::Wait);
                }
                Err(_) => return Err(NextStep::Close),
            }
        }
    }

    /// Answers the requests in `bytes` into `out`, up to one whose body has to be sent, and buffers the rest. `asked`
    /// becomes the position of the last one.
    fn answer_all(
        &mut self,
        worker: &mut WorkerState,
        token: Token,
        mut bytes: &[u8],
        out: &mut Vec<u8>,
        asked: &mut Range<usize>,
    ) {
        let before = self.buffered.len();
        let length = bytes.len();
        self.whole = false;
        while !bytes.is_empty() && !self.last {
            if out.len() >= FLUSH_BYTES || !self.queue.is_done() {
                self.whole = true;
                break;
            }
            *asked = length - bytes.len()..length;
            let refusal = match head::parse(bytes) {
                Ok(Some((request, used))) => match self.answer(worker, &request, &bytes[..used], out) {
                    Ok(()) => {
                        bytes = &bytes[used..];
                        continue;
                    }
                    Err((wait, site)) => {
                        worker.waits.push_back((token, wait, Arc::clone(&site)));
                        self.state = State::AwaitingWork(site);
                        break;
                    }
                },
                Ok(None) => break,
                Err(error) => error.into(),
            };
            self.refuse(&mut worker.context, refusal, bytes, out);
            self.last = true;
            bytes = &[];
        }
        self.buffered.clear();
        if bytes.is_empty() || self.last {
            self.buffered.shrink_to(0);
            self.set_idle(worker);
        } else {
            self.buffered.extend_from_slice(bytes);
            // Not extended by later pieces: a head has a single deadline, however slowly it drips.
            if before == 0 || bytes.len() < length {
                self.idle = false;
                self.deadline = worker.context.after(worker.context.shared.settings.head_timeout);
            }
        }
    }

    /// Answers a request without its body; `head` are the bytes that it was read from.
    fn answer(
        &mut self,
        worker: &mut WorkerState,
        request: &Request<'_>,
        head: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), (PendingWork, Arc<Site>)> {
        #[cfg(test)]
        crate::faults::strike(crate::faults::ANSWER, request.path.as_bytes());
        let client = worker.context.shared.client(self.who.source, self.who.address, head);
        let by_proxy = client.filter(|_| self.who.source == Source::Fields);
        let rate = self.who.permit.as_ref().and_then(AddressPermit::rate);
        // Taken whatever the answer is, so that no later request gets them.
        let (outcome, resumed) = (self.outcome.take(), std::mem::take(&mut self.resumed));
        let has_waited = outcome.is_some();
        let may_ask = has_waited || worker.context.shared.may_ask(rate, by_proxy);
        let given = || RequestId::of_head(head).filter(|_| self.who.source == Source::Fields);
        // If it has a result, it was started before.
        if !has_waited {
            let asked = || RequestSummary::of_whole_head(head, request.host(), request.path);
            let http = if request.old { "1.0" } else { "1.1" };
            let entry = self.begin(&worker.context, asked, (http, client), given);
            self.logged = entry.map(|entry| Box::new(Logged { entry, ahead: 0, is_answered: false }));
        }
        let id = match &self.logged {
            Some(logged) => Some(logged.entry.context().id().clone()),
            None if by_proxy.is_some() => given(),
            None => None,
        };
        let first = Rc::clone(&worker.context.site);
        let known = site_of(&first, request);
        let is_known = known.is_some();
        let site = known.unwrap_or(&first);
        let start = out.len();
        let mut builder = worker.context.builder(site);
        builder.id.clone_from(&id);
        builder.defers_lookups = true;
        builder.client = client;
        builder.resumed = resumed;
        builder.waiting_since = self.waiting_since.filter(|_| has_waited);
        if let Some(ktls) = &self.ktls {
            builder.more = ktls.alt_svc();
            builder.last |= ktls.nears_key_limit();
        }
        let mut answer = if !may_ask {
            builder.refuse(HttpError::TooMany, request, "", out)
        } else if !is_known {
            builder.refuse(HttpError::Misdirected, request, "", out)
        } else {
            match builder.answer(request, outcome, out) {
                Ok(answer) => answer,
                Err(wait) if self.waits < MAX_PENDING => {
                    self.waits += 1;
                    self.resumed = std::mem::take(&mut builder.resumed);
                    if site.has_server_timing() {
                        self.waiting_since.get_or_insert_with(Instant::now);
                    }
                    return Err((wait, Arc::clone(site)));
                }
                Err(_) => builder.refuse(HttpError::Exhausted, request, "", out),
            }
        };
        self.waits = 0;
        self.waiting_since = None;
        self.last = answer.closes;
        worker.context.prefetch(site, &answer.payload);
        let mut length = answer.length();
        match std::mem::replace(&mut answer.payload, Payload::None) {
            Payload::None => {}
            Payload::File { file, range } => {
                let whole = range.end - range.start == file.identity.size;
                let transfer = Transfer::new(file, range);
                match transfer.bytes() {
                    Some(bytes) if bytes.len() <= INLINE_BYTES => out.extend_from_slice(bytes),
                    // Encrypted data passes through the processor anyway, so copies save nothing.
                    None if whole && worker.engine.keeps_bytes() && self.ktls.is_none() => {
                        let WorkerContext { shared, tick, now, .. } = &worker.context;
                        let copy = shared.pipe_copies.copy_of(transfer.file(), &shared.disk, *tick, *now);
                        self.queue.file(transfer.from_copy(copy), start == 0);
                    }
                    _ => self.queue.file(transfer, start == 0),
                }
            }
            Payload::Multipart(parts) => self.queue.parts(parts),
            Payload::Stream(source) => {
                if let Some(stream) = worker.context.shared.streams.open(source) {
                    self.queue.stream(stream);
                } else {
                    // The head was not sent yet, so it is removed.
                    out.truncate(start);
                    let mut builder = worker.context.builder(site);
                    builder.id = id;
                    answer = builder.refuse(HttpError::Exhausted, request, "", out);
                    length = answer.length();
                }
            }
        }
        worker.context.counts(self.ktls.is_some()).answered(answer.status);
        if let Some(mut logged) = self.logged.take() {
            logged.entry.answered(answer.status);
            if self.queue.is_done() {
                logged.entry.sent(length.unwrap_or(0));
            } else {
                logged.ahead = out.len() as u64;
                logged.is_answered = true;
                self.logged = Some(logged);
            }
        }
        Ok(())
    }

    /// Refuses the bytes, which are not a complete request, into `out`, as the connection's last answer.
    fn refuse(&self, context: &mut WorkerContext, refusal: HttpError, bytes: &[u8], out: &mut Vec<u8>) {
        // Nothing in an invalid head is believed.
        let entry =
            self.begin(context, || RequestSummary::of_bytes(bytes), ("1.1", self.who.address), || None);
        let id = entry.as_ref().map_or_else(RequestId::generate, |entry| entry.context().id().clone());
        let length = context.site.pages.write(out, refusal, ("", &id), context.tail.last(), false, false);
        context.counts(self.ktls.is_some()).answered(refusal.status());
        if let Some(mut entry) = entry {
            entry.answered(refusal.status());
            entry.sent(length);
        }
    }

    /// Begins the log line of a request, if it gets one; `given` is its id, if it has one.
    fn begin<'r>(
        &self,
        context: &WorkerContext,
        asked: impl FnOnce() -> RequestSummary<'r>,
        (http, client): (&'static str, Option<IpAddr>),
        given: impl FnOnce() -> Option<RequestId>,
    ) -> Option<LogEntry> {
        let lines = context.log.as_ref()?;
        // The kernel accepts only keys of TLS 1.3.
        let connection = || ConnectionInfo { client, http, tls: self.ktls.as_ref().map(|_| "1.3") };
        lines.begin(&asked(), connection, || given().unwrap_or_else(RequestId::generate))
    }

    /// Its subject for the log: the request being answered, or the file being sent.
    pub fn about(&self, buffers: &TurnBuffers) -> String {
        let asked = RequestSummary::of_bytes(buffers.scratch.get(buffers.asked.clone()).unwrap_or_default());
        let about = match (asked.line(), self.queue.sent_file()) {
            (Some(line), _) => line,
            (None, Some(file)) => format!("sending /{}", Shown(file.path())),
            (None, None) => "between requests".to_owned(),
        };
        let from =
            self.who.address.map_or_else(|| "an unknown address".to_owned(), |address| address.to_string());
        format!("{about}, from {from}")
    }

    /// Sends `head` and what follows it. None to continue.
    fn send(&mut self, worker: &mut WorkerState, token: Token, head: &[u8]) -> Option<NextStep> {
        let mut count = 0;
        let tick = worker.context.tick;
        let progress = if head.is_empty() {
            self.queue.go_on(&self.stream, &mut worker.engine, tick, &mut count)
        } else {
            self.queue.begin(head, &self.stream, &mut worker.engine, tick, &mut count)
        };
        worker.context.counts(self.ktls.is_some()).sent.add(count);
        if let Some(logged) = self.logged.as_mut().filter(|logged| logged.is_answered) {
            let ahead = count.min(logged.ahead);
            logged.ahead -= ahead;
            logged.entry.sent(count - ahead);
            if matches!(progress, Ok(Progress::Done)) {
                self.logged = None;
            }
        }
        let is_exhausted = self.ktls.as_mut().is_some_and(|ktls| {
            ktls.sent(count);
            ktls.is_key_exhausted()
        });
        match progress {
            Ok(_) if is_exhausted => {
                self.set_reset();
                Some(NextStep::Close)
            }
            Ok(Progress::Done) => {
                if self.buffered.is_empty() {
                    self.set_idle(worker);
                }
                None
            }
            Ok(progress) => {
                self.idle = false;
                // A client that takes something gets the full time again.
                if count > 0 || !head.is_empty() {
                    self.deadline = worker.context.write_deadline();
                }
                match progress {
                    Progress::Blocked => {
                        self.writable = false;
                        Some(NextStep::Wait)
                    }
                    Progress::NeedsBlock => {
                        let completions = worker.completions.clone();
                        if let Some(stream) = self.queue.stream_in_need() {
                            stream.next(move |block| completions.push(token, Completed::Block(block)));
                        }
                        self.state = State::AwaitingBlock;
                        Some(NextStep::Wait)
                    }
                    Progress::Cold(range) => {
                        if let Some(transfer) = self.queue.transfer() {
                            let completions = worker.completions.clone();
                            let done = move || completions.push(token, Completed::Warm);
                            worker.context.shared.disk.warm(
                                Arc::clone(transfer.file().fd()),
                                range.clone(),
                                done,
                            );
                            worker.context.metrics.cold.add(1);
                        }
                        self.state = State::AwaitingDisk(range);
                        Some(NextStep::Wait)
                    }
                    Progress::Missing(range) => {
                        let completions = worker.completions.clone();
                        let file = self.queue.transfer().and_then(|transfer| transfer.file().origin());
                        if let Some(origin) = file {
                            let done = move |result| completions.push(token, Completed::Fetched(result));
                            origin.fetch(range, done);
                            worker.context.metrics.cold.add(1);
                        }
                        self.state = State::AwaitingOrigin;
                        Some(NextStep::Wait)
                    }
                    Progress::AwaitingRing => {
                        worker.context.metrics.cold.add(1);
                        self.state = State::AwaitingRing;
                        Some(NextStep::Wait)
                    }
                    Progress::Ready => Some(NextStep::Send),
                    Progress::Yield | Progress::Done => Some(NextStep::Turn),
                }
            }
            Err(cut) => {
                if !matches!(cut, SendError::Socket(_)) {
                    tracing::debug!(error = %cut, "an answer was cut");
                }
                worker.context.counts(self.ktls.is_some()).cut.add(1);
                self.set_reset();
                Some(NextStep::Close)
            }
        }
    }

    /// There is nothing to do until the next request.
    fn set_idle(&mut self, worker: &WorkerState) {
        self.idle = true;
        self.deadline = worker.context.after(worker.context.shared.settings.idle_timeout);
    }

    /// Makes closing a reset, so that nobody takes a partial answer for a complete one.
    pub fn set_reset(&self) {
        let _ = set_socket_linger(&self.stream, Some(std::time::Duration::ZERO));
    }

    /// The last answer is sent: tells the client, and receives what it still sends.
    fn finish(&mut self, worker: &WorkerState) {
        self.send_close_notify();
        self.state = State::Lingering;
        self.idle = false;
        self.deadline = if self.ktls.is_none() {
            let _ = shutdown(&self.stream, Shutdown::Write);
            worker.context.after(LINGER)
        } else {
            // Data that the kernel has encrypted but not sent is lost if the socket is shut down or closed. A client
            // that was told the end closes once it has everything.
            worker.context.write_deadline()
        };
    }

    /// Tells a TLS client that nothing more will come, unless an answer is incomplete.
    pub fn send_close_notify(&mut self) {
        if let Some(ktls) = self.ktls.as_mut().filter(|_| self.queue.is_done()) {
            ktls.send_close_notify(&self.stream);
        }
    }

    /// Closes it, whatever it does; a partial answer is cut.
    pub fn close(&mut self) {
        if !self.queue.is_done() {
            self.set_reset();
        }
        self.send_close_notify();
    }

    fn linger(&mut self, scratch: &mut [u8]) -> NextStep {
        self.send_close_notify();
        for _ in 0..READS {
            match receive(&self.stream, self.ktls.as_ref(), scratch) {
                Ok(1..) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return NextStep::Wait,
                Ok(0) | Err(_) => return NextStep::Close,
            }
        }
        NextStep::Turn
    }

    /// Whether it has sent everything, and waits for the client to close.
    pub fn is_lingering(&self) -> bool {
        matches!(self.state, State::Lingering)
    }

    /// Its time is up. Returns whether it continues briefly after telling the client.
    pub fn expire(&mut self, worker: &mut WorkerState) -> bool {
        if self.is_lingering() {
            return false;
        }
        if !self.queue.is_done() {
            self.set_reset();
            return false;
        }
        if self.buffered.is_empty() || matches!(self.state, State::ReadingProxyHeader) {
            self.send_close_notify();
            return false;
        }
        // An incomplete head: its sender is told why the connection ends.
        let mut out = Vec::new();
        self.refuse(&mut worker.context, HttpError::Protocol(Refusal::Slow), &self.buffered, &mut out);
        let _ = rustix::net::send(&self.stream, &out, rustix::net::SendFlags::NOSIGNAL);
        self.finish(worker);
        true
    }
}

/// Receives, through the kernel's TLS if there is a `ktls`.
fn receive(stream: &OwnedFd, ktls: Option<&KtlsConnection>, space: &mut [u8]) -> Result<usize, Errno> {
    match ktls {
        None => recv(stream, space, RecvFlags::empty()).map(|(_, count)| count),
        Some(_) => {
            ktls::receive(stream, space).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::PROTO))
        }
    }
}
