//! What clients learn before their request is answered (RFC 8297).

use std::fmt::Debug;

use http::{HeaderMap, Method, Response, StatusCode, Uri};

/// Says what a client will need besides what it asks for, so that it may ask for that meanwhile. It is asked for requests by
/// HTTP/2 and HTTP/3 alone: by HTTP/1.1 there are clients that take an interim response for the answer.
pub trait EarlyHints: Debug + Send + Sync {
    /// The fields of an interim response to a request, most often `Link`; none for none.
    fn hints(&self, method: &Method, uri: &Uri, fields: &HeaderMap) -> Option<HeaderMap>;
}

/// An interim response with these fields.
pub fn interim(fields: HeaderMap) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::EARLY_HINTS;
    *response.headers_mut() = fields;
    response
}
