//! Links: how they are stored, and the rules of imports and repeated requests.

use crate::link::{RedirectStatus, Status};

/// How many random codes are tried before they become one character longer. So many failures mean that free codes are
/// scarce.
pub const DRAWS: u32 = 8;

/// How long an idempotency key is remembered, in seconds.
pub const KEY_SECONDS: i64 = 24 * 60 * 60;

/// The most refusals that a [`Tally`](crate::store::Tally) lists.
pub const MAX_ERRORS: usize = 100;

/// The end of a password's hash, as the databases read it for a link: 16 characters, all of them ASCII.
pub fn end_of(hash: &str) -> String {
    hash[hash.len().saturating_sub(16)..].to_owned()
}

/// The status stored as this number.
pub fn status_of(number: i64) -> Status {
    if number == 0 { Status::Active } else { Status::Disabled }
}

/// The number that a status is stored as.
pub fn number_of(status: Status) -> i64 {
    match status {
        Status::Active => 0,
        Status::Disabled => 1,
    }
}

/// The redirect status stored as this number.
pub fn redirect_of(number: u16) -> RedirectStatus {
    RedirectStatus::try_from(number).unwrap_or_default()
}
