//! Converts documents between their sent and stored forms.

use bytes::Bytes;
use service::problem::Problem;

use super::Api;
use super::failure::Failure;
use crate::store::Draft;
use crate::user::{Document, Limits, parse};

/// A document as it would be stored.
pub(super) fn validated(api: &Api, body: &[u8]) -> Result<Bytes, Failure> {
    let limits = api.settings().limits;
    let document = parse::document(body, &limits)?;
    // With room for members with defaults, and for escaped characters.
    let mut text = Vec::with_capacity(body.len() + body.len() / 8 + 64);
    sonic_rs::to_writer(&mut text, &document).map_err(unwritable)?;
    storable(&document, &text, &limits)?;
    Ok(text.into())
}

/// The stored form of a document.
///
/// # Errors
/// 413 and 422 if it would be beyond the limits of a body about one user.
pub(super) fn draft(document: &Document<'_>, limits: &Limits) -> Result<Draft, Failure> {
    let draft = Draft::of(document).map_err(unwritable)?;
    storable(document, &draft.document, limits)?;
    Ok(draft)
}

/// Refuses a document that could not be patched later, nor sent again. What is stored may have more bytes and values
/// than what was sent.
fn storable(document: &Document<'_>, text: &[u8], limits: &Limits) -> Result<(), Failure> {
    if text.len() > limits.user_bytes {
        return Err(too_long());
    }
    Ok(parse::stored(document, text)?)
}

/// 413: a document would be longer than the body of a request about one user.
pub(super) fn too_long() -> Failure {
    Problem::too_large("the user would be longer than a body may be").into()
}

/// 500: a document cannot be written.
pub(super) fn unwritable(error: sonic_rs::Error) -> Failure {
    tracing::error!(%error, "a document cannot be written as JSON");
    Problem::internal("the document cannot be written").into()
}
