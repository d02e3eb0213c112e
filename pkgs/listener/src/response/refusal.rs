//! The answers to requests that no service sees, in one table. The file server's own loop uses it too.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use service::problem::{self, Problem};
use service::request_id;

use super::RequestRecord;

/// After how many seconds a client that was refused for lack of room may ask again.
const RETRY: HeaderValue = HeaderValue::from_static("1");

/// Why a request is refused. HTTP/1.1 closes the connection after the answer, since the start of the next request is
/// unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// 400.
    Malformed(&'static str),
    /// 400.
    NotTls,
    /// 408.
    Slow,
    /// 413.
    BodyTooLarge,
    /// 414.
    TargetTooLong,
    /// 417.
    Expectation,
    /// 431.
    HeadTooLarge,
    /// 500.
    Panicked,
    /// 501.
    Method,
    /// 501.
    Coding,
    /// 503.
    Busy,
    /// 505.
    Version,
}

impl From<request_head::Error> for Refusal {
    fn from(error: request_head::Error) -> Self {
        use request_head::Error;
        match error {
            Error::Malformed(detail) => Self::Malformed(detail),
            Error::TargetTooLong => Self::TargetTooLong,
            Error::Expectation => Self::Expectation,
            Error::TooLarge => Self::HeadTooLarge,
            Error::Coding => Self::Coding,
            Error::Version => Self::Version,
        }
    }
}

impl Refusal {
    /// The status, and what is wrong.
    pub fn text(self) -> (u16, &'static str) {
        match self {
            Self::Malformed(detail) => (400, detail),
            Self::NotTls => (400, "this port speaks TLS: ask by https:// instead of http://"),
            Self::Slow => (408, "the request took too long to arrive"),
            Self::BodyTooLarge => (413, "the request body is longer than allowed"),
            Self::TargetTooLong => (414, "the request target is longer than allowed"),
            Self::Expectation => (417, "100-continue is all that can be expected"),
            Self::HeadTooLarge => (431, "the header fields are more than allowed"),
            Self::Panicked => (500, "a fault of the server, which its log tells of"),
            Self::Method => (501, "tunnels are not made here"),
            Self::Coding => (501, "chunked is the only transfer coding"),
            Self::Busy => (503, "too many request bodies are under way; try again"),
            Self::Version => (505, "HTTP/1.1 and 1.0 are spoken here"),
        }
    }

    /// The answer's status.
    pub fn status(self) -> u16 {
        self.text().0
    }

    /// Whether the client may ask again soon, since only room is lacking.
    pub fn is_for_now(self) -> bool {
        self == Self::Busy
    }

    /// The answer (RFC 9457), with the id of the request of this record.
    pub(crate) fn response(self, record: &mut RequestRecord) -> Response<Bytes> {
        let (status, detail) = self.text();
        let id = record.id();
        let body: Bytes = Problem::new(status, detail).of_request(&id).json().into();
        record.answered(status);
        record.sent(body.len());
        let mut response = Response::new(body);
        response.headers_mut().insert(request_id::FIELD, id.value());
        *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
        let fields = response.headers_mut();
        fields.insert(header::CONTENT_TYPE, HeaderValue::from_static(problem::CONTENT_TYPE));
        // Caches may store some of these statuses unless told otherwise (RFC 9110, section 15.1).
        fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if self.is_for_now() {
            response.headers_mut().insert(header::RETRY_AFTER, RETRY);
        }
        response
    }

    /// Checks a request's `Expect`: only 100 is supported (RFC 9110, section 10.1.1).
    ///
    /// # Errors
    /// When it asks for anything else.
    pub(crate) fn expectation(fields: &HeaderMap) -> Result<(), Self> {
        let met = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"100-continue");
        if fields.get_all(header::EXPECT).iter().all(met) { Ok(()) } else { Err(Self::Expectation) }
    }
}
