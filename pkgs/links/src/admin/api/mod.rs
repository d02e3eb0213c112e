//! The API under `/api/v1`, one file per kind of resource.

pub(super) mod batch;
pub(crate) mod bulk;
pub(super) mod domains;
pub(super) mod keys;
pub(super) mod links;
pub(super) mod qr;
pub(super) mod stats;
