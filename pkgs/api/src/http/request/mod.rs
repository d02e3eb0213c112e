//! What operations read from a request.

pub(super) mod body;
pub mod conditions;
pub mod cursor;
pub mod fields;
pub(super) mod idempotency;
pub(super) mod query;
