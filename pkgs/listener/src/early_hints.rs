//! Early hints: fields that clients receive before their answer (RFC 8297).

use std::fmt::Debug;

use http::{HeaderMap, Method, Response, StatusCode, Uri};

/// Gives hints about what a client will need besides its request, so that it can request that early. Called only for
/// HTTP/2 and HTTP/3, since some HTTP/1.1 clients take an interim response for the answer.
pub trait EarlyHints: Debug + Send + Sync {
    /// The fields of the interim response to a request, usually `Link`. None for no interim response.
    fn hints(&self, method: &Method, uri: &Uri, fields: &HeaderMap) -> Option<HeaderMap>;
}

/// An interim response with these fields.
pub fn interim(fields: HeaderMap) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::EARLY_HINTS;
    *response.headers_mut() = fields;
    response
}
