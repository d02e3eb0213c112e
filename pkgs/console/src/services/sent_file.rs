//! A file in one piece, by a plain form.

use axum::extract::OptionalFromRequestParts;
use bytes::Bytes;
use http::request::Parts;

/// The longest, in bytes: all of it is in memory.
pub(crate) const MOST_BYTES: usize = 4 << 20;

/// A file that came with a form, which handlers take once.
#[derive(Clone, Debug)]
pub(crate) struct SentFile {
    /// What it is called where it comes from.
    pub(crate) name: String,
    pub(crate) bytes: Bytes,
}

impl<S: Sync> OptionalFromRequestParts<S> for SentFile {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Self::Rejection> {
        Ok(parts.extensions.remove())
    }
}
