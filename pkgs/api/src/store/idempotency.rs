//! Requests that are executed once: how long they are remembered, and the answers of repetitions.

use super::entry::{self, Entry};
use super::{Created, Error, IdempotencyRecord, answer};

/// How long a request is remembered, in microseconds: a day, longer than any client repeats one.
const KEPT_MICROSECONDS: i64 = 24 * 60 * 60 * 1_000_000;

/// Bytes of a block. An answer takes as many blocks as it needs, at least one.
const BLOCK_BYTES: usize = 16 * 1024;

/// How many blocks are remembered: 1 GiB of answers, and as many requests if they are small. Beyond that, the oldest
/// are forgotten early.
pub const MOST: i64 = 65_536;

/// How many requests are deleted with each new one, at most. After a day without one, all have expired at once, and no
/// write should wait for that.
pub const FORGET: i64 = 100;

/// Requests from before this instant are expired.
pub fn expired() -> i64 {
    entry::now() - KEPT_MICROSECONDS
}

/// How many blocks an answer takes. Records are numbered by their last block.
pub fn blocks(answer: &[u8]) -> i64 {
    answer.len().div_ceil(BLOCK_BYTES).max(1) as i64
}

/// When a request was made, as stored: the creation time of its users. When a user is deleted, this time finds the
/// stored answers that have to be erased, without an index of users in answers.
pub fn instant(entries: &[Entry]) -> i64 {
    entries.first().map_or_else(entry::now, |entry| entry.created_at)
}

/// The owner, as stored.
pub fn owner(record: &IdempotencyRecord) -> i64 {
    record.owner.unwrap_or(0)
}

/// The answer to a repetition, from what is stored under its key.
pub fn judge(record: &IdempotencyRecord, digest: &[u8], kept: Vec<u8>) -> Result<Created, Error> {
    if digest != record.digest {
        return Ok(Created::KeyReused);
    }
    // A create without a stored answer means that it was erased.
    if kept.is_empty() {
        return Ok(Created::Erased);
    }
    let records = answer::decode(kept).ok_or_else(|| Error::failed("a stored answer is damaged"))?;
    Ok(Created::Before(records))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_takes_the_blocks_it_needs() {
        for (bytes, taken) in [(0, 1), (1, 1), (BLOCK_BYTES, 1), (BLOCK_BYTES + 1, 2), (8 << 20, 512)] {
            assert_eq!(blocks(&vec![0; bytes]), taken, "{bytes}");
        }
    }
}
