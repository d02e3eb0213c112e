//! What can be done with users.

pub(super) mod batch;
pub mod list;
pub(super) mod users;
