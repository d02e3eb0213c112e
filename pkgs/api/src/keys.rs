//! API keys: what a client holds, and what is stored.

use std::fmt;

use data_encoding::HEXLOWER;
use jiff::{Span, Timestamp, Zoned};
use serde::Serialize;
use sha2::{Digest, Sha256};
use utoipa::ToSchema;

use crate::store::Key;

/// The start of every key, so that people and scanners for leaked keys recognise it.
const PREFIX: &str = "lrk_";

/// Random bytes of a key.
const SECRET_BYTES: usize = 32;

/// The length of the check after them. It shows without a query that a key was mistyped.
const CHECK_BYTES: usize = 4;

/// A key's secret, for its user: `lrk_`, 64 random digits and 8 that check them. Only its SHA-256 is stored. With so
/// much randomness, that is as good as a slow hash. Keys are looked up by this digest, so the time of a look-up reveals
/// nothing about a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Makes a new, unique secret.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub fn generate() -> Result<Self, getrandom::Error> {
        let mut random = [0; SECRET_BYTES];
        getrandom::fill(&mut random)?;
        let secret = format!("{PREFIX}{}", HEXLOWER.encode(&random));
        let check = check(&secret);
        Ok(Self(format!("{secret}{}", HEXLOWER.encode(&check))))
    }

    /// The digest of a text, if it has the form of a key.
    pub fn digest_of(text: &str) -> Option<[u8; 32]> {
        let length = PREFIX.len() + 2 * (SECRET_BYTES + CHECK_BYTES);
        let lower = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f');
        let digits = text.strip_prefix(PREFIX).filter(|_| text.len() == length)?;
        if !digits.bytes().all(lower) {
            return None;
        }
        let (secret, given) = text.split_at(length - 2 * CHECK_BYTES);
        let known = HEXLOWER.encode(&check(secret));
        (given == known).then(|| Sha256::digest(text).into())
    }

    /// The stored digest.
    pub fn digest(&self) -> [u8; 32] {
        Sha256::digest(&self.0).into()
    }

    /// The secret itself.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

/// Without the secret.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// A key without its secret, for programs.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct KeyInfo {
    /// The id, for revoking it.
    pub id: i64,
    /// Its name.
    pub name: String,
    /// Its rights: `read`, or `write`, which includes it.
    #[schema(pattern = "^(read|write)$")]
    pub scope: &'static str,
    /// Requests per second in the long run; null for no limit.
    #[schema(required = true)]
    pub rate: Option<u32>,
    /// Requests at once; null for as many as one second's.
    #[schema(required = true)]
    pub burst: Option<u32>,
    /// When it was created.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When it expires; null if never.
    #[schema(required = true, value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Timestamp>,
    /// When it was last used, to a minute; null if never.
    #[schema(required = true, value_type = Option<String>, format = DateTime)]
    pub last_used_at: Option<Timestamp>,
}

impl From<Key> for KeyInfo {
    fn from(key: Key) -> Self {
        let Key { id, name, scope, rate, burst, created_at, expires_at, last_use, .. } = key;
        let last_used_at = last_use.get();
        Self { id, name, scope: scope.name(), rate, burst, created_at, expires_at, last_used_at }
    }
}

/// The error of a text that is not a future time.
#[derive(Debug, thiserror::Error)]
#[error("expected a time to come until 9999-12-30T22:00:00Z, such as 2030-01-31T12:00:00Z or 90d")]
pub struct InvalidEnd;

/// When a key expires, to a microsecond as it is stored: RFC 3339, or a span from now.
///
/// # Errors
/// If it is neither, or in the past.
pub fn end(text: &str) -> Result<Timestamp, InvalidEnd> {
    let now = Zoned::now();
    let later = || Some(now.checked_add(text.parse::<Span>().ok()?).ok()?.timestamp());
    let time: Option<Timestamp> = text.parse().ok().or_else(later);
    let time = time.and_then(|time| Timestamp::from_microsecond(time.as_microsecond()).ok());
    time.filter(|time| *time > now.timestamp()).ok_or(InvalidEnd)
}

fn check(secret: &str) -> [u8; CHECK_BYTES] {
    let digest = Sha256::digest(secret);
    std::array::from_fn(|index| digest[index])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_ends_at_a_time_that_can_be_stored() {
        let ends = |text: &str| end(text).map(|end| end.to_string()).map_err(|error| error.to_string());
        assert_eq!(ends("2130-01-31T00:00:00.123456789Z").as_deref(), Ok("2130-01-31T00:00:00.123456Z"));
        assert_eq!(ends("9999-12-30T22:00:00Z").as_deref(), Ok("9999-12-30T22:00:00Z"));
        for text in ["9999-12-31T23:59:59Z", "2001-01-01T00:00:00Z", "x"] {
            assert!(ends(text).is_err_and(|error| error.contains("until 9999-12-30T22:00:00Z")), "{text}");
        }
    }

    #[test]
    fn a_key_is_known_by_its_check() {
        let secret = Secret::generate().expect("randomness");
        let text = secret.expose();
        assert!(text.starts_with("lrk_") && text.len() == 76, "{text}");
        assert_eq!(Secret::digest_of(text), Some(secret.digest()));
        assert_ne!(Secret::generate().expect("randomness"), secret);
        for at in 4..text.len() {
            let mut changed = text.to_owned();
            let other = if &text[at..=at] == "0" { "1" } else { "0" };
            changed.replace_range(at..=at, other);
            assert_eq!(Secret::digest_of(&changed), None, "{at}");
        }
        for other in ["", "lrk_", &text[..75], &format!("{text}0"), &text.to_uppercase()] {
            assert_eq!(Secret::digest_of(other), None, "{other}");
        }
        assert_eq!(format!("{secret:?}"), "Secret");
    }
}
