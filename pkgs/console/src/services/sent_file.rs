//! A file that a plain form sends in one piece.

use axum::extract::OptionalFromRequestParts;
use bytes::Bytes;
use http::request::Parts;

/// The longest file, in bytes. All of it is held in memory.
pub(crate) const MOST_BYTES: usize = 4 << 20;

/// A file that was sent with a form. A handler can take it once.
#[derive(Clone, Debug)]
pub(crate) struct SentFile {
    /// Its name on the sender's computer.
    pub(crate) name: String,
    pub(crate) bytes: Bytes,
}

impl<S: Sync> OptionalFromRequestParts<S> for SentFile {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Self::Rejection> {
        Ok(parts.extensions.remove())
    }
}
