//! A request's record: its line of the access log, and its id for an answer that is an error.
//!
//! Without an access log and without proxies that are trusted by fields, a [`RequestRecord`] is empty, and nothing is
//! read for it.

use std::net::IpAddr;
use std::time::Instant;

use bytes::Bytes;
use http::header::{self, HeaderMap};
use http::{Method, Uri, Version, response};

use service::access_log::{ConnectionInfo, Lines, LogEntry, RequestContext, RequestSummary};
use service::problem::Problem;
use service::request_id::{self, RequestId};

use crate::peer::{Peer, Protocol};

/// The record of one request.
pub struct RequestRecord(Option<Box<Known>>);

struct Known {
    /// Its log line, if it has one.
    entry: Option<LogEntry>,
    /// Its id from a trusted proxy, if any.
    given: Option<RequestId>,
}

impl RequestRecord {
    /// The record of a request with this head, which was just read.
    #[inline]
    pub fn begin(
        log: Option<&Lines>,
        peer: &Peer,
        version: Version,
        (method, uri, fields): (&Method, &Uri, &HeaderMap),
    ) -> Self {
        if log.is_none() && peer.proxies.is_none() {
            return Self(None);
        }
        let given = peer.proxies.as_ref().and_then(|_| RequestId::of_fields(fields));
        let entry = log.and_then(|lines| {
            let summary = RequestSummary::of_head(method, uri, fields);
            let id = || given.clone().unwrap_or_else(RequestId::generate);
            lines.begin(&summary, || connection(peer, version, peer.client(fields)), id)
        });
        Self((entry.is_some() || given.is_some()).then(|| Box::new(Known { entry, given })))
    }

    /// The record of bytes that are refused as not a request. Nothing in them is believed.
    pub fn of_bytes(log: Option<&Lines>, peer: &Peer, bytes: &[u8]) -> Self {
        let entry = log.and_then(|lines| {
            let client = peer.remote.map(|remote| remote.ip());
            let connection = || connection(peer, Version::HTTP_11, client);
            lines.begin(&RequestSummary::of_bytes(bytes), connection, RequestId::generate)
        });
        Self(entry.map(|entry| Box::new(Known { entry: Some(entry), given: None })))
    }

    /// The record of a request that was already logged.
    pub const fn none() -> Self {
        Self(None)
    }

    /// The context for services, if the request is logged.
    pub fn context(&self) -> Option<&RequestContext> {
        self.0.as_ref()?.entry.as_ref().map(LogEntry::context)
    }

    /// The request's id. Makes one if it has none.
    pub fn id(&self) -> RequestId {
        let given = || self.0.as_ref()?.given.clone();
        self.context().map(|context| context.id().clone()).or_else(given).unwrap_or_else(RequestId::generate)
    }

    /// An answer with this status starts.
    pub fn answered(&mut self, status: u16) {
        if let Some(entry) = self.entry() {
            entry.answered(status);
        }
    }

    /// This many more bytes of its body were sent.
    pub fn sent(&mut self, bytes: usize) {
        if let Some(entry) = self.entry() {
            entry.sent(bytes as u64);
        }
    }

    /// A service's answer starts. An error gets the request's id. If it is a problem, its body gets it too; the
    /// returned body then replaces the service's.
    #[inline]
    pub fn respond(&mut self, parts: &mut response::Parts) -> Option<Bytes> {
        self.answered(parts.status.as_u16());
        if parts.status.is_client_error() || parts.status.is_server_error() { self.tell(parts) } else { None }
    }

    #[cold]
    fn tell(&self, parts: &mut response::Parts) -> Option<Bytes> {
        let id = self.id();
        parts.headers.insert(request_id::FIELD, id.value());
        let problem = parts.extensions.remove::<Problem>()?;
        parts.headers.remove(header::CONTENT_LENGTH);
        Some(problem.of_request(&id).json().into())
    }

    fn entry(&mut self) -> Option<&mut LogEntry> {
        self.0.as_mut()?.entry.as_mut()
    }
}

/// Logs an answer that was given at once, from its bytes and the number of bytes that follow them; `since` is when its
/// request was read. If it is an error, it already contains the request's id.
pub fn logged_at_once(
    log: Option<&Lines>,
    peer: &Peer,
    head: &request_head::Lines<'_, '_>,
    (answer, more): (&[u8], usize),
    since: Instant,
) {
    let Some(lines) = log else { return };
    let path = head.target.split('?').next().unwrap_or_default();
    let mut summary = RequestSummary {
        method: Some(head.method.as_bytes()),
        path: Some(path.as_bytes()),
        ..RequestSummary::default()
    };
    head.fields.iter().for_each(|field| summary.take(field.name, field.value));
    let connection = || connection(peer, Version::HTTP_11, peer.client_of(head));
    let body = memchr::memmem::find(answer, b"\r\n\r\n").map_or(answer.len(), |end| end + 4);
    let status = answer.get(9..12).and_then(|status| std::str::from_utf8(status).ok()?.parse::<u16>().ok());
    let told = || {
        let is_error = status.is_some_and(|status| status >= 400);
        is_error.then(|| RequestId::of_head(&answer[..body])).flatten()
    };
    let id = || told().or_else(|| peer.given_id(head)).unwrap_or_else(RequestId::generate);
    let Some(mut entry) = lines.begin(&summary, connection, id) else { return };
    entry.set_since(since);
    if let Some(status) = status {
        entry.answered(status);
    }
    entry.sent((answer.len() - body + more) as u64);
}

fn connection(peer: &Peer, version: Version, client: Option<IpAddr>) -> ConnectionInfo {
    let http = match peer.protocol {
        Protocol::Http1 if version == Version::HTTP_10 => "1.0",
        Protocol::Http1 => "1.1",
        Protocol::Http2 => "2",
        Protocol::Http3 => "3",
    };
    let tls = match (peer.protocol, &peer.tls) {
        // RFC 9001, section 4.2: HTTP/3 has no other version.
        (Protocol::Http3, _) => Some("1.3"),
        (_, Some(tls)) => tls.version.map(|version| match version {
            rustls::ProtocolVersion::TLSv1_2 => "1.2",
            _ => "1.3",
        }),
        (_, None) => None,
    };
    ConnectionInfo { client, http, tls }
}
