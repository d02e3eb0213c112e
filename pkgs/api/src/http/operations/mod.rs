//! The operations on users and keys.

pub(super) mod batch;
pub(super) mod keys;
pub mod list;
pub(super) mod users;
