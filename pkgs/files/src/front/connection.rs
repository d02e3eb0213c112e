//! What one connection goes through: requests are read, answered and sent, in turns.
//!
//! A connection keeps no buffer while it waits: requests are read into the worker's, and answered into the
//! worker's. Only a head that came in pieces, or an answer the client is slow to take, takes memory of its own.

use std::net::IpAddr;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use listener::ktls;
use listener::proxy::{self, Header};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use service::access_log::{Asked, Began, Shown, Via};
use service::proxies::Source;
use service::request_id::RequestId;

use super::limits::Guest;
use super::seal::Seal;
use super::sending::{Cut, Progress, Sending};
use super::worker::{Room, Worker};
use crate::answer::Payload;
use crate::desk::Desk;
use crate::disk::{Done, Token};
use crate::engine::Transfer;
use crate::http::head::{self, Request};
use crate::ring::Read;
use crate::site::Site;
use crate::site::refusal::Refusal;
use crate::wait::{MAX_WAITS, Wait, Waited};

/// Bodies up to this size are put behind their heads, and go out with the other answers of a pipeline.
const INLINE_BYTES: usize = 2 * 1024;

/// Answers are sent once this much has gathered, however long the pipeline.
const FLUSH_BYTES: usize = 32 * 1024;

/// Times that are read from a socket in a turn: a client that never pauses has the others' turns between its own.
const READS: usize = 4;

/// After a last answer, what the client still sends is read this many ticks, so that no reset overtakes the
/// answer (RFC 9112, section 9.6).
const LINGER_TICKS: u32 = 4;

/// One connection.
pub struct Connection {
    pub stream: OwnedFd,
    who: Who,
    /// There where the kernel encrypts.
    seal: Option<Seal>,
    /// Received, but not yet answered; most often nothing, else part of a head.
    kept: Vec<u8>,
    /// Whether whole requests may be among them.
    whole: bool,
    sending: Sending,
    /// The line of the answer that is under way, where it is logged.
    logged: Option<Box<Logged>>,
    state: State,
    /// What came of what the first request among `kept` had to wait for, and how often that was.
    waited: Option<Waited>,
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
    began: Began,
    /// Bytes before its body that are yet to be sent.
    ahead: u64,
}

/// Whose a connection is.
pub struct Who {
    /// Its other end, or what a PROXY header told.
    pub address: Option<IpAddr>,
    /// What it counts as; none where its address has no limits, or is no client's.
    pub guest: Option<Arc<Guest>>,
    /// Who tells where the client of each request is.
    pub source: Source,
}

/// What a connection does.
enum State {
    /// It waits for a PROXY header.
    Introducing,
    /// It reads, answers and sends.
    Open,
    /// It waits for what an answer takes, most often for the disk to find something.
    Finding,
    /// It waits for the disk to have read a part of a file.
    Warming(Range<u64>),
    /// It waits for the ring to have read a part of a file, or to have room for that.
    Reading,
    /// It waits for a block of a listing.
    Starving,
    /// The last answer is sent.
    Lingering,
}

/// What a connection waits for after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
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
    pub fn new(stream: OwnedFd, who: Who, seal: Option<Seal>, received: Vec<u8>, deadline: u32) -> Self {
        let introduces = who.source == Source::ProxyHeader;
        Self {
            stream,
            who,
            seal,
            whole: !received.is_empty(),
            kept: received,
            sending: Sending::default(),
            logged: None,
            state: if introduces { State::Introducing } else { State::Open },
            waited: None,
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
        matches!(self.state, State::Finding | State::Warming(_) | State::Reading | State::Starving)
    }

    /// The disk has news. From here on its client has time again, until the tick `deadline`.
    pub fn done(&mut self, done: Done, deadline: u32) {
        if self.is_kept_waiting() {
            self.deadline = deadline;
        }
        match (std::mem::replace(&mut self.state, State::Open), done) {
            (State::Finding, Done::Waited(waited)) => self.waited = Some(waited),
            (State::Warming(range), Done::Warm) => {
                if let Some(transfer) = self.sending.transfer() {
                    transfer.warmed(range.end);
                }
            }
            (State::Starving, Done::Block(block)) => self.sending.block(block),
            (state, _) => self.state = state,
        }
    }

    /// The ring has read something for it. From here on its client has time again, until the tick `deadline`.
    pub fn read(&mut self, number: u64, read: Read, deadline: u32) {
        let goes_on = self.sending.transfer().is_some_and(|transfer| transfer.ended(number, read));
        if goes_on && matches!(self.state, State::Reading) {
            self.state = State::Open;
            self.deadline = deadline;
        }
    }

    /// The ring has room for it.
    pub fn served(&mut self) {
        if matches!(self.state, State::Reading) {
            self.state = State::Open;
        }
    }

    /// Lets go of what was read for it where its client does not take that. Returns whether there was something.
    pub fn let_go(&mut self) -> bool {
        !self.writable && self.sending.transfer().is_some_and(Transfer::let_go)
    }

    /// Goes on as far as it can.
    pub fn turn(&mut self, worker: &mut Worker, room: &mut Room, token: Token) -> Next {
        for _ in 0..READS {
            match self.state {
                State::Open => {}
                State::Introducing => match self.introduce(worker, room) {
                    Ok(()) => continue,
                    Err(next) => return next,
                },
                State::Finding | State::Warming(_) | State::Reading | State::Starving => return Next::Wait,
                State::Lingering => return self.linger(&mut room.scratch),
            }
            let step = if !self.sending.is_done() {
                if !self.writable {
                    return Next::Wait;
                }
                self.send(worker, token, &[])
            } else if self.last {
                self.finish(worker);
                continue;
            } else {
                self.receive(worker, room, token)
            };
            if let Some(next) = step {
                return next;
            }
        }
        Next::Turn
    }

    /// Reads the PROXY header as far as it has come, and what there is behind it.
    fn introduce(&mut self, worker: &Worker, room: &mut Room) -> Result<(), Next> {
        let length = self.take_in(&mut room.scratch)?;
        let received = &room.scratch[..length];
        self.kept.clear();
        let (header, used) = match proxy::take(received) {
            Ok(Some(taken)) => taken,
            Ok(None) => {
                self.kept.extend_from_slice(received);
                return Ok(());
            }
            Err(error) => {
                tracing::debug!(%error, "a connection was refused");
                worker.desk.metrics.proxy_refused.add(1);
                return Err(Next::Close);
            }
        };
        if let Header::Proxied { remote, .. } = header {
            self.who.address = Some(remote.ip());
        }
        self.who.guest = worker.desk.front.let_in(self.who.address).map_err(|_| {
            worker.desk.metrics.shed.add(1);
            Next::Close
        })?;
        self.kept.extend_from_slice(&received[used..]);
        self.whole = !self.kept.is_empty();
        self.state = State::Open;
        Ok(())
    }

    /// Reads and answers what has come, once. None to go on.
    fn receive(&mut self, worker: &mut Worker, room: &mut Room, token: Token) -> Option<Next> {
        let length = match self.take_in(&mut room.scratch) {
            Ok(length) => length,
            Err(next) => return Some(next),
        };
        room.out.clear();
        let Room { scratch, out, asked } = room;
        self.answer_all(worker, token, &scratch[..length], out, asked);
        if out.is_empty() && self.sending.is_done() { None } else { self.send(worker, token, out) }
    }

    /// Puts what is kept and what has come into `scratch`, and says how much that is.
    fn take_in(&mut self, scratch: &mut [u8]) -> Result<usize, Next> {
        let before = self.kept.len();
        scratch[..before].copy_from_slice(&self.kept);
        if self.whole || self.waited.is_some() {
            return Ok(before);
        }
        if !self.readable {
            return Err(Next::Wait);
        }
        loop {
            let space = &mut scratch[before..];
            let most = space.len();
            match receive(&self.stream, self.seal.as_ref(), space) {
                // Its client has said all it will, and may yet have something to take.
                Ok(0) if self.seal.is_some() && !self.hung_up => {
                    self.last = true;
                    return Ok(0);
                }
                Ok(0) => return Err(Next::Close),
                Ok(count) => {
                    // Less than there was room for: the rest will be told of, unless it is the end, or a record of
                    // another kind, which is received by itself.
                    self.readable = count == most || self.hung_up || self.seal.is_some();
                    return Ok(before + count);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.readable = false;
                    return Err(Next::Wait);
                }
                Err(_) => return Err(Next::Close),
            }
        }
    }

    /// Answers the requests in `bytes` into `out`, up to one whose body is to be sent, and keeps the rest.
    /// `asked` becomes where among them the last of these is.
    fn answer_all(
        &mut self,
        worker: &mut Worker,
        token: Token,
        mut bytes: &[u8],
        out: &mut Vec<u8>,
        asked: &mut Range<usize>,
    ) {
        let before = self.kept.len();
        let length = bytes.len();
        self.whole = false;
        while !bytes.is_empty() && !self.last {
            if out.len() >= FLUSH_BYTES || !self.sending.is_done() {
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
                        self.state = State::Finding;
                        break;
                    }
                },
                Ok(None) => break,
                Err(error) => error.into(),
            };
            self.refuse(&mut worker.desk, refusal, bytes, out);
            self.last = true;
            bytes = &[];
        }
        self.kept.clear();
        if bytes.is_empty() || self.last {
            self.kept.shrink_to(0);
            self.rest(worker);
        } else {
            self.kept.extend_from_slice(bytes);
            // Not extended by later pieces: a head has one deadline, however slowly it drips.
            if before == 0 || bytes.len() < length {
                self.idle = false;
                self.deadline = worker.desk.after(worker.desk.front.settings.head_timeout);
            }
        }
    }

    /// Answers one request, but for its body; `head` is what it was read from.
    fn answer(
        &mut self,
        worker: &mut Worker,
        request: &Request<'_>,
        head: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), (Wait, Arc<Site>)> {
        #[cfg(test)]
        crate::faults::strike(crate::faults::ANSWER, request.path.as_bytes());
        let client = worker.desk.front.client(self.who.source, self.who.address, head);
        let by_proxy = client.filter(|_| self.who.source == Source::Fields);
        let may_ask = self.waited.is_some() || worker.desk.front.may_ask(self.who.guest.as_deref(), by_proxy);
        let given = || RequestId::of_head(head).filter(|_| self.who.source == Source::Fields);
        // Where it has waited, it has begun before.
        if self.waited.is_none() {
            let asked = || Asked::of_whole_head(head, request.path);
            let http = if request.old { "1.0" } else { "1.1" };
            let began = self.begin(&worker.desk, asked, (http, client), given);
            self.logged = began.map(|began| Box::new(Logged { began, ahead: 0 }));
        }
        let id = match &self.logged {
            Some(logged) => Some(logged.began.context().id().clone()),
            None if by_proxy.is_some() => given(),
            None => None,
        };
        let known = worker.desk.site_of(request);
        let is_known = known.is_some();
        let site = known.unwrap_or_else(|| worker.desk.site.clone());
        let start = out.len();
        let mut maker = worker.desk.maker(&site);
        maker.id.clone_from(&id);
        maker.postpones = true;
        maker.client = client;
        if let Some(seal) = &self.seal {
            maker.more = seal.alt_svc();
            maker.last |= seal.is_worn();
        }
        let mut answer = if !may_ask {
            maker.refuse(Refusal::TooMany, request, "", out)
        } else if !is_known {
            maker.refuse(Refusal::Misdirected, request, "", out)
        } else {
            match maker.answer(request, self.waited.take(), out) {
                Ok(answer) => answer,
                Err(wait) if self.waits < MAX_WAITS => {
                    self.waits += 1;
                    return Err((wait, site));
                }
                Err(_) => maker.refuse(Refusal::Exhausted, request, "", out),
            }
        };
        self.waits = 0;
        self.last = answer.closes;
        worker.desk.prefetch(&site, &answer.payload);
        let mut length = answer.length();
        match std::mem::replace(&mut answer.payload, Payload::None) {
            Payload::None => {}
            Payload::File { file, range, watched } => {
                let whole = range.end - range.start == file.identity.size;
                let transfer = Transfer::new(file, range, watched);
                match transfer.bytes() {
                    Some(bytes) if bytes.len() <= INLINE_BYTES => out.extend_from_slice(bytes),
                    // What is encrypted passes through the processor all the same: no copy saves any of that.
                    None if whole && worker.means.keeps_bytes() && self.seal.is_none() => {
                        let Desk { front, tick, now, .. } = &worker.desk;
                        let copy = front.piped.copy_of(transfer.file(), &front.disk, *tick, *now);
                        self.sending.file(transfer.from_copy(copy));
                    }
                    _ => self.sending.file(transfer),
                }
            }
            Payload::Parts(parts) => self.sending.parts(parts),
            Payload::Listing(listing) => {
                if let Some(listing) = worker.desk.front.disk.list(site.clone(), *listing) {
                    self.sending.listing(listing);
                } else {
                    // The head is not sent yet: it is taken back.
                    out.truncate(start);
                    let mut maker = worker.desk.maker(&site);
                    maker.id = id;
                    answer = maker.refuse(Refusal::Exhausted, request, "", out);
                    length = answer.length();
                }
            }
        }
        worker.desk.counts(self.seal.is_some()).answered(answer.status);
        if let Some(mut logged) = self.logged.take() {
            logged.began.answered(answer.status);
            if self.sending.is_done() {
                logged.began.sent(length.unwrap_or(0));
            } else {
                logged.ahead = out.len() as u64;
                self.logged = Some(logged);
            }
        }
        Ok(())
    }

    /// Refuses what begins with `bytes`, which are no whole request, into `out`, as the last of the connection.
    fn refuse(&self, desk: &mut Desk, refusal: Refusal, bytes: &[u8], out: &mut Vec<u8>) {
        // Of a head that is none nothing is believed.
        let began = self.begin(desk, || Asked::of_bytes(bytes), ("1.1", self.who.address), || None);
        let id = began.as_ref().map_or_else(RequestId::generate, |began| began.context().id().clone());
        let length = desk.site.pages.write(out, refusal, ("", &id), desk.tail.last(), false, false);
        desk.counts(self.seal.is_some()).answered(refusal.status());
        if let Some(mut began) = began {
            began.answered(refusal.status());
            began.sent(length);
        }
    }

    /// Begins the line of a request, if it is to have one; `given` is its id, where it has one.
    fn begin<'r>(
        &self,
        desk: &Desk,
        asked: impl FnOnce() -> Asked<'r>,
        (http, client): (&'static str, Option<IpAddr>),
        given: impl FnOnce() -> Option<RequestId>,
    ) -> Option<Began> {
        let lines = desk.log.as_ref()?;
        // The kernel takes keys of TLS 1.3 alone.
        let via = || Via { client, http, tls: self.seal.as_ref().map(|_| "1.3") };
        lines.begin(&asked(), via, || given().unwrap_or_else(RequestId::generate))
    }

    /// What it is about, for the log: the request that is being answered, or the file that is being sent.
    pub fn about(&self, room: &Room) -> String {
        let asked = Asked::of_bytes(room.scratch.get(room.asked.clone()).unwrap_or_default());
        let about = match (asked.line(), self.sending.sent_file()) {
            (Some(line), _) => line,
            (None, Some(file)) => format!("sending /{}", Shown(file.path())),
            (None, None) => "between requests".to_owned(),
        };
        let from =
            self.who.address.map_or_else(|| "an unknown address".to_owned(), |address| address.to_string());
        format!("{about}, from {from}")
    }

    /// Sends `head` and what follows it. None to go on.
    fn send(&mut self, worker: &mut Worker, token: Token, head: &[u8]) -> Option<Next> {
        let mut count = 0;
        let tick = worker.desk.tick;
        let progress = if head.is_empty() {
            self.sending.go_on(&self.stream, &mut worker.means, tick, &mut count)
        } else {
            self.sending.begin(head, &self.stream, &mut worker.means, tick, &mut count)
        };
        worker.desk.counts(self.seal.is_some()).sent.add(count);
        // What was found out about the next request is none of this.
        let logged = self.logged.as_mut().filter(|_| !matches!(self.state, State::Finding));
        if let Some(logged) = logged {
            let ahead = count.min(logged.ahead);
            logged.ahead -= ahead;
            logged.began.sent(count - ahead);
            if matches!(progress, Ok(Progress::Done)) {
                self.logged = None;
            }
        }
        let used_up = self.seal.as_mut().is_some_and(|seal| {
            seal.sent(count);
            seal.is_used_up()
        });
        match progress {
            Ok(_) if used_up => {
                self.cut();
                Some(Next::Close)
            }
            Ok(Progress::Done) => {
                if self.kept.is_empty() {
                    self.rest(worker);
                }
                None
            }
            Ok(progress) => {
                self.idle = false;
                // A client that takes something has as long again.
                if count > 0 || !head.is_empty() {
                    self.deadline = worker.desk.after(worker.desk.front.settings.write_timeout);
                }
                match progress {
                    Progress::Blocked => {
                        self.writable = false;
                        Some(Next::Wait)
                    }
                    Progress::Starved => {
                        let mailbox = worker.mailbox.clone();
                        if let Some(listing) = self.sending.starved() {
                            listing.next(move |block| mailbox.put(token, Done::Block(block)));
                        }
                        self.state = State::Starving;
                        Some(Next::Wait)
                    }
                    Progress::Cold(range) => {
                        if let Some(transfer) = self.sending.transfer() {
                            let mailbox = worker.mailbox.clone();
                            let done = move || mailbox.put(token, Done::Warm);
                            worker.desk.front.disk.warm(transfer.file().fd.clone(), range.clone(), done);
                            worker.desk.metrics.cold.add(1);
                        }
                        self.state = State::Warming(range);
                        Some(Next::Wait)
                    }
                    Progress::Reading => {
                        worker.desk.metrics.cold.add(1);
                        self.state = State::Reading;
                        Some(Next::Wait)
                    }
                    Progress::Ready => Some(Next::Send),
                    Progress::Over | Progress::Done => Some(Next::Turn),
                }
            }
            Err(cut) => {
                if !matches!(cut, Cut::Socket(_)) {
                    tracing::debug!(error = %cut, "an answer was cut");
                }
                worker.desk.counts(self.seal.is_some()).cut.add(1);
                self.cut();
                Some(Next::Close)
            }
        }
    }

    /// There is nothing to do until the next request.
    fn rest(&mut self, worker: &Worker) {
        self.idle = true;
        self.deadline = worker.desk.after(worker.desk.front.settings.idle_timeout);
    }

    /// Makes closing a reset, so that nobody takes what was sent for the whole.
    pub fn cut(&self) {
        let _ = set_socket_linger(&self.stream, Some(std::time::Duration::ZERO));
    }

    /// The last answer is sent: the client is told so, and heard out.
    fn finish(&mut self, worker: &Worker) {
        self.say_goodbye();
        self.state = State::Lingering;
        self.idle = false;
        self.deadline = if self.seal.is_none() {
            let _ = shutdown(&self.stream, Shutdown::Write);
            worker.desk.tick.saturating_add(LINGER_TICKS)
        } else {
            // What the kernel has encrypted and found no room for in the socket is lost where that is shut down, or
            // closed: a client that was told the end closes when it has all.
            worker.desk.after(worker.desk.front.settings.write_timeout)
        };
    }

    /// Tells a client of TLS that nothing more will come; where an answer is under way, that is not so.
    pub fn say_goodbye(&mut self) {
        if let Some(seal) = self.seal.as_mut().filter(|_| self.sending.is_done()) {
            seal.say_goodbye(&self.stream);
        }
    }

    /// It is to be closed, whatever it does: what is half sent is cut.
    pub fn part(&mut self) {
        if !self.sending.is_done() {
            self.cut();
        }
        self.say_goodbye();
    }

    fn linger(&mut self, scratch: &mut [u8]) -> Next {
        self.say_goodbye();
        for _ in 0..READS {
            match receive(&self.stream, self.seal.as_ref(), scratch) {
                Ok(1..) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Next::Wait,
                Ok(0) | Err(_) => return Next::Close,
            }
        }
        Next::Turn
    }

    /// Its time is up. Returns whether it has been told so and goes on a little.
    pub fn expire(&mut self, worker: &mut Worker) -> bool {
        if matches!(self.state, State::Lingering) {
            return false;
        }
        if !self.sending.is_done() {
            self.cut();
            return false;
        }
        if self.kept.is_empty() || matches!(self.state, State::Introducing) {
            self.say_goodbye();
            return false;
        }
        // Half a head: its sender learns why the connection ends.
        let mut out = Vec::new();
        self.refuse(&mut worker.desk, Refusal::Slow, &self.kept, &mut out);
        let _ = rustix::net::send(&self.stream, &out, rustix::net::SendFlags::NOSIGNAL);
        self.finish(worker);
        true
    }
}

/// Receives, by the kernel's TLS where there is a seal.
fn receive(stream: &OwnedFd, seal: Option<&Seal>, space: &mut [u8]) -> Result<usize, Errno> {
    match seal {
        None => recv(stream, space, RecvFlags::empty()).map(|(_, count)| count),
        Some(_) => {
            ktls::receive(stream, space).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::PROTO))
        }
    }
}
