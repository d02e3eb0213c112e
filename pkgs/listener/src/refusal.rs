//! What is answered to a request that no service gets to see.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use service::problem::{self, Problem};

/// Why a request is refused. HTTP/1.1 closes the connection after the answer, since where the next request begins
/// cannot be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// 400.
    Malformed(&'static str),
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
    /// 501.
    Method,
    /// 501.
    Coding,
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
    /// The status and what is wrong.
    fn text(self) -> (u16, &'static str) {
        match self {
            Self::Malformed(detail) => (400, detail),
            Self::Slow => (408, "the request took too long to arrive"),
            Self::BodyTooLarge => (413, "the request body is longer than allowed"),
            Self::TargetTooLong => (414, "the request target is longer than allowed"),
            Self::Expectation => (417, "100-continue is all that can be expected"),
            Self::HeadTooLarge => (431, "the header fields are more than allowed"),
            Self::Method => (501, "tunnels are not made here"),
            Self::Coding => (501, "chunked is the only transfer coding"),
            Self::Version => (505, "HTTP/1.1 and 1.0 are spoken here"),
        }
    }

    /// The answer (RFC 9457).
    pub fn response(self) -> Response<Bytes> {
        let (status, detail) = self.text();
        let body = serde_json::to_vec(&Problem::new(status, detail)).unwrap_or_default();
        let mut response = Response::new(body.into());
        *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
        let kind = HeaderValue::from_static(problem::CONTENT_TYPE);
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        response
    }
}
