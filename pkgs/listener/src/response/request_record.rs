//! What a request leaves behind: its line of the access log, and its id in an answer that is an error.
//!
//! Where nothing is logged and no proxy is trusted by its fields, a [`RequestRecord`] is nothing, and nothing is read for it.

use std::net::IpAddr;
use std::time::Instant;

use bytes::Bytes;
use http::header::{self, HeaderMap};
use http::{Method, Uri, Version, response};

use service::access_log::{Asked, Began, Lines, RequestContext, Via};
use service::problem::Problem;
use service::request_id::{self, RequestId};

use crate::peer::{Peer, Protocol};

/// What one request leaves behind.
pub struct RequestRecord(Option<Box<Known>>);

struct Known {
    /// Its line, where it has one.
    began: Option<Began>,
    /// Its id, where a trusted proxy told one.
    given: Option<RequestId>,
}

impl RequestRecord {
    /// That of a request with this head, which was read just now.
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
        let began = log.and_then(|lines| {
            let asked = Asked::of_head(method, uri, fields);
            let id = || given.clone().unwrap_or_else(RequestId::generate);
            lines.begin(&asked, || via(peer, version, peer.client(fields)), id)
        });
        Self((began.is_some() || given.is_some()).then(|| Box::new(Known { began, given })))
    }

    /// That of what begins with these bytes and is refused as no request: nothing is believed of it.
    pub fn of_bytes(log: Option<&Lines>, peer: &Peer, bytes: &[u8]) -> Self {
        let began = log.and_then(|lines| {
            let client = peer.remote.map(|remote| remote.ip());
            let via = || via(peer, Version::HTTP_11, client);
            lines.begin(&Asked::of_bytes(bytes), via, RequestId::generate)
        });
        Self(began.map(|began| Box::new(Known { began: Some(began), given: None })))
    }

    /// That of what was logged before.
    pub const fn none() -> Self {
        Self(None)
    }

    /// What services get to know of the request, where it is logged.
    pub fn context(&self) -> Option<&RequestContext> {
        self.0.as_ref()?.began.as_ref().map(Began::context)
    }

    /// The request's id; made here, where it has none.
    pub fn id(&self) -> RequestId {
        let given = || self.0.as_ref()?.given.clone();
        self.context().map(|context| context.id().clone()).or_else(given).unwrap_or_else(RequestId::generate)
    }

    /// An answer of this status begins.
    pub fn answered(&mut self, status: u16) {
        if let Some(began) = self.began() {
            began.answered(status);
        }
    }

    /// So many more bytes of its body are sent.
    pub fn sent(&mut self, bytes: usize) {
        if let Some(began) = self.began() {
            began.sent(bytes as u64);
        }
    }

    /// A service's answer begins. An error is told the request's id; where it is a problem, that is in its body too, which
    /// is then this one instead of the service's.
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

    fn began(&mut self) -> Option<&mut Began> {
        self.0.as_mut()?.began.as_mut()
    }
}

/// Logs an answer that was given at once, from its bytes; `since` is when its request was read. An error has told the
/// request's id.
pub fn logged_at_once(
    log: Option<&Lines>,
    peer: &Peer,
    head: &request_head::Lines<'_, '_>,
    answer: &[u8],
    since: Instant,
) {
    let Some(lines) = log else { return };
    let path = head.target.split('?').next().unwrap_or_default();
    let mut asked =
        Asked { method: Some(head.method.as_bytes()), path: Some(path.as_bytes()), ..Asked::default() };
    head.fields.iter().for_each(|field| asked.take(field.name, field.value));
    let via = || via(peer, Version::HTTP_11, peer.client_of(head));
    let body = memchr::memmem::find(answer, b"\r\n\r\n").map_or(answer.len(), |end| end + 4);
    let status = answer.get(9..12).and_then(|status| std::str::from_utf8(status).ok()?.parse::<u16>().ok());
    let told = || {
        let is_error = status.is_some_and(|status| status >= 400);
        is_error.then(|| RequestId::of_head(&answer[..body])).flatten()
    };
    let id = || told().or_else(|| peer.given_id(head)).unwrap_or_else(RequestId::generate);
    let Some(mut began) = lines.begin(&asked, via, id) else { return };
    began.set_since(since);
    if let Some(status) = status {
        began.answered(status);
    }
    began.sent((answer.len() - body) as u64);
}

fn via(peer: &Peer, version: Version, client: Option<IpAddr>) -> Via {
    let http = match peer.protocol {
        Protocol::Http1 if version == Version::HTTP_10 => "1.0",
        Protocol::Http1 => "1.1",
        Protocol::Http2 => "2",
        Protocol::Http3 => "3",
    };
    let tls = match (peer.protocol, &peer.tls) {
        // RFC 9001, section 4.2: no other.
        (Protocol::Http3, _) => Some("1.3"),
        (_, Some(tls)) => tls.version.map(|version| match version {
            rustls::ProtocolVersion::TLSv1_2 => "1.2",
            _ => "1.3",
        }),
        (_, None) => None,
    };
    Via { client, http, tls }
}
