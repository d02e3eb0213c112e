//! What one connection goes through: requests are read, answered and sent, in turns.
//!
//! A connection keeps no buffer while it waits: requests are read into the worker's, and answered into the
//! worker's. Only a head that came in pieces, or an answer the client is slow to take, takes memory of its own.

use std::net::IpAddr;
use std::ops::Range;
use std::os::fd::OwnedFd;
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
use crate::response::pending::{MAX_PENDING, PendingWork, WorkOutcome};
use crate::site::Site;
use crate::site::errors::HttpError;
use crate::transfer::file_transfer::Transfer;
use crate::worker::completions::Completed;
use crate::worker::context::WorkerContext;

/// Bodies up to this size are put behind their heads, and go out with the other answers of a pipeline.
const INLINE_BYTES: usize = 2 * 1024;

/// Answers are sent once this much has gathered, however long the pipeline.
const FLUSH_BYTES: usize = 32 * 1024;

/// Times that are read from a socket in a turn: a client that never pauses has the others' turns between its own.
const READS: usize = 4;

/// One connection.
pub struct Connection {
    pub stream: OwnedFd,
    who: ClientInfo,
    /// There where the kernel encrypts.
    ktls: Option<KtlsConnection>,
    /// Received, but not yet answered; most often nothing, else part of a head.
    buffered: Vec<u8>,
    /// Whether whole requests may be among them.
    whole: bool,
    queue: WriteQueue,
    /// The line of the answer that is under way, where it is logged.
    logged: Option<Box<Logged>>,
    state: State,
    /// What came of what the first request among `buffered` had to wait for, and how often that was.
    outcome: Option<WorkOutcome>,
    /// Since when, where a rule may have that told.
    waiting_since: Option<Instant>,
    waits: u8,
    /// Whether the last answer is under way.
    last: bool,
    readable: bool,
    writable: bool,
    hung_up: bool,
    /// Closed from this tick on.
    pub deadline: u32,
    /// Whether it waits for a request.
    pub idle: bool,
}

/// The line of an answer that is under way.
struct Logged {
    entry: LogEntry,
    /// Bytes before its body that are yet to be sent.
    ahead: u64,
}

/// Whose a connection is.
pub struct ClientInfo {
    /// Its other end, or what a PROXY header told.
    pub address: Option<IpAddr>,
    /// What it counts as; none where its address has no limits, or is no client's.
    pub permit: Option<AddressPermit>,
    /// Who tells where the client of each request is.
    pub source: Source,
}

/// What a connection does.
enum State {
    /// It waits for a PROXY header.
    ReadingProxyHeader,
    /// It reads, answers and sends.
    Active,
    /// It waits for what an answer takes, most often for the disk to find something.
    AwaitingWork,
    /// It waits for the disk to have read a part of a file.
    AwaitingDisk(Range<u64>),
    /// It waits for the ring to have read a part of a file, or to have room for that.
    AwaitingRing,
    /// It waits for a block of a stream.
    AwaitingBlock,
    /// It waits for the origin to have sent a part of a file.
    AwaitingOrigin,
    /// The last answer is sent.
    Lingering,
}

/// What a connection waits for after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// Its socket, or the disk.
    Wait,
    /// The others' turns.
    Turn,
    /// The others' requests.
    Send,
    /// Nothing more.
    Close,
}

impl Connection {
    /// One that has just been accepted, or of which this was received already.
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
            waiting_since: None,
            waits: 0,
            last: false,
            // A client that connects has something to say; trying costs no more than waiting to be told.
            readable: true,
            writable: true,
            hung_up: false,
            deadline,
            idle: true,
        }
    }

    /// Its socket has news.
    pub fn woken(&mut self, readable: bool, writable: bool, hung_up: bool) {
        self.readable |= readable | hung_up;
        self.writable |= writable;
        self.hung_up |= hung_up;
    }

    /// Whether it waits for the disk, which is no fault of its client: it has no deadline meanwhile.
    pub fn is_kept_waiting(&self) -> bool {
        matches!(
            self.state,
            State::AwaitingWork
                | State::AwaitingDisk(_)
                | State::AwaitingRing
                | State::AwaitingBlock
                | State::AwaitingOrigin
        )
    }

    /// The disk has news. From here on its client has time again, until the tick `deadline`.
    pub fn done(&mut self, done: Completed, deadline: u32) {
        if self.is_kept_waiting() {
            self.deadline = deadline;
        }
        match (std::mem::replace(&mut self.state, State::Active), done) {
            (State::AwaitingWork, Completed::Work(outcome)) => self.outcome = Some(outcome),
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

    /// The ring has read something for it. From here on its client has time again, until the tick `deadline`.
    pub fn read(&mut self, number: u64, read: Read, deadline: u32) {
        let goes_on = self.queue.transfer().is_some_and(|transfer| transfer.ended(number, read));
        if goes_on && matches!(self.state, State::AwaitingRing) {
            self.state = State::Active;
            self.deadline = deadline;
        }
    }

    /// The ring has room for it. It waited for others, and has time again, until the tick `deadline`.
    pub fn served(&mut self, deadline: u32) {
        if matches!(self.state, State::AwaitingRing) {
            self.state = State::Active;
            self.deadline = deadline;
        }
    }

    /// Lets go of what was read for it where its client does not take that. Returns whether there was something.
    pub fn release_blocks(&mut self) -> bool {
        !self.writable && self.queue.transfer().is_some_and(Transfer::release_blocks)
    }

    /// Goes on as far as it can.
    pub fn turn(&mut self, worker: &mut WorkerState, buffers: &mut TurnBuffers, token: Token) -> NextStep {
        for _ in 0..READS {
            match self.state {
                State::Active => {}
                State::ReadingProxyHeader => match self.read_proxy_header(worker, buffers) {
                    Ok(()) => continue,
                    Err(next) => return next,
                },
                State::AwaitingWork
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

    /// Reads the PROXY header as far as it has come, and what there is behind it.
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

    /// Reads and answers what has come, once. None to go on.
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

    /// Puts what is kept and what has come into `scratch`, and says how much that is.
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
                // Its client has said all it will, and may yet have something to take.
                Ok(0) if self.ktls.is_some() && !self.hung_up => {
                    self.last = true;
                    return Ok(0);
                }
                Ok(0) => return Err(NextStep::Close),
                Ok(count) => {
                    // Less than there was room for: the rest will be told of, unless it is the end, or a record of
                    // another kind, which is received by itself.
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

    /// Answers the requests in `bytes` into `out`, up to one whose body is to be sent, and keeps the rest.
    /// `asked` becomes where among them the last of these is.
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
                        worker.waits.push_back((token, wait, site));
                        self.state = State::AwaitingWork;
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
            // Not extended by later pieces: a head has one deadline, however slowly it drips.
            if before == 0 || bytes.len() < length {
                self.idle = false;
                self.deadline = worker.context.after(worker.context.shared.settings.head_timeout);
            }
        }
    }

    /// Answers one request, but for its body; `head` is what it was read from.
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
        let may_ask = self.outcome.is_some() || worker.context.shared.may_ask(rate, by_proxy);
        let given = || RequestId::of_head(head).filter(|_| self.who.source == Source::Fields);
        // Where it has outcome, it has begun before.
        if self.outcome.is_none() {
            let asked = || RequestSummary::of_whole_head(head, request.path);
            let http = if request.old { "1.0" } else { "1.1" };
            let entry = self.begin(&worker.context, asked, (http, client), given);
            self.logged = entry.map(|entry| Box::new(Logged { entry, ahead: 0 }));
        }
        let id = match &self.logged {
            Some(logged) => Some(logged.entry.context().id().clone()),
            None if by_proxy.is_some() => given(),
            None => None,
        };
        let known = worker.context.site_of(request);
        let is_known = known.is_some();
        let site = known.unwrap_or_else(|| worker.context.site.clone());
        let start = out.len();
        let mut builder = worker.context.builder(&site);
        builder.id.clone_from(&id);
        builder.defers_lookups = true;
        builder.client = client;
        builder.waiting_since = self.waiting_since.filter(|_| self.outcome.is_some());
        if let Some(ktls) = &self.ktls {
            builder.more = ktls.alt_svc();
            builder.last |= ktls.nears_key_limit();
        }
        let mut answer = if !may_ask {
            builder.refuse(HttpError::TooMany, request, "", out)
        } else if !is_known {
            builder.refuse(HttpError::Misdirected, request, "", out)
        } else {
            match builder.answer(request, self.outcome.take(), out) {
                Ok(answer) => answer,
                Err(wait) if self.waits < MAX_PENDING => {
                    self.waits += 1;
                    if site.has_server_timing() {
                        self.waiting_since.get_or_insert_with(Instant::now);
                    }
                    return Err((wait, site));
                }
                Err(_) => builder.refuse(HttpError::Exhausted, request, "", out),
            }
        };
        self.waits = 0;
        self.waiting_since = None;
        self.last = answer.closes;
        worker.context.prefetch(&site, &answer.payload);
        let mut length = answer.length();
        match std::mem::replace(&mut answer.payload, Payload::None) {
            Payload::None => {}
            Payload::File { file, range, watched } => {
                let whole = range.end - range.start == file.identity.size;
                let transfer = Transfer::new(file, range, watched);
                match transfer.bytes() {
                    Some(bytes) if bytes.len() <= INLINE_BYTES => out.extend_from_slice(bytes),
                    // What is encrypted passes through the processor all the same: no copy saves any of that.
                    None if whole && worker.engine.keeps_bytes() && self.ktls.is_none() => {
                        let WorkerContext { shared, tick, now, .. } = &worker.context;
                        let copy = shared.pipe_copies.copy_of(transfer.file(), &shared.disk, *tick, *now);
                        self.queue.file(transfer.from_copy(copy));
                    }
                    _ => self.queue.file(transfer),
                }
            }
            Payload::Multipart(parts) => self.queue.parts(parts),
            Payload::Stream(source) => {
                if let Some(stream) = worker.context.shared.streams.open(source) {
                    self.queue.stream(stream);
                } else {
                    // The head is not sent yet: it is taken back.
                    out.truncate(start);
                    let mut builder = worker.context.builder(&site);
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
                self.logged = Some(logged);
            }
        }
        Ok(())
    }

    /// Refuses what begins with `bytes`, which are no whole request, into `out`, as the last of the connection.
    fn refuse(&self, context: &mut WorkerContext, refusal: HttpError, bytes: &[u8], out: &mut Vec<u8>) {
        // Of a head that is none nothing is believed.
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

    /// Begins the line of a request, if it is to have one; `given` is its id, where it has one.
    fn begin<'r>(
        &self,
        context: &WorkerContext,
        asked: impl FnOnce() -> RequestSummary<'r>,
        (http, client): (&'static str, Option<IpAddr>),
        given: impl FnOnce() -> Option<RequestId>,
    ) -> Option<LogEntry> {
        let lines = context.log.as_ref()?;
        // The kernel takes keys of TLS 1.3 alone.
        let connection = || ConnectionInfo { client, http, tls: self.ktls.as_ref().map(|_| "1.3") };
        lines.begin(&asked(), connection, || given().unwrap_or_else(RequestId::generate))
    }

    /// What it is about, for the log: the request that is being answered, or the file that is being sent.
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

    /// Sends `head` and what follows it. None to go on.
    fn send(&mut self, worker: &mut WorkerState, token: Token, head: &[u8]) -> Option<NextStep> {
        let mut count = 0;
        let tick = worker.context.tick;
        let progress = if head.is_empty() {
            self.queue.go_on(&self.stream, &mut worker.engine, tick, &mut count)
        } else {
            self.queue.begin(head, &self.stream, &mut worker.engine, tick, &mut count)
        };
        worker.context.counts(self.ktls.is_some()).sent.add(count);
        // What was found out about the next request is none of this.
        let logged = self.logged.as_mut().filter(|_| !matches!(self.state, State::AwaitingWork));
        if let Some(logged) = logged {
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
                // A client that takes something has as long again.
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

    /// Makes closing a reset, so that nobody takes what was sent for the whole.
    pub fn set_reset(&self) {
        let _ = set_socket_linger(&self.stream, Some(std::time::Duration::ZERO));
    }

    /// The last answer is sent: the client is told so, and heard out.
    fn finish(&mut self, worker: &WorkerState) {
        self.send_close_notify();
        self.state = State::Lingering;
        self.idle = false;
        self.deadline = if self.ktls.is_none() {
            let _ = shutdown(&self.stream, Shutdown::Write);
            worker.context.after(LINGER)
        } else {
            // What the kernel has encrypted and found no room for in the socket is lost where that is shut down, or
            // closed: a client that was told the end closes when it has all.
            worker.context.write_deadline()
        };
    }

    /// Tells a client of TLS that nothing more will come; where an answer is under way, that is not so.
    pub fn send_close_notify(&mut self) {
        if let Some(ktls) = self.ktls.as_mut().filter(|_| self.queue.is_done()) {
            ktls.send_close_notify(&self.stream);
        }
    }

    /// It is to be closed, whatever it does: what is half sent is cut.
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

    /// Whether it has said all, and waits for the client's end.
    pub fn is_lingering(&self) -> bool {
        matches!(self.state, State::Lingering)
    }

    /// Its time is up. Returns whether it has been told so and goes on a little.
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
        // Half a head: its sender learns why the connection ends.
        let mut out = Vec::new();
        self.refuse(&mut worker.context, HttpError::Protocol(Refusal::Slow), &self.buffered, &mut out);
        let _ = rustix::net::send(&self.stream, &out, rustix::net::SendFlags::NOSIGNAL);
        self.finish(worker);
        true
    }
}

/// Receives, by the kernel's TLS where there is a ktls.
fn receive(stream: &OwnedFd, ktls: Option<&KtlsConnection>, space: &mut [u8]) -> Result<usize, Errno> {
    match ktls {
        None => recv(stream, space, RecvFlags::empty()).map(|(_, count)| count),
        Some(_) => {
            ktls::receive(stream, space).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::PROTO))
        }
    }
}
