//! The API under `/api/v1`, one file per kind of resource; `body`: what its handlers are sent.

pub(super) mod batch;
mod body;
pub(crate) mod bulk;
pub(super) mod domains;
pub(super) mod keys;
pub(super) mod links;
pub(super) mod qr;
pub(super) mod stats;
