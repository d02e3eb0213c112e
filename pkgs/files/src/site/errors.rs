//! Answers without a file: the reason as a page for people, and as problem details for programs.

use std::collections::HashMap;

use listener::Refusal;
use service::problem::{self, Problem};
use service::request_id::RequestId;

use crate::http::head;
use crate::http::listing_query;
use crate::http::status::phrase;

/// Tells a client that was refused for lack of room to try again; with its line end.
const RETRY: &str = "retry-after: 1\r\n";

/// Why a request isn't answered with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpError {
    /// Something that HTTP itself doesn't allow, as the listener refuses it.
    Protocol(Refusal),
    /// 400: the path leads upwards, or isn't a path.
    Path,
    /// 400: the query of a listing is invalid.
    Query,
    /// 400: the archive isn't available.
    Archive,
    /// 403: the archive would be too large.
    ArchiveTooLarge,
    /// 503: too many archives.
    ArchivesBusy,
    /// 403.
    Denied,
    /// 401.
    Unauthorized,
    /// 403: the URL isn't signed, or has expired.
    Unsigned,
    /// 403: a page of another origin refers to it.
    Referrer,
    /// 404.
    Missing,
    /// 405.
    Method,
    /// 412.
    PreconditionFailed,
    /// 416.
    Range,
    /// 421: no site has this host.
    Misdirected,
    /// 429.
    TooMany,
    /// 429: too many wrong passwords.
    Tries,
    /// 503: too many passwords are waiting to be checked.
    Busy,
    /// 500: the disk failed.
    Failed,
    /// 502: the origin failed.
    OriginFailed,
    /// 504: the origin takes too long.
    OriginSlow,
    /// 503: no file descriptor is left, or too many look-ups wait for the disk.
    Exhausted,
}

impl From<head::Error> for HttpError {
    fn from(error: head::Error) -> Self {
        Self::Protocol(error.into())
    }
}

impl HttpError {
    /// The status and a sentence with the reason.
    pub fn text(self) -> (u16, &'static str) {
        match self {
            Self::Protocol(refusal) => refusal.text(),
            Self::Path => (400, "This path is malformed, or leads out of what is served."),
            Self::Query => (400, listing_query::QUERY),
            Self::Archive => (
                400,
                "An archive is asked for by archive=zip or archive=tar.zst alone, as far as rules allow it.",
            ),
            Self::ArchiveTooLarge => (403, "This directory has more than may be had as an archive."),
            Self::ArchivesBusy => (503, "Too many archives are being made just now."),
            Self::Denied => (403, "This file may not be read."),
            Self::Unauthorized => (401, "This file is for those who have a password."),
            Self::Unsigned => (403, "This URL is not signed for this file, or has expired."),
            Self::Referrer => (403, "This file is not for pages of other sites."),
            Self::Missing => (404, "There is no such file."),
            Self::Method => (405, "Files are read with GET and HEAD."),
            Self::PreconditionFailed => (412, "The file is not in the state the request expects."),
            Self::Range => (416, "The file has none of these bytes."),
            Self::Misdirected => (421, "This host is not served here."),
            Self::Tries => (429, "Too many wrong passwords of late."),
            Self::Busy => (503, "Too many passwords are being tried just now."),
            Self::TooMany => (429, "Too many requests from this address."),
            Self::Failed => (500, "The file cannot be read just now."),
            Self::OriginFailed => (502, "The storage behind this server fails just now."),
            Self::OriginSlow => (504, "The storage behind this server takes too long just now."),
            Self::Exhausted => (503, "Too many files are being opened just now."),
        }
    }

    /// The status.
    pub fn status(self) -> u16 {
        self.text().0
    }

    /// Further headers, with their line ends.
    fn fields(self) -> &'static str {
        match self {
            Self::Method => "allow: GET, HEAD, OPTIONS\r\n",
            Self::TooMany
            | Self::Exhausted
            | Self::Busy
            | Self::ArchivesBusy
            | Self::OriginFailed
            | Self::OriginSlow => RETRY,
            Self::Protocol(refusal) if refusal.is_for_now() => RETRY,
            _ => "",
        }
    }
}

/// A site's own error pages.
#[derive(Debug, Default)]
pub struct ErrorPages(HashMap<u16, (String, Vec<u8>)>);

impl ErrorPages {
    /// Answers errors of `status` with this page, both for people and for programs.
    pub fn set(&mut self, status: u16, media_type: String, body: Vec<u8>) {
        self.0.insert(status, (media_type, body));
    }

    /// Appends a whole answer, and returns the length of its body. `fields` and `tail` are further headers; `tail` also
    /// ends the head. `id` is the request's id. `html` says whether a page was requested, and `head` whether the body
    /// is left out.
    pub fn write(
        &self,
        out: &mut Vec<u8>,
        refusal: HttpError,
        (fields, id): (&str, &RequestId),
        tail: &[u8],
        html: bool,
        head: bool,
    ) -> u64 {
        let (status, detail) = refusal.text();
        let made;
        let (kind, body) = match self.0.get(&status) {
            Some((kind, body)) => (kind.as_str(), body.as_slice()),
            None if html => {
                let phrase = phrase(status);
                made = format!(
                    "<!doctype html>\n<html lang=en><meta charset=utf-8><title>{status} {phrase}</title>\n\
                     <h1>{phrase}</h1>\n<p>{detail}\n"
                );
                ("text/html; charset=utf-8", made.as_bytes())
            }
            None => {
                let problem = Problem::new(status, detail).of_request(id);
                made = serde_json::to_string(&problem).expect("a struct of texts and a number is JSON");
                (problem::CONTENT_TYPE, made.as_bytes())
            }
        };
        let described = format!(
            "HTTP/1.1 {status} {}\r\n{}cache-control: no-store\r\nx-content-type-options: nosniff\r\n\
             x-request-id: {id}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n{fields}",
            phrase(status),
            refusal.fields(),
            body.len()
        );
        out.extend_from_slice(described.as_bytes());
        out.extend_from_slice(tail);
        if head {
            return 0;
        }
        out.extend_from_slice(body);
        body.len() as u64
    }
}
