//! Answers that several operations share.

use axum::response::Response;
use bytes::{BufMut, Bytes, BytesMut};
use http::StatusCode;
use http::header::{self, HeaderMap, HeaderValue};

use crate::http::failure::Failure;
use crate::http::request::conditions::{Conditions, tag};
use crate::user::Record;

/// The media type of answers.
pub(in crate::http) const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// An answer of JSON.
pub(in crate::http) fn json(status: StatusCode, body: impl Into<axum::body::Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, JSON);
    response
}

/// The answer to a read of a user.
///
/// # Errors
/// 412, and 400 for malformed conditions.
pub(in crate::http) fn found(fields: &HeaderMap, record: &Record) -> Result<Response<Bytes>, Failure> {
    let unchanged = Conditions::of(fields)?.unchanged(record.version)?;
    let mut response = Response::new(if unchanged { Bytes::new() } else { record.body.clone() });
    let fields = response.headers_mut();
    fields.reserve(4);
    fields.insert(header::ETAG, tag(record.version));
    // Caches have to revalidate each time, since comparing a tag costs next to nothing.
    fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if unchanged {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    } else {
        fields.insert(header::CONTENT_TYPE, JSON);
    }
    Ok(response)
}

/// `{"users":[…]` with stored representations, followed by `end`.
pub(in crate::http) fn users<'a>(bodies: impl Iterator<Item = &'a Bytes>, end: &str) -> Bytes {
    let mut whole = BytesMut::new();
    whole.put_slice(b"{\"users\":[");
    for (index, body) in bodies.enumerate() {
        if index > 0 {
            whole.put_u8(b',');
        }
        whole.extend_from_slice(body);
    }
    whole.put_u8(b']');
    whole.put_slice(end.as_bytes());
    whole.freeze()
}
