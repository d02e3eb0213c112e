//! The API under `/api/v1`, one kind of resource a file.

pub(super) mod batch;
pub(crate) mod bulk;
pub(super) mod domains;
pub(super) mod keys;
pub(super) mod links;
pub(super) mod qr;
pub(super) mod stats;
