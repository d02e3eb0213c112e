//! Converts documents between their sent and stored forms.

use bytes::Bytes;
use service::problem::Problem;

use super::Api;
use super::failure::Failure;
use crate::store::Draft;
use crate::user::{Document, parse};

/// A document as it would be stored.
pub(super) fn validated(api: &Api, body: &[u8]) -> Result<Bytes, Failure> {
    let document = parse::document(body, &api.settings().limits)?;
    // With room for members with defaults, and for escaped characters.
    let mut text = Vec::with_capacity(body.len() + body.len() / 8 + 64);
    sonic_rs::to_writer(&mut text, &document).map_err(unwritable)?;
    Ok(text.into())
}

/// The stored form of a document.
pub(super) fn draft(document: &Document<'_>) -> Result<Draft, Failure> {
    Draft::of(document).map_err(unwritable)
}

/// 500: a document cannot be written.
pub(super) fn unwritable(error: sonic_rs::Error) -> Failure {
    tracing::error!(%error, "a document cannot be written as JSON");
    Problem::internal("the document cannot be written").into()
}
