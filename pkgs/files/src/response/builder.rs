//! Turns a request into an answer: the head as bytes, and what follows it.
//!
//! There is no I/O here, except look-ups in the cache and, for a file that isn't in it, one look-up that doesn't wait
//! for the disk.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use percent_encoding::percent_encode;
use service::request_id::RequestId;

use super::built::{BuiltResponse, Payload};
use super::common_headers::CommonHeaders;
use super::pending::{PendingWork, Resumed, WorkOutcome};
use crate::archive::plan::{ArchivePlan, PlanError};
use crate::auth::{self, Authenticator, PasswordVerdict};
use crate::cache::open_files::{CacheEntry, EntryKind, OpenFileCache};
use crate::http::head::{Method, Request};
use crate::http::path::{self, ESCAPED, PathError};
use crate::http::status::phrase;
use crate::site::Site;
use crate::site::access::{AccessControl, AccessDecision};
use crate::site::errors::HttpError;
use crate::site::lookup::{Candidates, Choice, Lookup, Named};
use crate::site::root::{self, DirectoryHint, LookupMode};
use crate::site::route::Route;
use crate::site::rules::{Cors, Policy};
use crate::variants::VariantCache;

/// How long a preflight may be cached, in seconds; browsers don't cache it any longer.
const PREFLIGHT_MAX_AGE: u32 = 7200;

/// The inputs of an answer.
pub struct ResponseBuilder<'w> {
    /// What is served.
    pub site: &'w Arc<Site>,
    /// The open files.
    pub cache: &'w mut OpenFileCache,
    /// The current time in ticks.
    pub tick: u32,
    /// The current time.
    pub now: SystemTime,
    /// The longest file whose bytes are kept in memory.
    pub memory_max: u64,
    /// The end of heads.
    pub tail: &'w CommonHeaders,
    /// Further lines for heads.
    pub more: &'w [u8],
    /// The request's id, if it has one.
    pub id: Option<RequestId>,
    /// Whether anything that isn't open becomes [`PendingWork`] without checking if it is in memory.
    pub defers_lookups: bool,
    /// Whether the connection ends with this answer, whatever the request says.
    pub last: bool,
    /// What is known about passwords.
    pub auth: &'w Authenticator,
    /// Encodings that were made of files.
    pub variants: &'w VariantCache,
    /// The client's address.
    pub client: Option<IpAddr>,
    /// Since when the request has been waiting.
    pub waiting_since: Option<Instant>,
    /// When the request began, if a rule may want its duration in the answer.
    pub began: Option<Instant>,
    /// Whether the answer says how long it took.
    pub is_timed: bool,
    /// Whether the file wasn't open.
    pub missed: bool,
    /// The content of the requested archive.
    pub planned: Option<Result<Box<ArchivePlan>, PlanError>>,
    /// The results of earlier waits of the request, for the next builder if it has to wait again.
    pub resumed: Resumed,
    /// Headers about access for the answer, with their line ends, which those of what is sent lack.
    pub access_fields: &'static str,
}

impl<'w> ResponseBuilder<'w> {
    /// A builder of answers for `site` at a time, in ticks and as the clock has it. It keeps no bytes in memory, and
    /// nothing is known about the request.
    #[inline]
    pub fn new(
        site: &'w Arc<Site>,
        cache: &'w mut OpenFileCache,
        (tick, now): (u32, SystemTime),
        tail: &'w CommonHeaders,
        auth: &'w Authenticator,
        variants: &'w VariantCache,
    ) -> Self {
        Self {
            site,
            cache,
            tick,
            now,
            memory_max: 0,
            tail,
            more: b"",
            id: None,
            defers_lookups: false,
            last: false,
            auth,
            variants,
            client: None,
            waiting_since: None,
            began: site.has_server_timing().then(Instant::now),
            is_timed: false,
            missed: false,
            planned: None,
            resumed: Resumed::default(),
            access_fields: "",
        }
    }

    /// Appends the head of the answer to `request`; `outcome` is the result of what it waited for, and the site that
    /// the result is about.
    ///
    /// # Errors
    /// What it has to wait for, with nothing appended.
    pub fn answer(
        &mut self,
        request: &Request<'_>,
        outcome: Option<(WorkOutcome, Arc<Site>)>,
        out: &mut Vec<u8>,
    ) -> Result<BuiltResponse, PendingWork> {
        // If the site was replaced meanwhile, its result says nothing about the new one.
        let outcome = outcome.filter(|(_, of)| Arc::ptr_eq(of, self.site)).map(|(outcome, _)| outcome);
        match request.method {
            Method::Get | Method::Head | Method::Options => {}
            Method::Other => return Ok(self.refuse(HttpError::Method, request, "", out)),
        }
        let path = match path::decode(request.path, self.site.hidden) {
            Ok(path) => path,
            // For the server as a whole or something that doesn't exist, no rules apply.
            Err(_) if request.method == Method::Options => {
                return Ok(self.options(&Policy::default(), request, out));
            }
            Err(refused) => return Ok(self.refuse_path(refused, request, out)),
        };
        match self.cache.get(self.site, &path, self.tick) {
            Some(entry) if !entry.is_routed => {
                let entry = Rc::clone(entry);
                if let Some(outcome) = outcome {
                    self.resume(outcome);
                }
                self.answer_entry(&entry, &path, request, out)
            }
            _ => self.look_up(&path, request, outcome, out),
        }
    }

    /// Appends the head of an answer about an open file. The file has at most `most` bytes, everybody may have it, and
    /// nothing has to be waited for. Otherwise returns none, with nothing appended.
    pub fn answer_open(
        &mut self,
        request: &Request<'_>,
        most: u64,
        out: &mut Vec<u8>,
    ) -> Option<BuiltResponse> {
        let path = path::decode(request.path, self.site.hidden).ok()?;
        let entry = self.cache.get(self.site, &path, self.tick).filter(|entry| !entry.is_routed)?;
        let is_small = matches!(&entry.kind, EntryKind::File(file, _) if file.identity.size <= most);
        if !is_small || entry.policy.access.is_some() {
            return None;
        }
        let entry = Rc::clone(entry);
        self.answer_entry(&entry, &path, request, out).ok()
    }

    /// Takes the result of waiting, and returns what was found.
    fn resume(&mut self, outcome: WorkOutcome) -> Option<(Vec<u8>, Result<root::Found, root::Error>)> {
        match outcome {
            WorkOutcome::Found(path, found) => return Some((path, found)),
            WorkOutcome::Password(realm, verdict) => self.resumed.checked = Some((realm, verdict)),
            WorkOutcome::Encoded => self.resumed.unencoded = true,
            WorkOutcome::Archive(planned) => self.planned = Some(planned),
        }
        None
    }

    /// The same for a path that isn't in the cache, or that rules may lead elsewhere.
    fn look_up(
        &mut self,
        path: &[u8],
        request: &Request<'_>,
        outcome: Option<WorkOutcome>,
        out: &mut Vec<u8>,
    ) -> Result<BuiltResponse, PendingWork> {
        let found = outcome.and_then(|outcome| self.resume(outcome));
        // Somebody who isn't allowed to have it isn't told whether it exists.
        let access = self.site.access_to(&[path]);
        if let Some(access) = &access
            && let Some(refused) = self.check_access(access, path, request, out)?
        {
            return Ok(refused);
        }
        let paths = match self.site.route(path, request.query) {
            Route::Direct => {
                let found = match found {
                    Some((_, Ok(found))) => Ok(found),
                    // It has already waited, and won't get it any sooner.
                    Some((_, Err(error))) => return self.refused(error, (path, &[]), request, out),
                    None => {
                        if let Some(entry) = self.known(path) {
                            return self.answer_entry(&entry, path, request, out);
                        }
                        let hint = self.cache.hint_of(self.site, path, self.tick);
                        // A further wait would lose the plan of an archive that it has waited for.
                        if self.defers_lookups && self.planned.is_none() {
                            return Err(PendingWork::Lookup(Lookup::One(path.to_vec(), hint)));
                        }
                        self.site.find(path, LookupMode::CachedOnly, hint)
                    }
                };
                return match found {
                    Ok(found) => {
                        self.missed = true;
                        let entry = self.cache.insert(self.site, path, found, (self.tick, self.now));
                        self.answer_entry(&entry, path, request, out)
                    }
                    Err(error) => {
                        let hint = self.cache.hint_of(self.site, path, self.tick);
                        self.failed(error, Lookup::One(path.to_vec(), hint), (path, &[]), request, out)
                    }
                };
            }
            Route::TryFiles(paths) => paths,
            _ if request.method == Method::Options => {
                return Ok(self.options(&self.site.policy(path), request, out));
            }
            Route::Redirected { status, location } => {
                self.access_fields = access.map_or("", |access| access.fields_beside(""));
                return Ok(self.redirect_to(status, &location, request, out));
            }
            Route::Rejected(refused) => return Ok(self.refuse_path(refused, request, out)),
        };
        // What is sent need not be protected, but a cache would send it to others for this path.
        let fields_of = |entry: &CacheEntry| {
            access.as_ref().map_or("", |access| access.fields_beside(&entry.policy.fields))
        };
        if let Some((found_at, found)) = found {
            return match found {
                Ok(found) => {
                    self.missed = true;
                    let entry = self.cache.insert(self.site, &found_at, found, (self.tick, self.now));
                    self.access_fields = fields_of(&entry);
                    self.answer_entry(&entry, path, request, out)
                }
                Err(error) => self.refused(error, (path, &paths), request, out),
            };
        }
        let mut candidates = Candidates::new(&paths, path);
        let mut kept: Option<(usize, Rc<CacheEntry>)> = None;
        for (at, candidate) in paths.iter().enumerate() {
            if candidates.is_over(at) {
                break;
            }
            // What was kept is looked up again, since it is the answer if nothing after it is.
            let from = kept.as_ref().map_or(at, |(at, _)| *at);
            let rest = || Lookup::First { paths: paths[from..].to_vec(), asked: path.to_vec() };
            let entry = match self.known(candidate) {
                Some(entry) => entry,
                // As above.
                None if self.defers_lookups && self.planned.is_none() => {
                    return Err(PendingWork::Lookup(rest()));
                }
                None => match self.site.find(candidate, LookupMode::CachedOnly, DirectoryHint::Unknown) {
                    Ok(found) => {
                        self.missed = true;
                        self.cache.insert(self.site, candidate, found, (self.tick, self.now))
                    }
                    Err(root::Error::Missing) => continue,
                    Err(error) => return self.failed(error, rest(), (path, &paths), request, out),
                },
            };
            let named = match &entry.kind {
                EntryKind::File(..) => Named::Answer,
                EntryKind::Directory => Named::Directory,
                EntryKind::Listing(_) if entry.policy.listing => Named::Answer,
                EntryKind::Listing(_) => Named::Nothing,
            };
            match candidates.choose(at, named) {
                Choice::Answer => {
                    self.access_fields = fields_of(&entry);
                    return self.answer_entry(&entry, path, request, out);
                }
                Choice::Keep => kept = Some((at, entry)),
                Choice::Kept => break,
                Choice::Next => {}
            }
        }
        match kept {
            Some((_, entry)) => self.answer_entry(&entry, path, request, out),
            None => self.refused(root::Error::Missing, (path, &paths), request, out),
        }
    }

    /// What is known about a path without a look-up.
    fn known(&self, path: &[u8]) -> Option<Rc<CacheEntry>> {
        let entry = match self.planned {
            None => self.cache.get(self.site, path, self.tick),
            // Planning may take longer than an entry counts, and a look-up may have to wait: tmpfs does not remember
            // that a directory has no index.
            Some(_) => self.cache.last(self.site, path),
        };
        entry.map(Rc::clone)
    }

    /// The answer about an entry, for clients that are allowed to have it. `path` is the requested path.
    fn answer_entry(
        &mut self,
        entry: &CacheEntry,
        path: &[u8],
        request: &Request<'_>,
        out: &mut Vec<u8>,
    ) -> Result<BuiltResponse, PendingWork> {
        if let Some(access) = &entry.policy.access
            && let Some(refused) = self.check_access(access, path, request, out)?
        {
            return Ok(refused);
        }
        self.is_timed = entry.policy.server_timing;
        if let Some(answer) = self.archive(entry, path, request, out)? {
            return Ok(answer);
        }
        self.entry(entry, path, request, out)
    }

    /// The refusal of a request that isn't allowed; none if it is.
    fn check_access(
        &self,
        access: &AccessControl,
        path: &[u8],
        request: &Request<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<BuiltResponse>, PendingWork> {
        // A preflight comes without credentials (Fetch, section 4.8), and is told nothing about the file.
        if request.method == Method::Options {
            return Ok(None);
        }
        let mut tried = None;
        let decision = access.decide(request, path, self.now, |realm| {
            let checked = self.resumed.checked.as_ref().filter(|(known, _)| Arc::ptr_eq(known, realm));
            let verdict = match checked {
                Some((_, verdict)) => *verdict,
                None => match self.auth.check(realm, request.field("authorization"), self.client) {
                    auth::CredentialCheck::Accepted => PasswordVerdict::Accepted,
                    auth::CredentialCheck::Rejected => PasswordVerdict::Rejected,
                    auth::CredentialCheck::Verify(this) => {
                        tried = Some(Err(Box::new(this)));
                        return false;
                    }
                },
            };
            tried = Some(Ok(verdict));
            verdict == PasswordVerdict::Accepted
        });
        let (refusal, fields) = match (decision, tried) {
            (AccessDecision::Allowed, _) => return Ok(None),
            (AccessDecision::Refused(refusal), _) => (refusal, String::new()),
            (AccessDecision::NeedsPassword(_), Some(Err(this))) => return Err(PendingWork::Password(this)),
            (AccessDecision::NeedsPassword(_), Some(Ok(PasswordVerdict::TooMany { seconds }))) => {
                (HttpError::Tries, format!("retry-after: {seconds}\r\n"))
            }
            (AccessDecision::NeedsPassword(_), Some(Ok(PasswordVerdict::Busy))) => {
                (HttpError::Busy, String::new())
            }
            (AccessDecision::NeedsPassword(realm), _) => {
                let name = &realm.name;
                let fields = format!("www-authenticate: Basic realm=\"{name}\", charset=\"UTF-8\"\r\n");
                (HttpError::Unauthorized, fields)
            }
        };
        Ok(Some(self.refuse(refusal, request, &fields, out)))
    }

    /// Answers a failed look-up, or makes the request wait. `path` is the requested path, and `led` are those that
    /// rules led it to.
    fn failed(
        &mut self,
        error: root::Error,
        lookup: Lookup,
        (path, led): (&[u8], &[Vec<u8>]),
        request: &Request<'_>,
        out: &mut Vec<u8>,
    ) -> Result<BuiltResponse, PendingWork> {
        match error {
            root::Error::Cold => Err(PendingWork::Lookup(lookup)),
            // There are too many open files: those in the cache can be opened again, so a request that may wait will
            // get one.
            root::Error::Exhausted => {
                self.cache.clear();
                Err(PendingWork::Lookup(lookup))
            }
            error => self.refused(error, (path, led), request, out),
        }
    }

    fn refuse_path(&self, refused: PathError, request: &Request<'_>, out: &mut Vec<u8>) -> BuiltResponse {
        let refusal = match refused {
            PathError::Bad => HttpError::Path,
            PathError::Missing => HttpError::Missing,
        };
        self.refuse(refusal, request, "", out)
    }

    /// Answers a failed look-up, as above.
    fn refused(
        &mut self,
        error: root::Error,
        (path, led): (&[u8], &[Vec<u8>]),
        request: &Request<'_>,
        out: &mut Vec<u8>,
    ) -> Result<BuiltResponse, PendingWork> {
        if request.method == Method::Options {
            return Ok(self.options(&self.site.policy(path), request, out));
        }
        // Somebody who isn't allowed to have what rules lead to isn't told that it doesn't exist either.
        for led in led {
            if let Some(access) = self.site.access_to(&[led.as_slice()])
                && let Some(refused) = self.check_access(&access, path, request, out)?
            {
                return Ok(refused);
            }
        }
        let refusal = match error {
            root::Error::Missing => HttpError::Missing,
            root::Error::Denied => HttpError::Denied,
            root::Error::Exhausted => HttpError::Exhausted,
            root::Error::OriginFailed => HttpError::OriginFailed,
            root::Error::OriginSlow => HttpError::OriginSlow,
            root::Error::Cold | root::Error::Failed(_) => {
                tracing::warn!(path = %String::from_utf8_lossy(path), %error, "cannot open a file");
                HttpError::Failed
            }
        };
        Ok(self.refuse(refusal, request, "", out))
    }

    /// Appends the head of a refusal and its body.
    pub fn refuse(
        &self,
        refusal: HttpError,
        request: &Request<'_>,
        fields: &str,
        out: &mut Vec<u8>,
    ) -> BuiltResponse {
        let html =
            request.fields.accept.is_some_and(|accept| memchr::memmem::find(accept, b"text/html").is_some());
        let head = request.method == Method::Head;
        let id = self.id.clone().unwrap_or_else(RequestId::generate);
        let written = self.site.pages.write(out, refusal, (fields, &id), self.tail(request), html, head);
        BuiltResponse {
            status: refusal.status(),
            payload: Payload::None,
            written,
            closes: self.closes(request),
        }
    }

    /// The methods for a path and, for scripts from other origins, whether they are permitted (Fetch, section 3.2).
    pub(super) fn options(&self, policy: &Policy, request: &Request<'_>, out: &mut Vec<u8>) -> BuiltResponse {
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

    /// A directory has to be requested with its final slash, or the links in its index would lead elsewhere.
    pub(super) fn redirect(&self, path: &[u8], request: &Request<'_>, out: &mut Vec<u8>) -> BuiltResponse {
        let query = request.query.map_or(String::new(), |query| format!("?{query}"));
        let location = percent_encode(path, ESCAPED);
        self.redirect_to(301, &format!("/{location}/{query}"), request, out)
    }

    /// The client should ask elsewhere.
    fn redirect_to(
        &self,
        status: u16,
        location: &str,
        request: &Request<'_>,
        out: &mut Vec<u8>,
    ) -> BuiltResponse {
        let phrase = phrase(status);
        let described =
            format!("HTTP/1.1 {status} {phrase}\r\nlocation: {location}\r\ncontent-length: 0\r\n");
        out.extend_from_slice(described.as_bytes());
        self.end(status, request, Payload::None, out)
    }

    /// Ends a head.
    pub(super) fn end(
        &self,
        status: u16,
        request: &Request<'_>,
        payload: Payload,
        out: &mut Vec<u8>,
    ) -> BuiltResponse {
        if self.is_timed
            && let Some(timing) = self.server_timing()
        {
            out.extend_from_slice(timing.as_bytes());
        }
        out.extend_from_slice(self.access_fields.as_bytes());
        out.extend_from_slice(self.more);
        out.extend_from_slice(self.tail(request));
        BuiltResponse { status, payload, written: 0, closes: self.closes(request) }
    }

    /// The header that says how long it has taken so far, in milliseconds (Server Timing, W3C), and how much of that
    /// was waiting for the disk or another thread.
    fn server_timing(&self) -> Option<String> {
        let began = self.began?;
        let milliseconds = |time: Duration| time.as_secs_f64() * 1000.0;
        let waited = self.waiting_since.map(|since| began.duration_since(since));
        let cache = if self.missed || waited.is_some() { "miss" } else { "hit" };
        let total = milliseconds(waited.unwrap_or_default() + began.elapsed());
        let wait = waited.map_or(String::new(), |waited| format!("wait;dur={:.3}, ", milliseconds(waited)));
        Some(format!("server-timing: cache;desc={cache}, {wait}total;dur={total:.3}\r\n"))
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
