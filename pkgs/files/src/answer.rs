//! From a request to an answer: the head as bytes, and what is to follow it.
//!
//! No input and no output happen here, but for lookups in the cache and, where a file is not in it, one that
//! does not wait for the disk.

use std::borrow::Cow;
use std::net::IpAddr;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::SystemTime;

use percent_encoding::percent_encode;
use service::request_id::RequestId;

use crate::cache::{Cache, Entry, Kind};
use crate::guard::{self, Guard, Tried};
use crate::http::conditional::{self, Verdict};
use crate::http::date;
use crate::http::encoding::{self, Coding};
use crate::http::head::{Method, Request};
use crate::http::path::{self, ESCAPED, Refused};
use crate::http::range::{self, Wanted};
use crate::http::status::phrase;
use crate::listing::{self, Order};
use crate::parts::Parts;
use crate::site::Site;
use crate::site::file::File;
use crate::site::gate::{Gate, Judgement, Realm};
use crate::site::refusal::Refusal;
use crate::site::root::{self, Patience};
use crate::site::route::Route;
use crate::site::rules::{Cors, Policy};
use crate::site::signature::unsigned;
use crate::variants::{Stock, Variants};
use crate::wait::{Wait, Waited};

/// The most entries of `Cache-Control: max-age` a preflight may be kept, in seconds: what browsers cap it at.
const PREFLIGHT_MAX_AGE: u32 = 7200;

/// What an answer is made from.
pub struct Maker<'w> {
    /// What is served.
    pub site: &'w Site,
    /// What is open.
    pub cache: &'w mut Cache,
    /// The present, in ticks.
    pub tick: u32,
    /// The present.
    pub now: SystemTime,
    /// The longest file whose bytes are kept in memory.
    pub memory_max: u64,
    /// What heads end with.
    pub tail: &'w Tail,
    /// Further lines of heads.
    pub more: &'w [u8],
    /// The request's id, where it has one.
    pub id: Option<RequestId>,
    /// Whether what is not open is [`Cold`], without a look at whether it is in memory.
    pub postpones: bool,
    /// Whether the connection ends with this answer, whatever the request says.
    pub last: bool,
    /// What is known of passwords.
    pub guard: &'w Guard,
    /// Codings that were made of files.
    pub variants: &'w Variants,
    /// Whether a file is sent as it is where there is no coding of it yet.
    pub as_it_is: bool,
    /// Where the client is.
    pub client: Option<IpAddr>,
    /// What became of the password in the request, and where.
    pub checked: Option<(Arc<Realm>, Tried)>,
}

/// An answer whose head is written.
#[derive(Debug)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// What follows the head.
    pub payload: Payload,
    /// Bytes of a body that is written already.
    pub written: u64,
    /// Whether the head says that the connection ends with it.
    pub closes: bool,
}

/// What follows a head.
#[derive(Debug)]
pub enum Payload {
    /// Nothing, or it is written already.
    None,
    /// Bytes of a file.
    File {
        /// The file.
        file: Rc<File>,
        /// Which of its bytes.
        range: Range<u64>,
        /// Whether the kernel tells of changes to it.
        watched: bool,
    },
    /// Several ranges of a file.
    Parts(Box<Parts>),
    /// The entries of a directory.
    Listing(Box<listing::Request>),
}

impl Answer {
    /// How many bytes its body has, as far as that is known.
    pub fn length(&self) -> Option<u64> {
        match &self.payload {
            Payload::None => Some(self.written),
            Payload::File { range, .. } => Some(range.end - range.start),
            Payload::Parts(parts) => Some(parts.length()),
            Payload::Listing(_) => None,
        }
    }
}

/// What heads end with, by how the connection goes on.
#[derive(Clone, Debug)]
pub struct Tail {
    keep: Vec<u8>,
    close: Vec<u8>,
    /// HTTP/1.0 has to be told that the connection stays open.
    old: Vec<u8>,
}

impl Tail {
    /// Those of a second.
    pub fn at(now: SystemTime) -> Self {
        let date = date::text(now);
        let with = |field: &str| format!("date: {date}\r\n{field}\r\n").into_bytes();
        Self { keep: with(""), close: with("connection: close\r\n"), old: with("connection: keep-alive\r\n") }
    }

    /// The one for the last answer of a connection.
    pub fn last(&self) -> &[u8] {
        &self.close
    }
}

impl Maker<'_> {
    /// Appends the head of the answer to `request`; `waited` is what came of what it had to wait for.
    ///
    /// # Errors
    /// What it has to wait for, with nothing appended.
    pub fn answer(
        &mut self,
        request: &Request<'_>,
        waited: Option<Waited>,
        out: &mut Vec<u8>,
    ) -> Result<Answer, Wait> {
        match request.method {
            Method::Get | Method::Head | Method::Options => {}
            Method::Other => return Ok(self.refuse(Refusal::Method, request, "", out)),
        }
        let path = match path::decode(request.path, self.site.hidden) {
            Ok(path) => path,
            // Of the server as a whole, or of what is not there: nothing that rules say.
            Err(_) if request.method == Method::Options => {
                return Ok(self.options(&Policy::default(), request, out));
            }
            Err(refused) => return Ok(self.nowhere(refused, request, out)),
        };
        match self.cache.get(self.site, &path, self.tick) {
            Some(entry) if !entry.is_led => {
                let entry = Rc::clone(entry);
                if let Some(waited) = waited {
                    self.resume(waited);
                }
                self.pass(&entry, &path, request, out)
            }
            _ => self.seek(&path, request, waited, out),
        }
    }

    /// Takes in what came of waiting. Returns what was found.
    fn resume(&mut self, waited: Waited) -> Option<(Vec<u8>, Result<root::Found, root::Error>)> {
        match waited {
            Waited::Found(path, found) => return Some((path, found)),
            Waited::Tried(realm, verdict) => self.checked = Some((realm, verdict)),
            Waited::Coded => self.as_it_is = true,
        }
        None
    }

    /// The same of a path that is not in the cache, or that rules may lead elsewhere.
    fn seek(
        &mut self,
        path: &[u8],
        request: &Request<'_>,
        waited: Option<Waited>,
        out: &mut Vec<u8>,
    ) -> Result<Answer, Wait> {
        let found = waited.and_then(|waited| self.resume(waited));
        // Whoever may not have it is not told whether it is there.
        if let Some(gate) = self.site.gate(&[path])
            && let Some(refused) = self.judge(&gate, path, request, out)?
        {
            return Ok(refused);
        }
        let paths = match self.site.route(path, request.query) {
            Route::Straight => {
                let found = match found {
                    Some((_, Ok(found))) => Ok(found),
                    // It has been waited for, and is to be had no sooner.
                    Some((_, Err(error))) => return Ok(self.refused(error, path, request, out)),
                    None => {
                        if let Some(entry) = self.cache.get(self.site, path, self.tick).map(Rc::clone) {
                            return self.pass(&entry, path, request, out);
                        }
                        if self.postpones {
                            return Err(Wait::Find(path.to_vec()));
                        }
                        self.site.root.find(path, Patience::None)
                    }
                };
                return match found {
                    Ok(found) => {
                        let entry = self.cache.insert(self.site, path, found, (self.tick, self.now));
                        self.pass(&entry, path, request, out)
                    }
                    Err(error) => self.failed(error, Wait::Find(path.to_vec()), path, request, out),
                };
            }
            Route::First(paths) => paths,
            _ if request.method == Method::Options => {
                return Ok(self.options(&self.site.policy(path), request, out));
            }
            Route::Elsewhere { status, location } => {
                return Ok(self.elsewhere(status, &location, request, out));
            }
            Route::Nowhere(refused) => return Ok(self.nowhere(refused, request, out)),
        };
        if let Some((found_at, found)) = found {
            return match found {
                Ok(found) => {
                    let entry = self.cache.insert(self.site, &found_at, found, (self.tick, self.now));
                    self.pass(&entry, path, request, out)
                }
                Err(error) => Ok(self.refused(error, path, request, out)),
            };
        }
        for (at, candidate) in paths.iter().enumerate() {
            let entry = match self.cache.get(self.site, candidate, self.tick).map(Rc::clone) {
                Some(entry) => entry,
                None if self.postpones => {
                    return Err(Wait::First { paths: paths[at..].to_vec(), asked: path.to_vec() });
                }
                None => match self.site.root.find(candidate, Patience::None) {
                    Ok(found) => self.cache.insert(self.site, candidate, found, (self.tick, self.now)),
                    Err(root::Error::Missing) => continue,
                    Err(error) => {
                        let wait = Wait::First { paths: paths[at..].to_vec(), asked: path.to_vec() };
                        return self.failed(error, wait, path, request, out);
                    }
                },
            };
            let counts = match &entry.kind {
                Kind::File(..) => true,
                Kind::Directory => candidate == path,
                Kind::Listing => entry.policy.listing,
            };
            if counts {
                return self.pass(&entry, path, request, out);
            }
        }
        Ok(self.refused(root::Error::Missing, path, request, out))
    }

    /// The answer about an entry, for whom may have it. `path` is what was asked for.
    fn pass(
        &mut self,
        entry: &Entry,
        path: &[u8],
        request: &Request<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Answer, Wait> {
        if let Some(gate) = &entry.policy.gate
            && let Some(refused) = self.judge(gate, path, request, out)?
        {
            return Ok(refused);
        }
        self.entry(entry, path, request, out)
    }

    /// The refusal of a request for a path that does not pass; none where it does.
    fn judge(
        &self,
        gate: &Gate,
        path: &[u8],
        request: &Request<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Answer>, Wait> {
        // A preflight comes without anything to pass by (Fetch, section 4.8), and is told nothing of the file.
        if request.method == Method::Options {
            return Ok(None);
        }
        let mut tried = None;
        let judgement = gate.judge(request, path, self.now, |realm| {
            let checked = self.checked.as_ref().filter(|(known, _)| Arc::ptr_eq(known, realm));
            let verdict = match checked {
                Some((_, verdict)) => *verdict,
                None => match self.guard.look(realm, request.field("authorization"), self.client) {
                    guard::Answer::Right => Tried::Right,
                    guard::Answer::Wrong => Tried::Wrong,
                    guard::Answer::Try(this) => {
                        tried = Some(Err(Box::new(this)));
                        return false;
                    }
                },
            };
            tried = Some(Ok(verdict));
            verdict == Tried::Right
        });
        let (refusal, fields) = match (judgement, tried) {
            (Judgement::Passes, _) => return Ok(None),
            (Judgement::Refused(refusal), _) => (refusal, String::new()),
            (Judgement::Asks(_), Some(Err(this))) => return Err(Wait::Try(this)),
            (Judgement::Asks(_), Some(Ok(Tried::TooMany))) => (Refusal::Tries, String::new()),
            (Judgement::Asks(_), Some(Ok(Tried::Busy))) => (Refusal::Busy, String::new()),
            (Judgement::Asks(realm), _) => {
                let name = &realm.name;
                let fields = format!("www-authenticate: Basic realm=\"{name}\", charset=\"UTF-8\"\r\n");
                (Refusal::Unauthorized, fields)
            }
        };
        Ok(Some(self.refuse(refusal, request, &fields, out)))
    }

    /// What a lookup failed by is said, or waited for.
    fn failed(
        &mut self,
        error: root::Error,
        wait: Wait,
        path: &[u8],
        request: &Request<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Answer, Wait> {
        match error {
            root::Error::Cold => Err(wait),
            // Open files are what there are too many of: those that are kept can be opened again, and who may wait gets
            // one.
            root::Error::Exhausted => {
                self.cache.clear();
                Err(wait)
            }
            error => Ok(self.refused(error, path, request, out)),
        }
    }

    fn nowhere(&self, refused: Refused, request: &Request<'_>, out: &mut Vec<u8>) -> Answer {
        let refusal = match refused {
            Refused::Bad => Refusal::Path,
            Refused::Missing => Refusal::Missing,
        };
        self.refuse(refusal, request, "", out)
    }

    fn refused(
        &mut self,
        error: root::Error,
        path: &[u8],
        request: &Request<'_>,
        out: &mut Vec<u8>,
    ) -> Answer {
        if request.method == Method::Options {
            return self.options(&self.site.policy(path), request, out);
        }
        let refusal = match error {
            root::Error::Missing => Refusal::Missing,
            root::Error::Denied => Refusal::Denied,
            root::Error::Exhausted => Refusal::Exhausted,
            root::Error::Cold | root::Error::Failed(_) => {
                tracing::warn!(path = %String::from_utf8_lossy(path), %error, "cannot open a file");
                Refusal::Failed
            }
        };
        self.refuse(refusal, request, "", out)
    }

    /// Appends the head of a refusal and its body.
    pub fn refuse(&self, refusal: Refusal, request: &Request<'_>, fields: &str, out: &mut Vec<u8>) -> Answer {
        let html =
            request.fields.accept.is_some_and(|accept| memchr::memmem::find(accept, b"text/html").is_some());
        let head = request.method == Method::Head;
        let id = self.id.clone().unwrap_or_else(RequestId::generate);
        let written = self.site.pages.write(out, refusal, (fields, &id), self.tail(request), html, head);
        Answer { status: refusal.status(), payload: Payload::None, written, closes: self.closes(request) }
    }

    fn entry(
        &mut self,
        entry: &Entry,
        path: &[u8],
        request: &Request<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Answer, Wait> {
        if request.method == Method::Options {
            return Ok(self.options(&entry.policy, request, out));
        }
        Ok(match &entry.kind {
            Kind::File(plain, coded) => {
                let file_of = |coding: Coding| coded[coding as usize].as_ref();
                let coding = match coded {
                    [None, None, None] => None,
                    _ => {
                        encoding::choose(&request.fields.accept_encoding, |coding| file_of(coding).is_some())
                    }
                };
                match (coding.and_then(file_of), &entry.made) {
                    (Some(file), _) => self.file(entry, file, request, out),
                    (None, None) => self.file(entry, plain, request, out),
                    (None, Some(_)) => {
                        let made = self.made(entry, plain, request)?;
                        self.file(entry, made.as_ref().unwrap_or(plain), request, out)
                    }
                }
            }
            Kind::Directory => self.redirect(path, request, out),
            Kind::Listing if entry.policy.listing => self.listing(entry, path, request, out),
            Kind::Listing => self.refuse(Refusal::Missing, request, "", out),
        })
    }

    /// The coding that is made of a file for whom wants one; none where it is sent as it is.
    fn made(&self, entry: &Entry, plain: &Rc<File>, request: &Request<'_>) -> Result<Option<Rc<File>>, Wait> {
        let Some(coding) = encoding::choose(&request.fields.accept_encoding, |_| true) else {
            return Ok(None);
        };
        let Some(made) = entry.made.as_ref().map(|made| &made[coding as usize]) else { return Ok(None) };
        if let Some((variant, file)) = &*made.borrow()
            && variant.is_kept()
        {
            return Ok(Some(Rc::clone(file)));
        }
        match self.variants.get(&plain.identity, coding) {
            Stock::Variant(variant) => {
                let file = Rc::new(plain.variant(&variant, coding, &entry.policy, &self.site.charset));
                made.replace(Some((variant, Rc::clone(&file))));
                Ok(Some(file))
            }
            Stock::Useless => Ok(None),
            // It may yet change within the same time.
            Stock::None if self.as_it_is || !plain.is_settled(self.now) => Ok(None),
            Stock::None => Err(Wait::Code { fd: Arc::clone(&plain.fd), identity: plain.identity, coding }),
        }
    }

    fn file(&mut self, entry: &Entry, file: &Rc<File>, request: &Request<'_>, out: &mut Vec<u8>) -> Answer {
        let fields = &request.fields;
        match conditional::evaluate(fields, file.validators()) {
            Verdict::Proceed => {}
            Verdict::NotModified => {
                out.extend_from_slice(&file.not_modified);
                allow_origin(entry, request, out);
                return self.end(304, request, Payload::None, out);
            }
            Verdict::Failed => return self.refuse(Refusal::Precondition, request, "", out),
        }
        let size = file.identity.size;
        // Ranges are defined for GET alone (RFC 9110, section 14.2).
        let ranged = fields.range.filter(|_| {
            request.method == Method::Get
                && conditional::range_applies(fields.if_range, file.validators(), self.now)
        });
        match ranged.map_or(Wanted::Whole, |value| range::parse(value, size)) {
            Wanted::Whole => {
                out.extend_from_slice(&file.ok);
                allow_origin(entry, request, out);
                if request.method == Method::Head || size == 0 {
                    return self.end(200, request, Payload::None, out);
                }
                if size <= self.memory_max {
                    self.cache.keep_bytes(file, self.now);
                }
                let watched = entry.is_watched();
                self.end(200, request, Payload::File { file: Rc::clone(file), range: 0..size, watched }, out)
            }
            Wanted::One(range) => {
                let (last, length) = (range.end - 1, range.end - range.start);
                let described = format!(
                    "HTTP/1.1 206 Partial Content\r\n{}content-length: {length}\r\ncontent-range: bytes {}-{last}/{size}\r\n{}",
                    file.kind(),
                    range.start,
                    file.fields()
                );
                out.extend_from_slice(described.as_bytes());
                allow_origin(entry, request, out);
                let watched = entry.is_watched();
                self.end(206, request, Payload::File { file: Rc::clone(file), range, watched }, out)
            }
            Wanted::Many(ranges) => {
                let parts = Parts::new(Rc::clone(file), ranges);
                let described = format!(
                    "HTTP/1.1 206 Partial Content\r\ncontent-type: multipart/byteranges; boundary={}\r\n\
                     content-length: {}\r\n{}",
                    parts.boundary(),
                    parts.length(),
                    file.fields()
                );
                out.extend_from_slice(described.as_bytes());
                allow_origin(entry, request, out);
                self.end(206, request, Payload::Parts(Box::new(parts)), out)
            }
            Wanted::Unsatisfiable => {
                let size = format!("content-range: bytes */{size}\r\n");
                self.refuse(Refusal::Range, request, &size, out)
            }
        }
    }

    fn listing(&mut self, entry: &Entry, path: &[u8], request: &Request<'_>, out: &mut Vec<u8>) -> Answer {
        let query = request.query.unwrap_or_default();
        let is_signed = entry.policy.gate.as_ref().is_some_and(|gate| gate.is_signed());
        let query = if is_signed { Cow::Owned(unsigned(query)) } else { Cow::Borrowed(query) };
        let Some(order) = Order::parse(&query) else {
            return self.refuse(Refusal::Query, request, "", out);
        };
        let json = order.json.unwrap_or_else(|| {
            let accept = request.fields.accept.unwrap_or_default();
            memchr::memmem::find(accept, b"application/json").is_some()
                && memchr::memmem::find(accept, b"text/html").is_none()
        });
        let kind = if json { "application/json" } else { "text/html; charset=utf-8" };
        // Where chunks are not known the end of the connection is the end of the listing.
        let chunked = if request.old { "" } else { "transfer-encoding: chunked\r\n" };
        let described = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\n{chunked}vary: accept\r\nx-content-type-options: nosniff\r\n{}",
            without(&entry.policy.fields, "x-content-type-options: ")
        );
        out.extend_from_slice(described.as_bytes());
        allow_origin(entry, request, out);
        let payload = match request.method {
            Method::Head => Payload::None,
            _ => Payload::Listing(Box::new(listing::Request {
                path: path.to_vec(),
                order,
                json,
                hidden: self.site.hidden,
                chunked: !request.old,
            })),
        };
        self.last |= request.old;
        self.end(200, request, payload, out)
    }

    /// What can be done with a path; for scripts of other origins, whether they may (Fetch, section 3.2).
    fn options(&self, policy: &Policy, request: &Request<'_>, out: &mut Vec<u8>) -> Answer {
        out.extend_from_slice(b"HTTP/1.1 204 No Content\r\nallow: GET, HEAD, OPTIONS\r\n");
        let origin = request.fields.origin;
        let allowed = match &policy.cors {
            Cors::Same => None,
            Cors::Any => Some(&b"*"[..]),
            Cors::Listed(listed) => {
                origin.filter(|origin| listed.iter().any(|known| known.as_bytes() == *origin))
            }
        };
        if policy.cors != Cors::Same {
            out.extend_from_slice(
                b"vary: origin, access-control-request-method, access-control-request-headers\r\n",
            );
        }
        if let (Some(origin), Some(_)) = (allowed, request.fields.preflight) {
            out.extend_from_slice(b"access-control-allow-origin: ");
            out.extend_from_slice(origin);
            let rest = format!(
                "\r\naccess-control-allow-methods: GET, HEAD, OPTIONS\r\naccess-control-allow-headers: range, \
                 if-match, if-none-match, if-modified-since, if-unmodified-since, if-range\r\n\
                 access-control-max-age: {PREFLIGHT_MAX_AGE}\r\n"
            );
            out.extend_from_slice(rest.as_bytes());
        }
        self.end(204, request, Payload::None, out)
    }

    /// A directory is asked for with its final slash, or the links in its index would lead elsewhere.
    fn redirect(&self, path: &[u8], request: &Request<'_>, out: &mut Vec<u8>) -> Answer {
        let query = request.query.map_or(String::new(), |query| format!("?{query}"));
        let location = percent_encode(path, ESCAPED);
        self.elsewhere(301, &format!("/{location}/{query}"), request, out)
    }

    /// The client is to ask elsewhere.
    fn elsewhere(&self, status: u16, location: &str, request: &Request<'_>, out: &mut Vec<u8>) -> Answer {
        let phrase = phrase(status);
        let described =
            format!("HTTP/1.1 {status} {phrase}\r\nlocation: {location}\r\ncontent-length: 0\r\n");
        out.extend_from_slice(described.as_bytes());
        self.end(status, request, Payload::None, out)
    }

    /// Ends a head.
    fn end(&self, status: u16, request: &Request<'_>, payload: Payload, out: &mut Vec<u8>) -> Answer {
        out.extend_from_slice(self.more);
        out.extend_from_slice(self.tail(request));
        Answer { status, payload, written: 0, closes: self.closes(request) }
    }

    fn tail(&self, request: &Request<'_>) -> &[u8] {
        match (self.closes(request), request.old) {
            (true, _) => &self.tail.close,
            (false, true) => &self.tail.old,
            (false, false) => &self.tail.keep,
        }
    }

    fn closes(&self, request: &Request<'_>) -> bool {
        self.last || !request.keep
    }
}

/// Names the origin that asks, where it is one of those that may read the answer.
fn allow_origin(entry: &Entry, request: &Request<'_>, out: &mut Vec<u8>) {
    let (Cors::Listed(listed), Some(origin)) = (&entry.policy.cors, request.fields.origin) else { return };
    if listed.iter().any(|known| known.as_bytes() == origin) {
        out.extend_from_slice(b"access-control-allow-origin: ");
        out.extend_from_slice(origin);
        out.extend_from_slice(b"\r\n");
    }
}

/// `fields` without the one that starts so.
fn without(fields: &str, start: &str) -> String {
    fields.split_inclusive("\r\n").filter(|line| !line.starts_with(start)).collect()
}
