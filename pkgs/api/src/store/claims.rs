//! Requests that are made once: how long they are remembered, and what a repetition is told.

use super::{Claim, Created, Error, answer};

/// How long a request is remembered, in microseconds: a day, longer than any client repeats one.
pub const KEPT_MICROSECONDS: i64 = 24 * 60 * 60 * 1_000_000;

/// Requests that are remembered; beyond that, the oldest are forgotten early.
pub const MOST: i64 = 100_000;

/// Whose, as it is stored.
pub fn owner(claim: &Claim) -> i64 {
    claim.owner.unwrap_or(0)
}

/// What a repetition is told, given what is remembered under its key.
pub fn judge(claim: &Claim, digest: &[u8], kept: Vec<u8>) -> Result<Created, Error> {
    if digest != claim.digest {
        return Ok(Created::KeyReused);
    }
    let records = answer::decode(kept).ok_or_else(|| Error::failed("a stored answer is damaged"))?;
    Ok(Created::Before(records))
}
