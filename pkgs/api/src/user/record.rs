//! What is stored, and sent as it is.

use bytes::Bytes;

use super::UserId;

/// A user as stored: the representation is written once, when the user is, and every read sends those bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Whose.
    pub id: UserId,
    /// How often the user has been written, from 1. Its `ETag`.
    pub version: i64,
    /// The JSON that is sent: the document with `id`, `version`, `created_at` and `updated_at` before it.
    pub body: Bytes,
}
