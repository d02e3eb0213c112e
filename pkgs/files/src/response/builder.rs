//! Turns a request into an answer: the head as bytes, and what follows it.
//!
//! No I/O happens here, except look-ups in the cache and, for a file that is not in it, one look-up that does not wait
//! for the disk.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use percent_encoding::percent_encode;
use service::request_id::RequestId;

use super::built::{BuiltResponse, Payload};
use super::common_headers::CommonHeaders;
use super::pending::{PendingWork, WorkOutcome};
use crate::archive::plan::{ArchivePlan, PlanError};
use crate::auth::{self, Authenticator, PasswordVerdict};
use crate::cache::open_files::{CacheEntry, EntryKind, OpenFileCache};
use crate::http::head::{Method, Request};
use crate::http::path::{self, ESCAPED, PathError};
use crate::http::status::phrase;
use crate::site::Site;
use crate::site::access::{AccessControl, AccessDecision};
use crate::site::errors::HttpError;
use crate::site::root::{self, CodingLookup, LookupMode};
use crate::site::route::Route;
use crate::site::rules::{Cors, Policy};
use crate::site::secrets::Realm;
use crate::variants::VariantCache;

/// How long a preflight may be kept, in seconds: what browsers cap it at.
const PREFLIGHT_MAX_AGE: u32 = 7200;

/// The inputs of an answer.
pub struct ResponseBuilder<'w> {
    /// What is served.
    pub site: &'w Arc<Site>,
    /// What is open.
    pub cache: &'w mut OpenFileCache,
    /// The present, in ticks.
    pub tick: u32,
    /// The present.
    pub now: SystemTime,
    /// The longest file whose bytes are kept in memory.
    pub memory_max: u64,
    /// What heads end with.
    pub tail: &'w CommonHeaders,
    /// Further lines of heads.
    pub more: &'w [u8],
    /// The request's id, where it has one.
    pub id: Option<RequestId>,
    /// Whether what is not open is [`PendingWork`], without a look at whether it is in memory.
    pub defers_lookups: bool,
    /// Whether the connection ends with this answer, whatever the request says.
    pub last: bool,
    /// What is known of passwords.
    pub auth: &'w Authenticator,
    /// Codings that were made of files.
    pub variants: &'w VariantCache,
    /// Whether a file is sent as it is where there is no coding of it yet.
    pub unencoded: bool,
    /// Where the client is.
    pub client: Option<IpAddr>,
    /// Since when what it had to wait for is waited for.
    pub waiting_since: Option<Instant>,
    /// When it began, where a rule may have it say how long it took.
    pub began: Option<Instant>,
    /// Whether it says so.
    pub is_timed: bool,
    /// Whether what it is about was not open.
    pub missed: bool,
    /// What is in the archive that is asked for.
    pub planned: Option<Result<Box<ArchivePlan>, PlanError>>,
    /// What became of the password in the request, and where.
    pub checked: Option<(Arc<Realm>, PasswordVerdict)>,
}

impl ResponseBuilder<'_> {
    /// Appends the head of the answer to `request`; `outcome` is what came of what it had to wait for.
    ///
    /// # Errors
    /// What it has to wait for, with nothing appended.
    pub fn answer(
        &mut self,
        request: &Request<'_>,
        outcome: Option<WorkOutcome>,
        out: &mut Vec<u8>,
    ) -> Result<BuiltResponse, PendingWork> {
        match request.method {
            Method::Get | Method::Head | Method::Options => {}
            Method::Other => return Ok(self.refuse(HttpError::Method, request, "", out)),
        }
        let path = match path::decode(request.path, self.site.hidden) {
            Ok(path) => path,
            // Of the server as a whole, or of what is not there: nothing that rules say.
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

    /// Takes in what came of waiting. Returns what was found.
    fn resume(&mut self, outcome: WorkOutcome) -> Option<(Vec<u8>, Result<root::Found, root::Error>)> {
        match outcome {
            WorkOutcome::Found(path, found) => return Some((path, found)),
            WorkOutcome::Password(realm, verdict) => self.checked = Some((realm, verdict)),
            WorkOutcome::Encoded => self.unencoded = true,
            WorkOutcome::Archive(planned) => self.planned = Some(planned),
        }
        None
    }

    /// The same of a path that is not in the cache, or that rules may lead elsewhere.
    fn look_up(
        &mut self,
        path: &[u8],
        request: &Request<'_>,
        outcome: Option<WorkOutcome>,
        out: &mut Vec<u8>,
    ) -> Result<BuiltResponse, PendingWork> {
        let found = outcome.and_then(|outcome| self.resume(outcome));
        // Whoever may not have it is not told whether it is there.
        if let Some(access) = self.site.access_to(&[path])
            && let Some(refused) = self.check_access(&access, path, request, out)?
        {
            return Ok(refused);
        }
        let paths = match self.site.route(path, request.query) {
            Route::Direct => {
                let found = match found {
                    Some((_, Ok(found))) => Ok(found),
                    // It has been waited for, and is to be had no sooner.
                    Some((_, Err(error))) => return Ok(self.refused(error, path, request, out)),
                    None => {
                        if let Some(entry) = self.cache.get(self.site, path, self.tick).map(Rc::clone) {
                            return self.answer_entry(&entry, path, request, out);
                        }
                        let codings = self.cache.codings_of(self.site, path, self.tick);
                        if self.defers_lookups {
                            return Err(PendingWork::Lookup(path.to_vec(), codings));
                        }
                        self.site.find(path, LookupMode::CachedOnly, codings)
                    }
                };
                return match found {
                    Ok(found) => {
                        self.missed = true;
                        let entry = self.cache.insert(self.site, path, found, (self.tick, self.now));
                        self.answer_entry(&entry, path, request, out)
                    }
                    Err(error) => {
                        let codings = self.cache.codings_of(self.site, path, self.tick);
                        self.failed(error, PendingWork::Lookup(path.to_vec(), codings), path, request, out)
                    }
                };
            }
            Route::TryFiles(paths) => paths,
            _ if request.method == Method::Options => {
                return Ok(self.options(&self.site.policy(path), request, out));
            }
            Route::Redirected { status, location } => {
                return Ok(self.redirect_to(status, &location, request, out));
            }
            Route::Rejected(refused) => return Ok(self.refuse_path(refused, request, out)),
        };
        if let Some((found_at, found)) = found {
            return match found {
                Ok(found) => {
                    self.missed = true;
                    let entry = self.cache.insert(self.site, &found_at, found, (self.tick, self.now));
                    self.answer_entry(&entry, path, request, out)
                }
                Err(error) => Ok(self.refused(error, path, request, out)),
            };
        }
        for (at, candidate) in paths.iter().enumerate() {
            let entry = match self.cache.get(self.site, candidate, self.tick).map(Rc::clone) {
                Some(entry) => entry,
                None if self.defers_lookups => {
                    return Err(PendingWork::LookupFirst {
                        paths: paths[at..].to_vec(),
                        asked: path.to_vec(),
                    });
                }
                None => match self.site.find(candidate, LookupMode::CachedOnly, CodingLookup::Wanted) {
                    Ok(found) => {
                        self.missed = true;
                        self.cache.insert(self.site, candidate, found, (self.tick, self.now))
                    }
                    Err(root::Error::Missing) => continue,
                    Err(error) => {
                        let wait =
                            PendingWork::LookupFirst { paths: paths[at..].to_vec(), asked: path.to_vec() };
                        return self.failed(error, wait, path, request, out);
                    }
                },
            };
            let counts = match &entry.kind {
                EntryKind::File(..) => true,
                EntryKind::Directory => candidate == path,
                EntryKind::Listing => entry.policy.listing,
            };
            if counts {
                return self.answer_entry(&entry, path, request, out);
            }
        }
        Ok(self.refused(root::Error::Missing, path, request, out))
    }

    /// The answer about an entry, for whom may have it. `path` is what was asked for.
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

    /// The refusal of a request for a path that does not pass; none where it does.
    fn check_access(
        &self,
        access: &AccessControl,
        path: &[u8],
        request: &Request<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<BuiltResponse>, PendingWork> {
        // A preflight comes without anything to pass by (Fetch, section 4.8), and is told nothing of the file.
        if request.method == Method::Options {
            return Ok(None);
        }
        let mut tried = None;
        let decision = access.decide(request, path, self.now, |realm| {
            let checked = self.checked.as_ref().filter(|(known, _)| Arc::ptr_eq(known, realm));
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

    /// What a lookup failed by is said, or waited for.
    fn failed(
        &mut self,
        error: root::Error,
        wait: PendingWork,
        path: &[u8],
        request: &Request<'_>,
        out: &mut Vec<u8>,
    ) -> Result<BuiltResponse, PendingWork> {
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

    fn refuse_path(&self, refused: PathError, request: &Request<'_>, out: &mut Vec<u8>) -> BuiltResponse {
        let refusal = match refused {
            PathError::Bad => HttpError::Path,
            PathError::Missing => HttpError::Missing,
        };
        self.refuse(refusal, request, "", out)
    }

    fn refused(
        &mut self,
        error: root::Error,
        path: &[u8],
        request: &Request<'_>,
        out: &mut Vec<u8>,
    ) -> BuiltResponse {
        if request.method == Method::Options {
            return self.options(&self.site.policy(path), request, out);
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
        self.refuse(refusal, request, "", out)
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

    /// What can be done with a path; for scripts of other origins, whether they may (Fetch, section 3.2).
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

    /// A directory is asked for with its final slash, or the links in its index would lead elsewhere.
    pub(super) fn redirect(&self, path: &[u8], request: &Request<'_>, out: &mut Vec<u8>) -> BuiltResponse {
        let query = request.query.map_or(String::new(), |query| format!("?{query}"));
        let location = percent_encode(path, ESCAPED);
        self.redirect_to(301, &format!("/{location}/{query}"), request, out)
    }

    /// The client is to ask elsewhere.
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
        out.extend_from_slice(self.more);
        out.extend_from_slice(self.tail(request));
        BuiltResponse { status, payload, written: 0, closes: self.closes(request) }
    }

    /// The field that says how long it took until here, in milliseconds (Server Timing, W3C), and what of that was waiting
    /// for the disk or another thread.
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
