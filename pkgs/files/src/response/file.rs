//! Answers for things that exist: a file, ranges of it, or a directory.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use super::builder::ResponseBuilder;
use super::built::{BuiltResponse, Payload};
use super::multipart::MultipartRanges;
use super::pending::PendingWork;
use crate::cache::file::OpenFile;
use crate::cache::open_files::{CacheEntry, EntryKind};
use crate::http::conditional::{self, Precondition};
use crate::http::encoding::{self, Coding};
use crate::http::head::{Method, Request};
use crate::http::listing_query::ListingQuery;
use crate::http::range::{self, RequestedRange};
use crate::listing::request::ListingRequest;
use crate::listing::writer::ListingWriter;
use crate::site::errors::HttpError;
use crate::site::rules::{Cors, Policy};
use crate::site::signature::unsigned;
use crate::variants::VariantLookup;

/// How a line that says what caches may do begins.
const CACHE_CONTROL: &str = "cache-control: ";

impl ResponseBuilder<'_> {
    /// The answer about an entry, for clients that are allowed to have it. `path` is the requested path.
    pub(super) fn entry(
        &mut self,
        entry: &CacheEntry,
        path: &[u8],
        request: &Request<'_>,
        out: &mut Vec<u8>,
    ) -> Result<BuiltResponse, PendingWork> {
        if request.method == Method::Options {
            return Ok(self.options(&entry.policy, request, out));
        }
        Ok(match &entry.kind {
            EntryKind::File(plain, coded) => {
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
            EntryKind::Directory => {
                // It has no other fields of its rules.
                let access = entry.policy.access.as_ref();
                self.access_fields = access.map_or("", |access| access.fields_beside(""));
                self.redirect(path, request, out)
            }
            EntryKind::Listing(found) if entry.policy.listing => self.listing(entry, found, request, out),
            EntryKind::Listing(_) => self.refuse(HttpError::Missing, request, "", out),
        })
    }

    /// The encoding made of a file for clients that want one; none if the file is sent as it is.
    fn made(
        &self,
        entry: &CacheEntry,
        plain: &Rc<OpenFile>,
        request: &Request<'_>,
    ) -> Result<Option<Rc<OpenFile>>, PendingWork> {
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
            VariantLookup::Ready(variant) => {
                let file = Rc::new(plain.variant(&variant, coding, &entry.policy, &self.site.charset));
                made.replace(Some((variant, Rc::clone(&file))));
                Ok(Some(file))
            }
            VariantLookup::NotWorthIt => Ok(None),
            // It may still change within the same timestamp.
            VariantLookup::Absent if self.resumed.unencoded || !plain.is_settled(self.now) => Ok(None),
            VariantLookup::Absent => {
                Err(PendingWork::Encode { fd: Arc::clone(plain.fd()), identity: plain.identity, coding })
            }
        }
    }

    fn file(
        &mut self,
        entry: &CacheEntry,
        file: &Rc<OpenFile>,
        request: &Request<'_>,
        out: &mut Vec<u8>,
    ) -> BuiltResponse {
        let fields = &request.fields;
        match conditional::evaluate(fields, file.validators()) {
            Precondition::Proceed => {}
            Precondition::NotModified => {
                self.append(file.not_modified(), out);
                allow_origin(&entry.policy, request, out);
                return self.end(304, request, Payload::None, out);
            }
            Precondition::Failed => return self.refuse(HttpError::PreconditionFailed, request, "", out),
        }
        let size = file.identity.size;
        // Ranges are defined only for GET (RFC 9110, section 14.2).
        let ranged = fields.range.filter(|_| {
            request.method == Method::Get
                && conditional::range_applies(fields.if_range, file.validators(), self.now)
        });
        match ranged.map_or(RequestedRange::Whole, |value| range::parse(value, size)) {
            RequestedRange::Whole => {
                self.append(file.ok(), out);
                allow_origin(&entry.policy, request, out);
                if request.method == Method::Head || size == 0 {
                    return self.end(200, request, Payload::None, out);
                }
                if size <= self.memory_max {
                    self.cache.keep_bytes(file, self.now);
                }
                self.end(200, request, Payload::File { file: Rc::clone(file), range: 0..size }, out)
            }
            RequestedRange::One(range) => {
                let (last, length) = (range.end - 1, range.end - range.start);
                let described = format!(
                    "HTTP/1.1 206 Partial Content\r\n{}content-length: {length}\r\ncontent-range: bytes {}-{last}/{size}\r\n",
                    file.kind(),
                    range.start
                );
                out.extend_from_slice(described.as_bytes());
                self.append(file.fields().as_bytes(), out);
                allow_origin(&entry.policy, request, out);
                self.end(206, request, Payload::File { file: Rc::clone(file), range }, out)
            }
            RequestedRange::Many(ranges) => {
                let parts = MultipartRanges::new(Rc::clone(file), ranges);
                let described = format!(
                    "HTTP/1.1 206 Partial Content\r\ncontent-type: multipart/byteranges; boundary={}\r\n\
                     content-length: {}\r\n",
                    parts.boundary(),
                    parts.length()
                );
                out.extend_from_slice(described.as_bytes());
                self.append(file.fields().as_bytes(), out);
                allow_origin(&entry.policy, request, out);
                self.end(206, request, Payload::Multipart(Box::new(parts)), out)
            }
            RequestedRange::Unsatisfiable => {
                let size = format!("content-range: bytes */{size}\r\n");
                self.refuse(HttpError::Range, request, &size, out)
            }
        }
    }

    /// Appends a file's lines, of which those about access replace what an origin says to caches.
    fn append(&self, lines: &[u8], out: &mut Vec<u8>) {
        if self.access_fields.is_empty() || !self.access_fields.contains(CACHE_CONTROL) {
            return out.extend_from_slice(lines);
        }
        let all = lines.split_inclusive(|byte| *byte == b'\n');
        all.filter(|line| !line.starts_with(CACHE_CONTROL.as_bytes()))
            .for_each(|line| out.extend_from_slice(line));
    }

    fn listing(
        &mut self,
        entry: &CacheEntry,
        path: &[u8],
        request: &Request<'_>,
        out: &mut Vec<u8>,
    ) -> BuiltResponse {
        let query = request.query.unwrap_or_default();
        let is_signed = entry.policy.access.as_ref().is_some_and(|access| access.is_signed());
        let query = if is_signed { Cow::Owned(unsigned(query)) } else { Cow::Borrowed(query) };
        let Some(order) = ListingQuery::parse(&query) else {
            return self.refuse(HttpError::Query, request, "", out);
        };
        let json = order.json.unwrap_or_else(|| {
            let accept = request.fields.accept.unwrap_or_default();
            memchr::memmem::find(accept, b"application/json").is_some()
                && memchr::memmem::find(accept, b"text/html").is_none()
        });
        let kind = if json { "application/json" } else { "text/html; charset=utf-8" };
        // For clients that don't know chunks, the listing ends with the connection.
        let chunked = if request.old { "" } else { "transfer-encoding: chunked\r\n" };
        let described = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\n{chunked}vary: accept\r\nx-content-type-options: nosniff\r\n{}",
            without(&entry.policy.fields, "x-content-type-options: ")
        );
        out.extend_from_slice(described.as_bytes());
        allow_origin(&entry.policy, request, out);
        let payload = match request.method {
            Method::Head => Payload::None,
            _ => {
                let listed = ListingRequest {
                    path: path.to_vec(),
                    order,
                    json,
                    hidden: self.site.hidden,
                    chunked: !request.old,
                };
                Payload::Stream(Box::new(ListingWriter::new(Arc::clone(self.site), listed)))
            }
        };
        self.last |= request.old;
        self.end(200, request, payload, out)
    }
}

/// Names the requesting origin if it may read the answer.
pub(super) fn allow_origin(policy: &Policy, request: &Request<'_>, out: &mut Vec<u8>) {
    let (Cors::Listed(listed), Some(origin)) = (&policy.cors, request.fields.origin) else { return };
    if listed.iter().any(|known| known.as_bytes() == origin) {
        out.extend_from_slice(b"access-control-allow-origin: ");
        out.extend_from_slice(origin);
        out.extend_from_slice(b"\r\n");
    }
}

/// `fields` without the one that starts this way.
pub(super) fn without(fields: &str, start: &str) -> String {
    fields.split_inclusive("\r\n").filter(|line| !line.starts_with(start)).collect()
}
