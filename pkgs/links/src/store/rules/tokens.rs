//! Bearer tokens: a random secret, stored as its SHA-256.
//!
//! A secret is `lr_`, 16 hexadecimal digits that find the row, and 48 more digits to compare. Its 256 random bits
//! cannot be guessed, so a fast hash is enough.

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

use crate::domains::{DEFAULT, DomainId, Domains};
use crate::store::{Error, NewToken, Scope};
use crate::when::Timestamp;

/// The start of every secret, so that scanners for leaked secrets recognise it.
const PREFIX: &str = "lr_";

/// Random bytes in a secret.
const SECRET_BYTES: usize = 32;

/// Hexadecimal digits that find the row.
const SELECTOR_DIGITS: usize = 16;

/// The most tokens.
pub const MAX_TOKENS: i64 = 1_000;

/// The longest name, in characters.
const MAX_NAME: usize = 100;

/// After a use is recorded, no further use of the token is recorded for this long, in seconds. Even a client with a
/// thousand requests per second causes one write per minute.
const USE_SECONDS: i64 = 60;

/// Checks a token that is to be created now.
pub fn checked(new: NewToken, now: Timestamp) -> Result<NewToken, Error> {
    let name = new.name.trim().to_owned();
    if name.is_empty() || name.chars().count() > MAX_NAME || name.chars().any(char::is_control) {
        return Err(Error::field("name", format!("1 to {MAX_NAME} printable characters")));
    }
    if let Some(end) = new.expires_at.filter(|end| *end <= now) {
        return Err(Error::field("expires_at", format!("{end} is not in the future")));
    }
    Ok(NewToken { name, ..new })
}

/// Whether a use now has to be recorded.
pub fn is_noted(last_used_at: Option<Timestamp>, now: Timestamp) -> bool {
    last_used_at.is_none_or(|last| last.0 <= now.0 - USE_SECONDS)
}

/// A new secret, and its selector.
pub fn draw() -> (String, String) {
    let mut random = [0; SECRET_BYTES];
    getrandom::fill(&mut random).expect("the system has a source of randomness");
    let digits = HEXLOWER.encode(&random);
    (format!("{PREFIX}{digits}"), digits[..SELECTOR_DIGITS].to_owned())
}

/// The selector of a secret, which finds its row.
pub fn selector(secret: &str) -> Option<&str> {
    secret.strip_prefix(PREFIX).and_then(|digits| digits.get(..SELECTOR_DIGITS))
}

/// Whether a text has the form of a secret.
pub fn has_form(secret: &str) -> bool {
    secret.strip_prefix(PREFIX).is_some_and(|digits| {
        digits.len() == 2 * SECRET_BYTES
            && digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
    })
}

pub fn hash(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

/// Domains as stored in a row.
pub fn text_of(domains: &[DomainId]) -> String {
    domains.iter().map(|domain| domain.0.to_string()).collect::<Vec<_>>().join(" ")
}

/// The domains in a row.
pub fn ids_of(ids: &str) -> Vec<DomainId> {
    ids.split_ascii_whitespace().filter_map(|id| id.parse().ok()).map(DomainId).collect()
}

/// The names of the domains that exist.
pub fn names(ids: Option<String>, known: &Domains) -> Option<Vec<String>> {
    let name = |id| match id {
        DomainId::DEFAULT => Some(DEFAULT.to_owned()),
        id => known.get(id).map(|domain| domain.host.clone()),
    };
    ids.map(|ids| ids_of(&ids).into_iter().filter_map(name).collect())
}

pub fn number_of(scope: Scope) -> i64 {
    match scope {
        Scope::Read => 0,
        Scope::Write => 1,
    }
}

pub fn scope_of(number: i64) -> Scope {
    if number == 1 { Scope::Write } else { Scope::Read }
}
