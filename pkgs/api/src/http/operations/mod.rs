//! What can be done with users, and with keys.

pub(super) mod batch;
pub(super) mod keys;
pub mod list;
pub(super) mod users;
