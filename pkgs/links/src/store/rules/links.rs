//! Links: how they are kept, and what an import and a repeat of a request may ask for.

use crate::link::{RedirectStatus, Status};

/// Draws of a random code before the codes grow by a character: they are getting scarce.
pub const DRAWS: u32 = 8;

/// How long an idempotency key is remembered, in seconds.
pub const KEY_SECONDS: i64 = 24 * 60 * 60;

/// The most refusals that a [`Tally`] tells one by one.
pub const MAX_ERRORS: usize = 100;

/// The status kept as this number.
pub fn status_of(number: i64) -> Status {
    if number == 0 { Status::Active } else { Status::Disabled }
}

/// The number a status is kept as.
pub fn number_of(status: Status) -> i64 {
    match status {
        Status::Active => 0,
        Status::Disabled => 1,
    }
}

/// The redirect status kept as this number.
pub fn redirect_of(number: u16) -> RedirectStatus {
    RedirectStatus::try_from(number).unwrap_or_default()
}
